// Package audit reads what an API server has written down about requests (see
// harness.Options.Audit), and finds the rights that nobody has used. It knows what a
// role can say, and nothing of any controller.
package audit

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/phasegate/phasegate/controllers/rbac"
)

// Requests are what one user has asked for: each right once, sorted.
type Requests struct{ Allowed, Denied []rbac.Need }

// event is what is read of an audit.k8s.io/v1 Event.
type event struct {
	Verb string
	User struct{ Username string }
	// ObjectRef is missing where the path is not that of a resource.
	RequestURI string
	ObjectRef  *struct{ Resource, Subresource, Name, Namespace, APIGroup string }
	// ResponseStatus has the HTTP code.
	ResponseStatus           struct{ Code int }
	Annotations              map[string]string
	RequestReceivedTimestamp time.Time
	// StageTimestamp is when the answer was complete.
	StageTimestamp time.Time
}

func (e event) denied() bool { return e.Annotations[decision] == "forbid" }

// decision is where the API server notes what its authorizers said.
const decision = "authorization.k8s.io/decision"

// ReadFile reads a log, see Read.
func ReadFile(path string, excused func(time.Time) bool) (map[string]Requests, error) {
	seen := users{}
	err := eachOf(path, seen.taking(excused))
	return seen.summed(), err
}

// Read reads a log with an event in each line, and answers what each user asked for.
// What was denied at a time that is excused does not count; nil excuses none. A line
// that is cut off, as the last one of a log that grows, is an error.
func Read(log io.Reader, excused func(time.Time) bool) (map[string]Requests, error) {
	seen := users{}
	err := each(log, seen.taking(excused))
	return seen.summed(), err
}

// users are what each user asked for.
type users map[string]*notes

func (u users) taking(excused func(time.Time) bool) func(event) {
	return func(e event) {
		if e.ObjectRef == nil && e.RequestURI == "" || e.denied() && excused != nil && excused(e.RequestReceivedTimestamp) {
			return
		}
		if u[e.User.Username] == nil {
			u[e.User.Username] = &notes{map[string]rbac.Need{}, map[string]rbac.Need{}}
		}
		u[e.User.Username].take(e)
	}
}

// eachOf is each for the log at path.
func eachOf(path string, do func(event)) error {
	file, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("read the audit log: %w", err)
	}
	if err := errors.Join(each(file, do), file.Close()); err != nil {
		return fmt.Errorf("read the audit log %s: %w", path, err)
	}
	return nil
}

// each calls do for every event of a log.
func each(log io.Reader, do func(event)) error {
	lines := bufio.NewReader(log)
	for n := 1; ; n++ {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) && len(line) == 0 {
			return nil
		}
		if err != nil {
			return fmt.Errorf("line %d: %w", n, err)
		}
		e := event{}
		if err := json.Unmarshal(line, &e); err != nil {
			return fmt.Errorf("line %d: %w", n, err)
		}
		do(e)
	}
}

// notes are the rights that a user had and had not, by what they are called.
type notes struct{ allowed, denied map[string]rbac.Need }

func (n *notes) take(e event) {
	if e.ObjectRef == nil {
		path, _, _ := strings.Cut(e.RequestURI, "?")
		need := rbac.Need{URL: path, Verb: e.Verb}
		if e.denied() {
			n.denied[need.String()] = need
		} else {
			n.allowed[need.String()] = need
		}
		return
	}
	need := rbac.Need{
		Group: e.ObjectRef.APIGroup, Resource: e.ObjectRef.Resource, Name: e.ObjectRef.Name,
		Namespace: e.ObjectRef.Namespace, Verb: e.Verb,
	}
	if e.ObjectRef.Subresource != "" {
		need.Resource += "/" + e.ObjectRef.Subresource
	}
	if e.denied() {
		n.denied[need.String()] = need
		return
	}
	n.allowed[need.String()] = need
	if e.Verb == "patch" && e.ResponseStatus.Code == http.StatusCreated {
		need.Verb = "create" // an apply that creates is asked for both
		n.allowed[need.String()] = need
	}
}

func (u users) summed() map[string]Requests {
	requests := map[string]Requests{}
	for user, n := range u {
		requests[user] = Requests{Allowed: sorted(n.allowed), Denied: sorted(n.denied)}
	}
	return requests
}

func sorted(needs map[string]rbac.Need) []rbac.Need {
	var all []rbac.Need
	for _, n := range needs {
		all = append(all, n)
	}
	return rbac.Union(all)
}

// Unused are those of the granted rights that none of the requests needed. A request
// needs the narrowest right that allows it: one to a single object before one to all,
// one to a resource before one to a whole group ("*") or to everything. The namespaces
// of both do not count, as in a role of a cluster.
func Unused(granted, requests []rbac.Need) []rbac.Need {
	used := map[string]bool{}
	for _, r := range requests {
		used[narrowest(granted, r)] = true
	}
	return slices.DeleteFunc(slices.Clone(granted), func(g rbac.Need) bool { return used[bare(g)] })
}

func narrowest(granted []rbac.Need, request rbac.Need) string {
	all := request
	all.Name = ""
	ofGroup := all
	ofGroup.Resource = "*"
	everything := ofGroup
	everything.Group = "*"
	for _, allows := range []rbac.Need{request, all, ofGroup, everything} {
		if slices.ContainsFunc(granted, func(g rbac.Need) bool { return bare(g) == bare(allows) }) {
			return bare(allows)
		}
	}
	return ""
}

// bare is a right without a namespace.
func bare(n rbac.Need) string {
	n.Namespace = ""
	return n.String()
}
