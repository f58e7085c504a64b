package audit

import (
	"slices"
	"strings"
	"time"
)

// Call is one request, as the API server saw it: From its arrival To the end of its answer.
type Call struct {
	Verb, Resource, Name string
	From, To             time.Time
}

// String is what was asked: "list tiers", "get tiers default".
func (c Call) String() string { return strings.TrimSpace(c.Verb + " " + c.Resource + " " + c.Name) }

// Calls are the requests of a user in the log at path, by their begin. Watches, whose answers do not end, are not among them, and what
// is not about a resource is called by its path.
func Calls(path, user string) ([]Call, error) {
	var calls []Call
	err := eachOf(path, func(e event) {
		if e.User.Username != user || e.Verb == "watch" {
			return
		}
		call := Call{Verb: e.Verb, Resource: e.RequestURI, From: e.RequestReceivedTimestamp, To: e.StageTimestamp}
		if ref := e.ObjectRef; ref != nil {
			call.Resource, call.Name = ref.Resource, ref.Name
			if ref.APIGroup != "" {
				call.Resource += "." + ref.APIGroup
			}
			if ref.Subresource != "" {
				call.Resource += "/" + ref.Subresource
			}
		}
		calls = append(calls, call)
	})
	slices.SortFunc(calls, func(a, b Call) int { return a.From.Compare(b.From) })
	return calls, err
}
