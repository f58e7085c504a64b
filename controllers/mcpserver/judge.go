package mcpserver

import (
	"cmp"
	"fmt"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/phasegate/phasegate/api/toolhive/v1beta1"
	"github.com/phasegate/phasegate/controllers/runner"
)

// maxWaitingFor bounds the sentence, in bytes: messages of other controllers and
// of containers are in it.
const maxWaitingFor = 480

// verdict is what a workload comes to.
type verdict struct {
	// wanted and readyReplicas count proxies.
	wanted, readyReplicas int32
	current, ready        bool
	failing               bool
	// missing: there is no Deployment.
	missing bool
	// waitingFor names an object and what it lacks; empty when nothing is missing.
	waitingFor string
}

// judge is pure. It believes the counts of the controllers, which leave out pods
// on their way out, and reads pods for causes only.
func judge(w workload) verdict {
	wanted := ptr.Deref(w.server.Spec.Replicas, 1)
	if w.deployment != nil {
		wanted = ptr.Deref(w.deployment.Spec.Replicas, 1)
	}
	v := verdict{wanted: wanted, missing: w.deployment == nil}
	if w.deployment != nil {
		v.readyReplicas = min(w.deployment.Status.ReadyReplicas, wanted)
	}
	if wanted == 0 {
		return v
	}
	proxy, backend := proxyPart(w), backendPart(w)
	v.current = proxy.behind == "" && backend.behind == ""
	v.ready = v.current && proxy.short == "" && backend.short == ""
	v.failing = proxy.failing() || backend.failing()
	v.waitingFor = runner.Cut(mainCause(proxy, backend), maxWaitingFor)
	return v
}

// part is the proxy or the backend.
type part struct {
	title string
	// behind says what keeps it from being of the newest template everywhere, short
	// what keeps it from being ready; empty: nothing does.
	behind, short string
	ready         int32
	cause         trouble
}

// failing: none of its pods serves, and one of them will not by itself.
func (p part) failing() bool { return p.ready == 0 && p.cause.failing }

func (p part) lacks() string {
	lack := cmp.Or(p.behind, p.short)
	if lack == "" {
		return ""
	}
	if p.cause.text == "" {
		return p.title + ": " + lack
	}
	return p.title + ": " + lack + ": " + p.cause.text
}

// mainCause is the sentence that helps most: of what fails, else of what has a
// cause, else of what comes first.
func mainCause(parts ...part) string {
	for _, tells := range []func(part) bool{
		part.failing,
		func(p part) bool { return p.cause.text != "" },
		func(part) bool { return true },
	} {
		for _, p := range parts {
			if text := p.lacks(); text != "" && tells(p) {
				return text
			}
		}
	}
	return ""
}

func proxyPart(w workload) part {
	d := w.deployment
	p := part{title: "Deployment " + w.server.Name}
	if d == nil {
		p.behind = "it is not there"
		return p
	}
	counts := counts{
		wanted: ptr.Deref(d.Spec.Replicas, 1), all: d.Status.Replicas, updated: d.Status.UpdatedReplicas, ready: d.Status.ReadyReplicas,
		observed: d.Status.ObservedGeneration >= d.Generation,
	}
	p.ready, p.behind, p.short = counts.ready, counts.behind(), counts.short()
	if d.Spec.Paused && p.behind != "" {
		p.behind = "it is paused (spec.paused), so that its newest template reaches no pod"
	}
	p.cause = worst(w.proxies, &d.Spec.Template)
	for _, c := range d.Status.Conditions {
		if c.Type == appsv1.DeploymentReplicaFailure && c.Status == corev1.ConditionTrue && p.cause.text == "" {
			p.cause = trouble{text: "no pod can be created: " + line(c.Message), failing: counts.observed}
		}
	}
	return p
}

func backendPart(w workload) part {
	set := w.statefulSet
	p := part{title: "StatefulSet " + w.server.Name}
	if w.taken {
		p.behind, p.cause.failing = "it belongs to another owner: delete or rename it, or choose another name", true
		return p
	}
	if set == nil {
		p.behind = "it is not there; a proxy makes it"
		return p
	}
	counts := counts{
		wanted: ptr.Deref(set.Spec.Replicas, 1), all: set.Status.Replicas, updated: set.Status.UpdatedReplicas, ready: set.Status.ReadyReplicas,
		observed: set.Status.ObservedGeneration >= set.Generation,
	}
	p.ready, p.behind, p.short = counts.ready, counts.behind(), counts.short()
	if w.deployment != nil {
		wants, has := generationOn(w.deployment.Spec.Template.Annotations), generationOn(set.Annotations, set.Spec.Template.Annotations)
		if has < wants {
			p.behind = fmt.Sprintf("it is of generation %d, the proxy of %d", has, wants)
		}
	}
	if counts.wanted == 0 && p.short == "" {
		p.short = "no pod is wanted: set spec.backendReplicas to 1 or more"
	}
	p.cause = worst(w.backends, &set.Spec.Template)
	return p
}

// counts are what a controller of pods says about them.
type counts struct {
	wanted, all, updated, ready int32
	// observed: the controller has seen the newest template.
	observed bool
}

func (c counts) behind() string {
	switch {
	case !c.observed:
		return "its controller has not seen the newest template yet"
	case c.updated < c.wanted:
		return fmt.Sprintf("%d of %d pods are of the newest template", c.updated, c.wanted)
	case c.all > c.updated:
		return fmt.Sprintf("%d pods of an older template are left", c.all-c.updated)
	}
	return ""
}

func (c counts) short() string {
	if c.ready < c.wanted {
		return fmt.Sprintf("%d of %d pods are ready", c.ready, c.wanted)
	}
	return ""
}

// generationOn is the greatest stamp there; 0 if there is none that can be read.
func generationOn(annotations ...map[string]string) (greatest int64) {
	for _, a := range annotations {
		if stamp, err := strconv.ParseInt(a[v1beta1.AnnotationGeneration], 10, 64); err == nil {
			greatest = max(greatest, stamp)
		}
	}
	return greatest
}
