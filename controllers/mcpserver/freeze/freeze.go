// Package freeze keeps an old proxy from putting an old server back. Every pod
// of a proxy bears the generation of the MCPServer that it was made for, and so
// does what it applies; who bears the smaller number gives way.
//
// It holds the decisions only, as pure functions. It knows no API server.
package freeze

import (
	"fmt"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"

	"github.com/phasegate/phasegate/api/toolhive/v1beta1"
)

// Override gives the generation of a proxy: that of its own pod, which is in the
// environment variable v1beta1.EnvGeneration, or that of its file if there is
// none. The file changes under a running pod, and a container that starts again
// would claim what its pod's image and arguments are too old for. A value that
// is no generation is passed over with a warning; 0 is one, and switches the
// gate off.
func Override(file int64, env string) (generation int64, warning string) {
	if env == "" {
		return file, ""
	}
	own, err := strconv.ParseInt(env, 10, 64)
	if err != nil || own < 0 {
		return file, fmt.Sprintf("%s=%q is not a generation: using %d, the one of the file", v1beta1.EnvGeneration, env, file)
	}
	return own, ""
}

// Skip tells whether a proxy of the generation ours must leave the live
// StatefulSet as it is, and why; with skip false, why is empty or a warning.
// live is nil if there is none. stale says that the proxy's file is newer than
// its pod: half of what it knows is from then, half is from now, so it also
// leaves a StatefulSet of its own generation alone. A proxy without a
// generation is never held back.
func Skip(ours int64, stale bool, live *appsv1.StatefulSet) (skip bool, why string) {
	if ours <= 0 || live == nil {
		return false, ""
	}
	theirs, known, warning := stampOf(live)
	switch {
	case known && theirs > ours:
		return true, fmt.Sprintf("StatefulSet %s is of generation %d, this proxy of %d", live.Name, theirs, ours)
	case known && stale && theirs == ours:
		return true, fmt.Sprintf("StatefulSet %s is of generation %d, as is this proxy, whose file is newer", live.Name, theirs)
	}
	return false, warning
}

// Stamp gives the generation to write into the pod template desired: the one at
// which its content changed last. owned is what the same writer applied before,
// nil if nothing; generation is the present one.
func Stamp(desired, owned *corev1.PodTemplateSpec, generation int64) int64 {
	if owned == nil {
		return generation
	}
	last, err := strconv.ParseInt(owned.Annotations[v1beta1.AnnotationGeneration], 10, 64)
	if err != nil || !apiequality.Semantic.DeepEqual(unstamped(desired), unstamped(owned)) {
		return generation
	}
	return last
}

// stampOf reads the greater of the generations on the StatefulSet and on its pod
// template. A text that is no number counts as none, with a warning.
func stampOf(live *appsv1.StatefulSet) (generation int64, known bool, warning string) {
	for _, annotations := range []map[string]string{live.Annotations, live.Spec.Template.Annotations} {
		text := annotations[v1beta1.AnnotationGeneration]
		if text == "" {
			continue
		}
		stamp, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			warning = fmt.Sprintf("StatefulSet %s has %s: %q, which is not a generation: passed over", live.Name, v1beta1.AnnotationGeneration, text)
			continue
		}
		if !known || stamp > generation {
			generation, known = stamp, true
		}
	}
	return generation, known, warning
}

func unstamped(t *corev1.PodTemplateSpec) *corev1.PodTemplateSpec {
	t = t.DeepCopy()
	delete(t.Annotations, v1beta1.AnnotationGeneration)
	return t
}
