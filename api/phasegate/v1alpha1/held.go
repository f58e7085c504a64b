package v1alpha1

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// HeldEffect is an effect that was taken and not released, with what releases it:
// the release and its parameters, as they were when the effect was taken. An edit of
// the object or of the machine file afterwards does not change them. On the wire it is
// one line of text, as a Transition is.
//
// +kubebuilder:validation:Type=string
// +kubebuilder:validation:MaxLength=32768
type HeldEffect struct {
	// Name of the effect in the machine file; of one that is taken for each item of a forEach with the key
	// of the item, as EFFECT[KEY].
	Name string
	// Release is the program's action that releases it; empty where it is not known,
	// as of an effect that was found in the cluster: then the machine file says it.
	Release string
	// With are the resolved parameters of Release, as a JSON object; empty: none.
	With string
	// Acquired are the parameters that the acquire action had from expressions, as a JSON
	// object; empty: none. Acquiring again before the release uses the same ones.
	Acquired string
}

// Keyed is the name under which an effect is held for one item; without a key, as a whole.
func Keyed(effect, key string) string {
	if key == "" {
		return effect
	}
	return effect + "[" + key + "]"
}

// Effect is the name of the effect in the machine file.
func (h HeldEffect) Effect() string {
	effect, _ := CutKey(h.Name)
	return effect
}

// CutKey splits the name under which something is held into that of the effect and the key, if it has one.
func CutKey(held string) (effect, key string) {
	effect, rest, _ := strings.Cut(held, "[")
	return effect, strings.TrimSuffix(rest, "]")
}

// The parts of a line: NAME → RELEASE {with} ← {acquired}.
const (
	heldReleases = " → "
	heldAcquired = " ← "
)

// String is the line that MarshalJSON writes, for example
// `app → Patch {"name":"web","replicas":3} ← {"name":"web"}`.
func (h HeldEffect) String() string {
	line := h.Name
	if h.Release != "" {
		line += heldReleases + h.Release
	}
	if h.With != "" {
		line += " " + h.With
	}
	if h.Acquired != "" {
		line += heldAcquired + h.Acquired
	}
	return line
}

// MarshalJSON writes the effect as a line of text.
func (h HeldEffect) MarshalJSON() ([]byte, error) { return json.Marshal(h.String()) }

// ToUnstructured is what MarshalJSON writes, without JSON.
func (h HeldEffect) ToUnstructured() any { return h.String() }

// UnmarshalJSON reads what MarshalJSON wrote, or a name alone; anything else is an error.
func (h *HeldEffect) UnmarshalJSON(data []byte) error {
	var line string
	if err := json.Unmarshal(data, &line); err != nil {
		return fmt.Errorf("read a held effect: %w", err)
	}
	parsed, err := parseHeld(line)
	if err != nil {
		return fmt.Errorf("read a held effect: %q has not the form \"NAME → RELEASE {with} ← {acquired}\": %w", line, err)
	}
	*h = parsed
	return nil
}

func parseHeld(line string) (h HeldEffect, err error) {
	var rest string
	if h.Name, rest = cutWord(line); h.Name == "" || strings.Contains(h.Name, "{") {
		return h, fmt.Errorf("%q is no name", h.Name)
	}
	if release, ok := strings.CutPrefix(rest, heldReleases); ok {
		h.Release, rest = cutWord(release)
		if object, ok := strings.CutPrefix(rest, " {"); ok {
			if h.With, rest, err = cutObject("{" + object); err != nil {
				return h, err
			}
		}
	}
	if object, ok := strings.CutPrefix(rest, heldAcquired); ok {
		if h.Acquired, rest, err = cutObject(object); err != nil {
			return h, err
		}
	}
	if rest != "" {
		return h, fmt.Errorf("%q is left over", rest)
	}
	return h, nil
}

// cutWord splits before the first blank.
func cutWord(text string) (word, rest string) {
	end := strings.IndexByte(text+" ", ' ')
	return text[:end], text[end:]
}

// cutObject splits off the JSON object that a text begins with.
func cutObject(text string) (object, rest string, err error) {
	dec := json.NewDecoder(strings.NewReader(text))
	var fields map[string]json.RawMessage
	if err := dec.Decode(&fields); err != nil {
		return "", "", err
	}
	end := dec.InputOffset()
	return text[:end], text[end:], nil
}

// HeldEffects are effects in the order of taking. On the wire they are a line each; where no
// more than their names is known, as in the status of an object, one line lists them all:
// "v1Fence, v1Lock, v3Copies".
type HeldEffects []HeldEffect

// heldSeparator stands between names in one line; a name has no comma.
const heldSeparator = ", "

// lines are what MarshalJSON writes.
func (h HeldEffects) lines() []string {
	lines, names := make([]string, len(h)), true
	for i, e := range h {
		lines[i] = e.String()
		names = names && e == HeldEffect{Name: e.Name}
	}
	if names && len(h) > 1 {
		return []string{strings.Join(lines, heldSeparator)}
	}
	return lines
}

// MarshalJSON writes the lines.
func (h HeldEffects) MarshalJSON() ([]byte, error) {
	if h == nil {
		return []byte("null"), nil
	}
	return json.Marshal(h.lines())
}

// ToUnstructured is what MarshalJSON writes, without JSON.
func (h HeldEffects) ToUnstructured() any {
	if h == nil {
		return nil
	}
	lines := h.lines()
	list := make([]any, len(lines))
	for i, line := range lines {
		list[i] = line
	}
	return list
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (h *HeldEffects) UnmarshalJSON(data []byte) error {
	var lines []json.RawMessage
	if err := json.Unmarshal(data, &lines); err != nil {
		return fmt.Errorf("read held effects: %w", err)
	}
	*h = nil
	if lines != nil {
		*h = HeldEffects{}
	}
	for _, data := range lines {
		var line string
		if json.Unmarshal(data, &line) == nil && !strings.Contains(line, "{") && strings.Contains(line, heldSeparator) {
			for name := range strings.SplitSeq(line, heldSeparator) {
				e, err := parseHeld(name)
				if err != nil {
					return fmt.Errorf("read held effects: %q is no list of names: %w", line, err)
				}
				*h = append(*h, e)
			}
			continue
		}
		var e HeldEffect
		if err := json.Unmarshal(data, &e); err != nil {
			return err
		}
		*h = append(*h, e)
	}
	return nil
}

// HeldNames are the names of the effects held, in the order in which they were taken; nil
// where none is.
func (s *MachineStatus) HeldNames() []string {
	var names []string
	for _, h := range s.Held {
		names = append(names, h.Name)
	}
	return names
}

// Held are effects of which no more than the names is known.
func Held(names ...string) HeldEffects {
	held := make(HeldEffects, len(names))
	for i, name := range names {
		held[i].Name = name
	}
	return held
}

// IsHeld tells whether the ledger has an effect of this name.
func (s *MachineStatus) IsHeld(effect string) bool {
	return slices.ContainsFunc(s.Held, func(h HeldEffect) bool { return h.Name == effect })
}
