package overview

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/phasegate/phasegate/fsm"
)

// next is what a person can do, the best first. It is empty where nothing needs to be done.
func next(m *fsm.Machine, o *Overview, result map[string]any) []Deed {
	var all []Deed
	add := func(why, command string) { all = append(all, Deed{Why: why, Command: command}) }
	if o.Phase == "" {
		add("no manager has touched it yet: is one running", "kubectl get pods --all-namespaces --selector app.kubernetes.io/name=phasegate")
		return all
	}
	if o.ConflictCount > 0 {
		add("see both sides of each conflict, and what resolves it", "kubectl phasegate conflicts "+o.Name)
	}
	for _, c := range o.WhyNot {
		if help, ok := mends[c.Step]; ok {
			add(help.Why, strings.ReplaceAll(help.Command, "NAME", o.Name))
		}
	}
	all = append(all, rollout(o, result)...)
	all = append(all, requests(m, o)...)
	if o.Step != nil && o.Step.Attempts > 0 {
		add(fmt.Sprintf("it failed %d times in a row and goes on trying: look for the cause in the message, and in the log", o.Step.Attempts),
			"kubectl -n phasegate-system logs deployment/phasegate-datastoremigration --tail 50")
	}
	if len(all) == 0 && meta.IsStatusConditionTrue(o.Conditions, fsm.ConditionStalled) {
		add("see what the phase waits for, and every way out of it", fmt.Sprintf("kubectl phasegate explain %s --live %s", m.Name(), o.Name))
	}
	return append(all, ends(m, o)...)
}

// requests are those that the phase waits for.
func requests(m *fsm.Machine, o *Overview) []Deed {
	var all []Deed
	for _, q := range m.Requests() {
		if slices.Contains(q.Phases, o.Phase) && q.Annotation != "" && !o.Deleting {
			all = append(all, Deed{"when the cause is mended, ask for " + q.Name, ask(q.Name, o.Name)})
		}
	}
	return all
}

// mends is what helps against what a step waits for.
var mends = map[string]Deed{
	"Preflight":     {"mend what the message names; every check, with its remedy", "kubectl phasegate check --controllers datastoremigration"},
	"Plan":          {"correct these objects in v1; all of them, with the field and the rule", "kubectl phasegate plan NAME"},
	"Validate":      {"correct these objects in v1; all of them, with the field and the rule", "kubectl phasegate plan NAME"},
	"CopyResources": {"correct what the message names in v1; nothing is locked", "kubectl phasegate plan NAME"},
}

// components are how kubectl names what has to run with v3.
var components = map[string]string{
	"calico-node": "daemonset/calico-node", "calico-typha": "deployment/calico-typha", "calico-kube-controllers": "deployment/calico-kube-controllers",
}

// rollout tells how the components that ObserveRollout names come to run with v3.
func rollout(o *Overview, result map[string]any) []Deed {
	if !slices.ContainsFunc(o.WhyNot, func(c Closed) bool { return c.Step == "ObserveRollout" }) {
		return nil
	}
	kubectl := "kubectl"
	if namespace, ok := result["namespace"].(string); ok {
		kubectl += " -n " + namespace
	}
	var unset []string
	var all []Deed
	for _, text := range texts(result["pending"]) {
		name, why, _ := strings.Cut(text, " ")
		switch component := components[name]; {
		case component == "":
		case strings.HasPrefix(why, "(variable not set"):
			unset = append(unset, component)
		default:
			all = append(all, Deed{"see how far it is rolled out " + why, kubectl + " rollout status " + component})
		}
	}
	if len(unset) > 0 {
		all = append([]Deed{{"let Calico's components use v3, unless the Tigera operator does it, and put it into your manifests",
			kubectl + " set env " + strings.Join(unset, " ") + " CALICO_API_GROUP=projectcalico.org/v3"}}, all...)
	}
	return all
}

// ask is the command of a request.
func ask(request, name string) string {
	if request == "approve" || request == "retry" {
		return fmt.Sprintf("kubectl phasegate %s %s --wait", request, name)
	}
	return fmt.Sprintf("kubectl phasegate approve %s --request %s --wait", name, request)
}

// ends are the ways out for good: after success, and where a person has to decide.
func ends(m *fsm.Machine, o *Overview) []Deed {
	p := phaseOf(m, o.Phase)
	switch {
	case o.Deleting:
		return nil
	case o.Outcome == Succeeded:
		return []Deed{{"nothing has to be done; when you are sure of v3, remove v1 for good", "kubectl phasegate cleanup " + o.Name}}
	case p.PointOfNoReturn || p.OnDelete == nil || p.OnDelete.Hold != "":
		return nil
	case o.Outcome == WaitsForPerson:
		return []Deed{{"or give everything back", "kubectl phasegate abort " + o.Name + " --wait"}}
	case o.Outcome == Failed && p.OnDelete.None:
		return []Deed{{"it was refused as it is; see why, delete it and create another one", "kubectl delete datastoremigration " + o.Name}}
	}
	return nil
}

func texts(list any) []string {
	items, _ := list.([]any)
	var all []string
	for _, item := range items {
		if text, ok := item.(string); ok {
			all = append(all, text)
		}
	}
	return all
}
