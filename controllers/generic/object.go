// Package generic drives kinds that this program has never heard of: all that is
// known of them is a machine file and the CRD that it is for. Their actions are
// the built-in ones, which know no kind either.
package generic

import (
	"encoding/json"
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/controllers/runner"
)

// maxMessage is how many bytes of a message the status shows.
const maxMessage = 1024

// Object is an object of any kind. Fields that it does not have are left alone in
// the cluster, since only differences are written; expressions do not see them, nor Status.Others.
type Object struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is whatever the CRD says; {} is another one than none.
	Spec   map[string]any `json:"spec,omitzero"`
	Status Status         `json:"status,omitempty"`
}

// Status is what the CRD of a machine-driven kind must keep.
type Status struct {
	Phase              string                 `json:"phase,omitempty"`
	Message            string                 `json:"message,omitempty"`
	ObservedGeneration int64                  `json:"observedGeneration,omitempty"`
	Conditions         []metav1.Condition     `json:"conditions,omitempty"`
	Machine            v1alpha1.MachineStatus `json:"machine,omitempty"`
	// Others are all other fields of the status: those of spec.status of the machine, and those of other programs.
	Others map[string]any `json:"-"`
}

// reserved are the fields of Status itself, which no machine file defines.
var reserved = []string{"phase", "message", "observedGeneration", "conditions", "machine"}

// plainStatus is Status without methods.
type plainStatus Status

// MarshalJSON puts the other fields beside those of Status.
func (s Status) MarshalJSON() ([]byte, error) {
	own, err := json.Marshal(plainStatus(s))
	if err != nil || len(s.Others) == 0 {
		return own, err
	}
	all := map[string]json.RawMessage{}
	for name, value := range s.Others {
		if all[name], err = json.Marshal(value); err != nil {
			return nil, err
		}
	}
	if err := json.Unmarshal(own, &all); err != nil {
		return nil, err // not reached: it was made above
	}
	return json.Marshal(all)
}

// UnmarshalJSON reads whole numbers as int64, as the API machinery does.
func (s *Status) UnmarshalJSON(data []byte) error {
	if err := utiljson.Unmarshal(data, (*plainStatus)(s)); err != nil {
		return err
	}
	s.Others = nil
	if err := utiljson.Unmarshal(data, &s.Others); err != nil {
		return err
	}
	maps.DeleteFunc(s.Others, func(name string, _ any) bool { return slices.Contains(reserved, name) })
	if len(s.Others) == 0 {
		s.Others = nil
	}
	return nil
}

var (
	_ runner.Object[*Object] = &Object{}
	_ runner.FieldShower     = &Object{}
)

// DeepCopyObject is for runtime.Object.
func (o *Object) DeepCopyObject() runtime.Object {
	out := &Object{TypeMeta: o.TypeMeta, Spec: runtime.DeepCopyJSON(o.Spec)}
	o.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	out.CopyStatusFrom(o)
	return out
}

// MachineStatus returns the block that the engine keeps.
func (o *Object) MachineStatus() *v1alpha1.MachineStatus { return &o.Status.Machine }

// Conditions returns the conditions for reading and changing.
func (o *Object) Conditions() *[]metav1.Condition { return &o.Status.Conditions }

// SetDisplay sets what `kubectl get` shows; a long message is cut.
func (o *Object) SetDisplay(phase, message string) {
	o.Status.Phase, o.Status.Message = phase, runner.Cut(message, maxMessage)
}

// ObservedGeneration is the generation that the status is about; 0 or less: not known.
func (o *Object) ObservedGeneration() *int64 { return &o.Status.ObservedGeneration }

// CopyStatusFrom makes the status a deep copy of another object's.
func (o *Object) CopyStatusFrom(other *Object) {
	o.Status = other.Status
	other.Status.Machine.DeepCopyInto(&o.Status.Machine)
	o.Status.Conditions = slices.Clone(other.Status.Conditions)
	o.Status.Others = runtime.DeepCopyJSON(other.Status.Others)
}

// OtherFields are those of the status that Status itself does not have.
func (o *Object) OtherFields() map[string]any { return o.Status.Others }

// ShowFields takes out of the status the other fields that are stale, and sets some.
func (o *Object) ShowFields(stale func(name string) bool, fields map[string]any) {
	maps.DeleteFunc(o.Status.Others, func(name string, _ any) bool { return stale(name) })
	if o.Status.Others == nil && len(fields) > 0 {
		o.Status.Others = map[string]any{}
	}
	maps.Copy(o.Status.Others, runtime.DeepCopyJSON(fields))
	if len(o.Status.Others) == 0 {
		o.Status.Others = nil
	}
}
