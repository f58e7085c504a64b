// Package preview shows people what a migration would find: what it would copy and what
// not, and what stands in the way, with what would clear it. What was found comes in as
// values; it reads no cluster.
package preview

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/rogpeppe/go-internal/diff"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/cmd/kubectl-phasegate/internal/statusview"
	"github.com/phasegate/phasegate/controllers/datastoremigration"
	"github.com/phasegate/phasegate/resources"
	"github.com/phasegate/phasegate/resources/copier"
)

// Conflicts are the objects of which v1 and v3 say different things.
type Conflicts struct {
	Migration string `json:"migration,omitempty"`
	// Locked says that v1 cannot be written now.
	Locked bool `json:"locked,omitempty"`
	// Unseen says why nothing could be compared.
	Unseen    string     `json:"unseen,omitempty"`
	Conflicts []Conflict `json:"conflicts"`
}

// Conflict is one object, and what resolves it either way.
type Conflict struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	// Cause is Unmanaged, or Edited for a copy of ours that somebody has changed since.
	Cause  copier.Cause `json:"cause"`
	Fields []Field      `json:"fields"`
	// KeepV1 and KeepV3 are what somebody who wants that side has to do.
	KeepV1 Way `json:"keepV1"`
	KeepV3 Way `json:"keepV3"`
	// Diff is from v1, as it would be in v3, to v3.
	Diff string `json:"diff,omitempty" printable:"lines"`
}

// Field is one field of which both sides say something else.
type Field struct {
	Path string `json:"path"`
	V1   string `json:"v1"`
	V3   string `json:"v3"`
}

// Way is a command, and what it does.
type Way struct {
	Does    string `json:"does"`
	Command string `json:"command"`
}

// Site is where and when both sides were compared.
type Site struct {
	Registry *resources.Registry
	// Version of projectcalico.org by which v3's storage was reached.
	Version string
	// Migration is its name; empty where there is none yet.
	Migration string
	// Locked says that v1 cannot be written.
	Locked bool
}

// Resolve says of a conflict what resolves it.
func (s Site) Resolve(c copier.Conflict, both datastoremigration.Both, withDiff bool) (Conflict, error) {
	out := Conflict{Kind: c.Kind, Namespace: c.Namespace, Name: c.Name, Cause: c.Cause, Fields: []Field{}}
	for _, f := range c.Fields {
		out.Fields = append(out.Fields, Field{Path: f.Path, V1: f.Want, V3: f.Have})
	}
	kind, known := s.Registry.Kind(c.Kind)
	if !known {
		return out, fmt.Errorf("kind %s is not in the registry of kinds: give the manager's with --kinds-file", c.Kind)
	}
	target := c.Name
	if c.Namespace != "" {
		target += " -n " + c.Namespace
	}
	v3 := fmt.Sprintf("%s.%s.%s %s", kind.V3Plural(), s.Version, resources.V3Group, target)
	out.KeepV1 = Way{"delete the v3 side; the migration copies v1's", "kubectl delete " + v3}
	var err error
	if out.KeepV3, err = s.keepV3(kind, c, both, target); err != nil {
		return out, err
	}
	if withDiff {
		out.Diff, err = unified(both)
	}
	return out, err
}

// keepV3 makes v1 the same. Through Calico's API server, which shows v1 in v3's form, a
// patch says it exactly; where the v3 CRDs are served already, v1 has metadata of its own
// form, so that a person has to look at it.
func (s Site) keepV3(kind *resources.Kind, c copier.Conflict, both datastoremigration.Both, target string) (Way, error) {
	switch {
	case s.Locked:
		return Way{"v1 is locked: roll back, make v1 the same, and start again", strings.TrimSpace("kubectl phasegate abort "+s.Migration) + " --wait"}, nil
	case both.V1 == nil || both.Want == nil || both.Have == nil:
		return Way{"one side was deleted meanwhile: compare again", strings.TrimSpace("kubectl phasegate conflicts " + s.Migration)}, nil
	case s.Version != migrationv1.SideDoorVersion:
		v1 := fmt.Sprintf("%s.%s %s", kind.V1Plural(), resources.V1Group, strings.Replace(target, c.Name, both.V1.GetName(), 1))
		return Way{"write v3's values into v1", "kubectl edit " + v1}, nil
	}
	patch, err := mergePatch(both.Want, both.Have)
	if err != nil {
		return Way{}, err
	}
	return Way{"write v3's values into v1, through Calico's API server", fmt.Sprintf("kubectl patch %s.%s.%s %s --type merge -p '%s'",
		kind.V3Plural(), resources.V3Version, resources.V3Group, target, strings.ReplaceAll(patch, "'", `'\''`))}, nil
}

func mergePatch(from, to *unstructured.Unstructured) (string, error) {
	before, badBefore := json.Marshal(content(from))
	after, badAfter := json.Marshal(content(to))
	if err := errors.Join(badBefore, badAfter); err != nil {
		return "", err
	}
	patch, err := jsonpatch.CreateMergePatch(before, after)
	return string(patch), err
}

// content is what people have written: no bookkeeping of the server's or of ours. Labels and
// annotations are there also when there are none, so that a patch takes off single ones.
func content(obj *unstructured.Unstructured) map[string]any {
	metadata := map[string]map[string]string{"labels": {}, "annotations": {}}
	maps.Copy(metadata["labels"], obj.GetLabels())
	maps.Copy(metadata["annotations"], obj.GetAnnotations())
	for _, ours := range slices.Concat(resources.Bookkeeping, []string{migrationv1.AnnotationLockedBy, resources.MetadataAnnotation}) {
		delete(metadata["annotations"], ours)
	}
	out := maps.Clone(obj.Object)
	maps.DeleteFunc(out, func(name string, _ any) bool { return name == "apiVersion" || name == "kind" || name == "status" })
	out["metadata"] = metadata
	return out
}

// written is content without what is empty.
func written(obj *unstructured.Unstructured) map[string]any {
	out := content(obj)
	metadata := out["metadata"].(map[string]map[string]string)
	maps.DeleteFunc(metadata, func(_ string, values map[string]string) bool { return len(values) == 0 })
	if len(metadata) == 0 {
		delete(out, "metadata")
	}
	return out
}

func unified(both datastoremigration.Both) (string, error) {
	var sides [2][]byte
	for i, obj := range []*unstructured.Unstructured{both.Want, both.Have} {
		if obj == nil {
			continue
		}
		data, err := yaml.Marshal(written(obj))
		if err != nil {
			return "", err
		}
		sides[i] = data
	}
	return string(diff.Diff("v1", sides[0], "v3", sides[1])), nil
}

// Text writes them for people.
func (c *Conflicts) Text(to io.Writer) error {
	var b strings.Builder
	for _, one := range c.Conflicts {
		fmt.Fprintf(&b, "‼ %s %s", one.Kind, strings.TrimPrefix(one.Namespace+"/"+one.Name, "/"))
		if one.Cause == copier.CauseEdited {
			b.WriteString(", changed after it was copied")
		}
		b.WriteString("\n")
		for _, f := range one.Fields {
			fmt.Fprintf(&b, "    %s\n      v1: %s\n      v3: %s\n", f.Path, f.V1, f.V3)
		}
		if one.Diff != "" {
			b.WriteString("    " + strings.ReplaceAll(strings.TrimSuffix(one.Diff, "\n"), "\n", "\n    ") + "\n")
		}
		fmt.Fprintf(&b, "    keep v1: %s\n      %s\n", one.KeepV1.Does, one.KeepV1.Command)
		fmt.Fprintf(&b, "    keep v3: %s\n      %s\n\n", one.KeepV3.Does, one.KeepV3.Command)
	}
	switch n := len(c.Conflicts); {
	case c.Unseen != "":
		fmt.Fprintf(&b, "Nothing could be compared yet: %s. A migration compares both sides before it locks anything.\n", c.Unseen)
	case n == 0:
		b.WriteString("✓ No conflicts: objects on both sides are equal.\n")
	default:
		fmt.Fprintf(&b, "%s. A migration continues once there are none.\n", statusview.Count(n, "conflict"))
	}
	_, err := io.WriteString(to, b.String())
	return err
}
