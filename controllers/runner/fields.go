package runner

import (
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// showFields puts fields of spec.status into a status. What the machine file defines, or defined once, and is not among them goes;
// what another program has written stays.
func (p *pass[T]) showFields(fields map[string]any) {
	shower, shows := any(p.work).(FieldShower)
	if !shows {
		return
	}
	p.fields = len(fields) > 0
	var ours map[string]bool
	shower.ShowFields(func(name string) bool {
		if p.machine.Shows(name) {
			return true
		}
		if ours == nil {
			ours = fieldsOfOurs(p.stored)
		}
		return ours[name]
	}, fields)
}

// adoptFields takes over what other programs have written into the status since the pass began.
func (p *pass[T]) adoptFields() {
	work, shows := any(p.work).(FieldShower)
	if !shows {
		return
	}
	live := any(p.stored).(FieldShower).OtherFields()
	work.ShowFields(func(string) bool { return true }, othersOf(live, work.OtherFields(), p.machine.Shows, fieldsOfOurs(p.stored)))
}

// othersOf are the fields of a status that is there by now, with those of our work that the machine shows.
func othersOf(live, work map[string]any, shown func(name string) bool, ours map[string]bool) map[string]any {
	all := map[string]any{}
	for name, value := range live {
		if !shown(name) && !ours[name] {
			all[name] = value
		}
	}
	for name, value := range work {
		if shown(name) {
			all[name] = value
		}
	}
	return all
}

// fieldsOfOurs are the fields of the status that no other program has written since we did.
func fieldsOfOurs(obj client.Object) map[string]bool {
	ours := map[string]bool{}
	for _, e := range obj.GetManagedFields() {
		for name := range fieldsOf(e) {
			before, known := ours[name]
			ours[name] = e.Manager == statusManager && (before || !known)
		}
	}
	return ours
}

// fieldsOf are the fields of the status that an entry owns.
func fieldsOf(e metav1.ManagedFieldsEntry) map[string]bool {
	var owned struct {
		Status map[string]json.RawMessage `json:"f:status"`
	}
	if e.FieldsV1 == nil || json.Unmarshal([]byte(e.FieldsV1.GetRawString()), &owned) != nil {
		return nil
	}
	names := map[string]bool{}
	for key := range owned.Status {
		if len(key) > 2 { // f:NAME
			names[key[2:]] = true
		}
	}
	return names
}

// withoutFields are objects as expressions see them: what the view shows decides nothing.
func withoutFields(obj any) {
	if shower, shows := obj.(FieldShower); shows {
		shower.ShowFields(func(string) bool { return true }, nil)
	}
}
