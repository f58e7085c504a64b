package v1alpha1

import (
	"cmp"
	"time"
)

// Visit names the visit to the phase that the object is in. It stays the same when an action
// is repeated, also after a crash, after a change of the machine file, and after a rename of
// the phase. It is another one each time that a phase is entered. What an action makes under
// this name is found again, and is not made twice.
func (s *MachineStatus) Visit() string {
	since := ""
	if s.EnteredAt != nil {
		since = s.EnteredAt.UTC().Format(time.RFC3339Nano)
	}
	return cmp.Or(s.EnteredAs, s.Phase) + "\x00" + since
}
