package program

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/phasegate/phasegate/fsm/machine/expr"
)

// SecretRef stands in the parameters of a call in place of a value that nobody may read there:
// {secret: {name: NAME, key: KEY}}, or {secretOutput: NAME}, each with or without a format. An action that takes it
// reads the value when it is called.
type SecretRef struct {
	// Output is the name of a secret output; empty: it is a key of a Secret.
	Output string
	// Namespace is empty where it is that of the object.
	Namespace, Name, Key string
	// Format has one %s, which the value replaces; empty: the value is all.
	Format string
}

// SecretUse is where in a parameter references to secrets may stand.
type SecretUse string

// The uses of secrets.
const (
	// SecretsAnywhere: in place of any value in it.
	SecretsAnywhere SecretUse = "anywhere"
	// SecretsInSecret: in stringData of a manifest of kind Secret.
	SecretsInSecret SecretUse = "secretManifest"
)

// Within is the part of a value in which references count; nil: there is none.
func (u SecretUse) Within(value any) any {
	if u == SecretsAnywhere {
		return value
	}
	manifest, _ := value.(map[string]any)
	if u == SecretsInSecret && manifest["apiVersion"] == "v1" && manifest["kind"] == "Secret" {
		return manifest["stringData"]
	}
	return nil
}

// The fields of a reference.
const (
	fieldSecret = "secret"
	fieldOutput = "secretOutput"
	fieldFormat = "format"
)

// AsSecretRef reads a reference. It is nil where the value is none: an object with other fields may mean anything. An error
// is about one that is none for a mistake in it.
func AsSecretRef(value any) (*SecretRef, error) {
	fields, _ := value.(map[string]any)
	of, isSecret := fields[fieldSecret].(map[string]any)
	output, isOutput := fields[fieldOutput].(string)
	format, hasFormat := fields[fieldFormat]
	others := len(fields) - 1
	if hasFormat {
		others--
	}
	if isSecret == isOutput || others != 0 {
		return nil, nil
	}
	ref := &SecretRef{Output: output}
	if hasFormat {
		ref.Format, _ = format.(string)
		if strings.Count(ref.Format, "%") != 1 || strings.Count(ref.Format, "%s") != 1 {
			return nil, errors.New("its format is no text with %s once, and no other %")
		}
	}
	read := ref.readOutput
	if isSecret {
		read = func() error { return ref.readKey(of) }
	}
	if err := read(); err != nil {
		return nil, err
	}
	return ref, nil
}

func (ref *SecretRef) readOutput() error {
	if !strings.Contains(ref.Output, "${") && !expr.Identifier.MatchString(ref.Output) {
		return fmt.Errorf("%q is not a name for a secret output", ref.Output)
	}
	return nil
}

func (ref *SecretRef) readKey(of map[string]any) error {
	into := map[string]*string{"namespace": &ref.Namespace, "name": &ref.Name, "key": &ref.Key}
	for _, name := range slices.Sorted(maps.Keys(of)) {
		text, isText := of[name].(string)
		if into[name] == nil || !isText {
			return fmt.Errorf("its %s: it takes the texts name, key and namespace", name)
		}
		*into[name] = text
	}
	if ref.Name == "" || ref.Key == "" {
		return errors.New("it lacks the name or the key of the Secret")
	}
	return nil
}

// String names what it refers to, for people.
func (ref *SecretRef) String() string {
	if ref.Output != "" {
		return "secret output " + ref.Output
	}
	return fmt.Sprintf("key %s of Secret %s", ref.Key, strings.TrimPrefix(ref.Namespace+"/"+ref.Name, "/"))
}

// SecretRefs are the references in a value, without those that have a mistake.
func SecretRefs(value any) (refs []SecretRef) {
	if ref, err := AsSecretRef(value); ref != nil || err != nil {
		if ref != nil {
			refs = append(refs, *ref)
		}
		return refs
	}
	switch x := value.(type) {
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(x)) {
			refs = append(refs, SecretRefs(x[name])...)
		}
	case []any:
		for _, item := range x {
			refs = append(refs, SecretRefs(item)...)
		}
	}
	return refs
}
