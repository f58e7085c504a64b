package statusview

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/cmd/kubectl-phasegate/internal/live"
	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/fsm/machine/program"
)

// Caller is what the commands of an overview need besides, since the command that shows it
// was given it.
type Caller struct {
	// Flags say which cluster it is, and as whom: as a shell reads them.
	Flags string
	// File is the machine file of -f, as a shell reads it; empty where the published one is taken.
	File string
}

func (c Caller) typed(command string) string {
	if c.Flags == "" || !strings.HasPrefix(command, "kubectl ") {
		return command
	}
	return command + " " + c.Flags
}

func (c Caller) complete(o *Overview) {
	for i := range o.Next {
		d := &o.Next[i]
		if d.ofMachine && c.File != "" {
			d.Command += " -f " + c.File
		}
		d.Command = c.typed(d.Command)
	}
	if o.Stale != nil {
		stale := *o.Stale
		stale.Command = c.typed(stale.Command)
		o.Stale = &stale
	}
}

// advisor finds what a person can do about an object.
type advisor struct {
	machine  *fsm.Machine
	of       *live.Object
	overview *Overview
	// result are the outputs of the present phase's steps.
	result map[string]any
	// migration is true where the object is one.
	migration bool
}

func (a advisor) outcome(p *v1alpha1.Phase) Outcome {
	o := a.overview
	isTrue := func(condition string) bool { return meta.IsStatusConditionTrue(o.Conditions, condition) }
	switch {
	case !o.Deleting && (p.Terminal == v1alpha1.PhaseSuccess || p.Kind == v1alpha1.PhaseSteady && isTrue(fsm.ConditionReady)):
		return Succeeded
	case !o.Deleting && p.Terminal == v1alpha1.PhaseFailure:
		return Failed
	case p.Kind == v1alpha1.PhaseWaiting && !p.Deletion, isTrue(fsm.ConditionStalled), a.migration && a.waitsIn(p, forPeople...):
		return WaitsForPerson
	}
	return Running
}

// next is what a person can do, the best first. It is empty where nothing needs to be done.
func (a advisor) next(p *v1alpha1.Phase) []Remedy {
	o := a.overview
	var all []Remedy
	if o.Phase == "" {
		return []Remedy{deed("no manager has picked it up yet: check that one runs", managers)}
	}
	if a.migration {
		all = append(all, a.migrationAdvice(p)...)
	}
	all = append(all, a.requests(p)...)
	if o.Step != nil && o.Step.Attempts > 0 {
		all = append(all, deed(fmt.Sprintf("it failed %d times in a row and is retried: look for the cause in the message and in the log", o.Step.Attempts), a.log()))
	}
	if len(all) == 0 && meta.IsStatusConditionTrue(o.Conditions, fsm.ConditionStalled) {
		all = append(all, Remedy{
			Why:     "see what the phase waits for, and every way out of it",
			Command: "kubectl phasegate explain --live " + a.argument() + a.namespace(), ofMachine: true,
		})
	}
	if a.migration {
		return append(all, migrationEnds(p, o)...)
	}
	return append(all, a.ends(p)...)
}

const managers = "kubectl get pods --all-namespaces --selector app.kubernetes.io/part-of=phasegate"

// log is that of the manager: the chart calls its Deployment as its lease.
func (a advisor) log() string {
	namespace, name, known := strings.Cut(a.of.Manager, "/")
	if !known {
		return managers
	}
	return fmt.Sprintf("kubectl logs deployment/%s --namespace %s --tail 50", name, namespace)
}

// argument is how the commands of the plugin name the object.
func (a advisor) argument() string { return strings.ToLower(a.of.Kind.Kind) + "/" + a.of.Name }

func (a advisor) namespace() string {
	if a.of.Namespace == "" {
		return ""
	}
	return " --namespace " + a.of.Namespace
}

// requests are those that the phase waits for; at an end that is well nobody needs one.
func (a advisor) requests(p *v1alpha1.Phase) []Remedy {
	var all []Remedy
	for _, q := range a.machine.Requests() {
		if !slices.Contains(q.Phases, p.Name) || q.Annotation == "" || a.overview.Deleting || a.overview.Outcome == Succeeded {
			continue
		}
		if _, takes := live.Token(a.machine, q, a.of.Machine, a.of.Content, a.overview.Now); !takes {
			continue // the command would be refused
		}
		why := "to let it continue, request " + q.Name
		if p.Terminal == v1alpha1.PhaseFailure || p.Kind == v1alpha1.PhaseWaiting && q.Name != "approve" {
			why = "when the cause is fixed, request " + q.Name
		}
		all = append(all, Remedy{Why: why, Command: "kubectl phasegate " + asked(q.Name, a.argument()) + " --wait" + a.namespace(), ofMachine: true})
	}
	return all
}

// asked is the command of a request, some of which have one of their own.
func asked(request, object string) string {
	if slices.Contains([]string{"approve", "retry", "restart"}, request) {
		return request + " " + object
	}
	return fmt.Sprintf("approve %s --request %s", object, request)
}

// actionOf is the program's action that a step of a phase does; empty where the file has another one by now.
func (a advisor) actionOf(p *v1alpha1.Phase, step string) string {
	for _, s := range p.Steps {
		if program.StepName(s) == step {
			return programs(a.machine, s.Action)
		}
	}
	return ""
}

// ends is the way out for good where a person has to decide: a deletion, if it may be had.
func (a advisor) ends(p *v1alpha1.Phase) []Remedy {
	o := a.overview
	hopeless := o.Outcome == WaitsForPerson || o.Outcome == Failed
	if o.Deleting || !hopeless || p.OnDelete == nil || p.OnDelete.Hold != "" || p.PointOfNoReturn {
		return nil
	}
	resource := strings.ToLower(a.of.Kind.Kind)
	if group := a.of.Kind.Group; group != "" {
		resource += "." + group
	}
	return []Remedy{{Why: "or delete it; a deletion now: " + o.OnDelete.String(), Command: fmt.Sprintf("kubectl delete %s %s%s", resource, o.Name, a.namespace())}}
}
