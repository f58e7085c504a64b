package statusview

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Commands are typed as they are printed, and their names come from a status, which others may be able to write.
func TestRolloutCommands(t *testing.T) {
	list := func(texts ...any) []any { return texts }
	for name, c := range map[string]struct {
		why    string
		result map[string]any
		want   []string
	}{
		"all": {"what is changed first comes first: the variable rolls calico-node out, with the new template",
			map[string]any{"namespace": "kube-system", "unset": list("daemonset/calico-node"), "configMap": "calico-config", "restart": list("daemonset/calico-node"), "rolling": list("deployment/calico-typha")},
			[]string{
				`kubectl -n kube-system get configmap calico-config -o yaml | sed 's|"type": *"calico",|&"calico_api_group": "__CALICO_API_GROUP__",|' | kubectl replace -f -`,
				"kubectl -n kube-system set env daemonset/calico-node CALICO_API_GROUP=projectcalico.org/v3",
				"kubectl -n kube-system rollout restart daemonset/calico-node",
				"kubectl -n kube-system rollout status deployment/calico-typha",
			}},
		"nothing": {"nothing is known", nil, nil},
		"forged": {"no name holds a command",
			map[string]any{"namespace": "a; reboot", "unset": list("daemonset/a; reboot", 7), "configMap": "$(reboot)", "restart": list("x"), "rolling": list("`reboot`/x")}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, deed := range rollout(c.result) {
				got = append(got, deed.Command)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", c.why, diff)
			}
		})
	}
}
