package resources

import "fmt"

// Reason is a stable identifier of what is wrong with an object, for conditions and scripts.
type Reason string

// The reasons of a Problem.
const (
	ReasonUnreadableMetadata Reason = "UnreadableMetadata"
	ReasonBadUID             Reason = "BadUID"
	ReasonUnreadableField    Reason = "UnreadableField"
	ReasonNameCollision      Reason = "NameCollision"
	ReasonInvalid            Reason = "InvalidInV3"
	ReasonUnknownField       Reason = "UnknownFieldInV3"
	ReasonRejected           Reason = "RejectedByServer"
	ReasonOwnerMissing       Reason = "OwnerMissing"
	ReasonProtected          Reason = "Protected"
	ReasonRemaining          Reason = "Remaining"
	ReasonMissing            Reason = "MissingInV3"
	ReasonExtra              Reason = "GoneFromV1"
	ReasonDeletedInUse       Reason = "DeletedInUse"
	ReasonAltered            Reason = "AlteredByAdmission"
	ReasonOnlyInV3           Reason = "OnlyInV3"
)

// Problem names one object that cannot be migrated as it is, why, and what to do about it. It is an
// error, so that a pure function can return it.
type Problem struct {
	Kind      string `json:"kind"`                // the v3 kind
	Namespace string `json:"namespace,omitempty"` // empty for cluster-scoped kinds
	Name      string `json:"name"`                // of the v1 object, unless the message says otherwise
	Reason    Reason `json:"reason"`
	Message   string `json:"message"`
	Remedy    string `json:"remedy,omitempty"`
}

// Error gives the whole problem on one line.
func (p *Problem) Error() string {
	return fmt.Sprintf("%s %s: %s; %s", p.Kind, p.Object(), p.Message, p.Remedy)
}

// Object is namespace/name, or the name alone for cluster-scoped kinds.
func (p *Problem) Object() string {
	if p.Namespace == "" {
		return p.Name
	}
	return p.Namespace + "/" + p.Name
}
