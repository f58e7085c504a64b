package program

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"reflect"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/fsm/machine/diag"
)

// Definition is a machine file that decoded without a finding. What the file says in short (step lists, failure, deletion) is
// written out in it.
type Definition struct {
	v1alpha1.Machine
	*diag.Source

	// Revision is "sha256:" and a hash of what the file says: comments, layout, metadata but
	// the name, and texts for people do not count.
	Revision string

	text []byte
}

// Text is the file as it was read. Nobody may change it.
func (d *Definition) Text() []byte { return d.text }

// EffectNames are those of spec.effects.
func (d *Definition) EffectNames() (names EffectNames) {
	for _, e := range d.Spec.Effects {
		names = append(names, e.Name)
	}
	return names
}

// Same tells whether two files decode to one machine, texts for people included: they differ
// in comments and layout only.
func (d *Definition) Same(o *Definition) bool { return reflect.DeepEqual(d.Machine, o.Machine) }

// hashOf is the same for values that are the same as JSON.
func hashOf(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		data = fmt.Append(nil, v) // not reached: files are made of plain values
	}
	sum := sha256.Sum256(data)
	return "sha256:" + hex.EncodeToString(sum[:8])
}
