package freeze_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phasegate/phasegate/api/toolhive/v1beta1"
	"github.com/phasegate/phasegate/controllers/mcpserver/freeze"
)

func TestOverride(t *testing.T) {
	type result struct {
		Generation int64
		Warning    string
	}
	for name, test := range map[string]struct {
		why  string
		env  string
		want result
	}{
		"env unset":   {"a Deployment of an older operator does not project it", "", result{Generation: 5}},
		"valid":       {"the pod knows better than the file which generation it is", "3", result{Generation: 3}},
		"zero":        {"0 is how the gate is switched off", "0", result{Generation: 0}},
		"unparsable":  {"a typing error must not stop the server", "seven", result{5, `THV_MCPSERVER_GENERATION="seven" is not a generation: using 5, the one of the file`}},
		"negative":    {"generations begin at 1", "-2", result{5, `THV_MCPSERVER_GENERATION="-2" is not a generation: using 5, the one of the file`}},
		"not a int64": {"too great for the type is unparsable, too", "9223372036854775808", result{5, `THV_MCPSERVER_GENERATION="9223372036854775808" is not a generation: using 5, the one of the file`}},
	} {
		t.Run(name, func(t *testing.T) {
			var got result
			got.Generation, got.Warning = freeze.Override(5, test.env)
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", test.why, diff)
			}
		})
	}
}

// statefulSet bears the generations given; an empty text is no annotation.
func statefulSet(onObject, onTemplate string) *appsv1.StatefulSet {
	annotations := func(text string) map[string]string {
		if text == "" {
			return nil
		}
		return map[string]string{v1beta1.AnnotationGeneration: text}
	}
	return &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: "fetch", Annotations: annotations(onObject)},
		Spec:       appsv1.StatefulSetSpec{Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Annotations: annotations(onTemplate)}}},
	}
}

func TestSkip(t *testing.T) {
	const newer = "StatefulSet fetch is of generation 6, this proxy of 5"
	unparsable := func(text string) string {
		return `StatefulSet fetch has toolhive.stacklok.dev/mcpserver-generation: "` + text + `", which is not a generation: passed over`
	}
	type result struct {
		Skip bool
		Why  string
	}
	for name, test := range map[string]struct {
		why   string
		ours  int64
		stale bool
		live  *appsv1.StatefulSet
		want  result
	}{
		"no_existing_sts":                         {"there is nothing to put back", 5, false, nil, result{}},
		"existing_sts_no_annotation":              {"made before there were generations: ours is newer", 5, false, statefulSet("", ""), result{}},
		"existing_sts_older_annotation":           {"a rollout goes on", 5, false, statefulSet("", "4"), result{}},
		"existing_sts_equal_annotation":           {"the same proxy applies again", 5, false, statefulSet("", "5"), result{}},
		"existing_sts_newer_annotation":           {"the newer proxy has been here", 5, false, statefulSet("", "6"), result{true, newer}},
		"existing_sts_unparsable_annotation":      {"somebody's edit must not stop all proxies", 5, false, statefulSet("", "six"), result{Why: unparsable("six")}},
		"zero_options_generation":                 {"the gate is off", 0, false, statefulSet("6", "6"), result{}},
		"zero_options_generation_no_existing_sts": {"the gate is off", 0, false, nil, result{}},

		"newer on the object only":         {"the last apply changed replicas, not pods", 5, false, statefulSet("6", "4"), result{true, newer}},
		"newer on the template only":       {"the peer writes the template only", 5, false, statefulSet("4", "6"), result{true, newer}},
		"unparsable beside newer":          {"one readable number is enough", 5, false, statefulSet("x", "6"), result{true, newer}},
		"unparsable beside older":          {"applies, and says what it met", 5, false, statefulSet("4", "x"), result{Why: unparsable("x")}},
		"stale, newer":                     {"as without stale", 5, true, statefulSet("6", "4"), result{true, newer}},
		"stale, equal":                     {"an old pod with a new file has nothing new to say", 5, true, statefulSet("5", "3"), result{true, "StatefulSet fetch is of generation 5, as is this proxy, whose file is newer"}},
		"stale, older":                     {"ours was never applied: better mixed than too old", 5, true, statefulSet("4", "4"), result{}},
		"stale, no annotation":             {"nobody of a generation has been here", 5, true, statefulSet("", ""), result{}},
		"stale, no StatefulSet":            {"somebody has to make it", 5, true, nil, result{}},
		"stale, the gate is off":           {"off is off", 0, true, statefulSet("6", "6"), result{}},
		"negative generation of the proxy": {"never written by the operator: no generation", -1, false, statefulSet("6", "6"), result{}},
	} {
		t.Run(name, func(t *testing.T) {
			var got result
			got.Skip, got.Why = freeze.Skip(test.ours, test.stale, test.live)
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", test.why, diff)
			}
		})
	}
}

// podTemplate has the content image, and memory as it was written.
func podTemplate(image, memory, stamp string, others ...string) *corev1.PodTemplateSpec {
	p := &corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "fetch"}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "mcp", Image: image, Resources: corev1.ResourceRequirements{
			Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(memory)},
		}}}},
	}
	for _, pair := range append(others, v1beta1.AnnotationGeneration+"="+stamp) {
		if key, value, _ := strings.Cut(pair, "="); value != "" {
			metav1.SetMetaDataAnnotation(&p.ObjectMeta, key, value)
		}
	}
	return p
}

func TestStamp(t *testing.T) {
	for name, test := range map[string]struct {
		why            string
		desired, owned *corev1.PodTemplateSpec
		want           int64
	}{
		"none yet":                 {"the first apply", podTemplate("a", "1Gi", ""), nil, 7},
		"nothing changed":          {"replicas, labels or Services changed: pods stay", podTemplate("a", "1Gi", ""), podTemplate("a", "1Gi", "4"), 4},
		"image changed":            {"new content is of the present generation", podTemplate("b", "1Gi", ""), podTemplate("a", "1Gi", "4"), 7},
		"annotation changed":       {"metadata of the template is content, too", podTemplate("a", "1Gi", "", "sum=2"), podTemplate("a", "1Gi", "4", "sum=1"), 7},
		"annotation gone":          {"so is what is wanted no longer", podTemplate("a", "1Gi", ""), podTemplate("a", "1Gi", "4", "sum=1"), 7},
		"quantity written anew":    {"the server stores 1Gi for 1024Mi", podTemplate("a", "1024Mi", ""), podTemplate("a", "1Gi", "4"), 4},
		"no stamp so far":          {"an object of before gets one", podTemplate("a", "1Gi", ""), podTemplate("a", "1Gi", ""), 7},
		"unreadable stamp so far":  {"somebody's edit is repaired", podTemplate("a", "1Gi", ""), podTemplate("a", "1Gi", "four"), 7},
		"desired is stamped":       {"a stamp in what is desired counts for nothing", podTemplate("a", "1Gi", "9"), podTemplate("a", "1Gi", "4"), 4},
		"goes back to an old one":  {"a rollback of content is a change", podTemplate("a", "1Gi", ""), podTemplate("b", "1Gi", "4"), 7},
		"only other's annotations": {"what we do not own is not in owned", podTemplate("a", "1Gi", "", "sum=1"), podTemplate("a", "1Gi", "4", "sum=1"), 4},
	} {
		t.Run(name, func(t *testing.T) {
			before := []any{test.desired.DeepCopy(), test.owned.DeepCopy()}
			if got := freeze.Stamp(test.desired, test.owned, 7); got != test.want {
				t.Errorf("Stamp = %d, want %d: %s", got, test.want, test.why)
			}
			if diff := cmp.Diff(before, []any{test.desired, test.owned}); diff != "" {
				t.Errorf("the arguments changed (-before +after):\n%s", diff)
			}
		})
	}
}
