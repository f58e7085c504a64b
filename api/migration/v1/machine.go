package v1

import (
	"cmp"
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
)

// The methods below are how the runner reaches the parts of a status that every
// machine-driven kind has. They hand out the object's own memory.

// MachineStatus returns the block that the engine keeps.
func (m *DatastoreMigration) MachineStatus() *v1alpha1.MachineStatus { return &m.Status.Machine }

// Conditions returns the conditions for reading and changing.
func (m *DatastoreMigration) Conditions() *[]metav1.Condition { return &m.Status.Conditions }

// ObservedGeneration is the generation that the status is about; 0 or less: not known.
func (m *DatastoreMigration) ObservedGeneration() *int64 { return &m.Status.ObservedGeneration }

// SetDisplay sets what `kubectl get` shows. A message longer than
// MaxMessageLength is cut, since one status field that is too long would make
// the API server refuse the whole write, the transition included.
func (m *DatastoreMigration) SetDisplay(phase, message string) {
	m.Status.Phase = phase
	m.Status.Message = v1alpha1.Shorten(message, MaxMessageLength)
}

// CurrentPhase is the machine's own phase. Where that is not known it is the one that the
// status shows, which may be another: not every CRD allows all of them.
func (m *DatastoreMigration) CurrentPhase() string {
	return cmp.Or(m.Status.Machine.Phase, m.Status.Phase)
}

// CopyStatusFrom makes the status a deep copy of another migration's.
func (m *DatastoreMigration) CopyStatusFrom(other *DatastoreMigration) {
	other.Status.DeepCopyInto(&m.Status)
}

// savedStatus are the fields of a status that must outlive a crash, and that not every
// CRD keeps. Their names on the wire are those in the status.
type savedStatus struct {
	DatastoreLockedAt *metav1.Time `json:"datastoreLockedAt,omitempty"`
	StartedAt         *metav1.Time `json:"startedAt,omitempty"`
	CompletedAt       *metav1.Time `json:"completedAt,omitempty"`
	Lock              *Lock        `json:"lock,omitempty"`
	CopyAhead         *CopyAhead   `json:"copyAhead,omitempty"`
	Verified          *Verified    `json:"verified,omitempty"`
	LateWrites        string       `json:"lateWrites,omitempty"`
	NotCopied         string       `json:"notCopied,omitempty"`
	OnlyInV3          string       `json:"onlyInV3,omitempty"`
	OwnersWithheld    int32        `json:"ownersWithheld,omitempty"`
}

// SavedStatus returns the fields of the status that must outlive a crash as a JSON
// object, for the entry v1alpha1.SavedStatus of a MachineState: datastoreLockedAt,
// startedAt, completedAt, lock, copyAhead, verified, lateWrites, and of progress
// notCopied, onlyInV3 and ownersWithheld. It is empty when none of them is set. Equal fields give equal texts.
func (m *DatastoreMigration) SavedStatus() (string, error) {
	s := &m.Status
	saved := savedStatus{DatastoreLockedAt: s.DatastoreLockedAt, StartedAt: s.StartedAt, CompletedAt: s.CompletedAt,
		Lock: s.Lock, CopyAhead: s.CopyAhead, Verified: s.Verified, LateWrites: s.LateWrites.String()}
	if s.Progress != nil {
		saved.NotCopied, saved.OnlyInV3, saved.OwnersWithheld = s.Progress.NotCopied, s.Progress.OnlyInV3, s.Progress.OwnersWithheld
	}
	if saved == (savedStatus{}) {
		return "", nil
	}
	text, err := json.Marshal(saved)
	if err != nil {
		return "", fmt.Errorf("write the saved status of migration %s: %w", m.Name, err)
	}
	return string(text), nil
}

// SetSavedStatus sets the fields that SavedStatus returns from its text. Fields that are
// not in the text are cleared, and all of them by an empty text: the status of the object
// is a view, which others can write. Fields of the text that are not known here are
// ignored: a newer manager may have written it. A text that cannot be read is an error
// and changes nothing.
func (m *DatastoreMigration) SetSavedStatus(text string) error {
	var saved savedStatus
	if text != "" {
		if err := json.Unmarshal([]byte(text), &saved); err != nil {
			return fmt.Errorf("read the saved status of migration %s: %w", m.Name, err)
		}
	}
	s := &m.Status
	s.DatastoreLockedAt, s.StartedAt, s.CompletedAt = saved.DatastoreLockedAt, saved.StartedAt, saved.CompletedAt
	s.Lock, s.CopyAhead, s.Verified, s.LateWrites = saved.Lock, saved.CopyAhead, saved.Verified, ParseConflicts(saved.LateWrites)
	if s.Progress == nil && (saved.NotCopied+saved.OnlyInV3 != "" || saved.OwnersWithheld != 0) {
		s.Progress = &Progress{}
	}
	if s.Progress != nil {
		s.Progress.NotCopied, s.Progress.OnlyInV3, s.Progress.OwnersWithheld = saved.NotCopied, saved.OnlyInV3, saved.OwnersWithheld
	}
	return nil
}
