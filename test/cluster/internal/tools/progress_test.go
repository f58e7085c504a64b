package tools

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// What go prints comes in parts, and what it complains of is not counted.
func TestProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var said strings.Builder
		p := &progress{to: &said, what: "etcd, kubectl", total: 40}
		stop := p.begin()
		step := func(compiled int, complaint ...string) {
			time.Sleep(10 * time.Second)
			for _, part := range append(complaint, strings.Repeat("k8s.io/api\n", compiled)) {
				if _, err := p.Write([]byte(part)); err != nil {
					t.Error(err)
				}
			}
		}
		step(1)
		step(9, "# k8s.io/api\n", "x.go:1:2: not that", " way\n")
		step(0)
		step(30)
		step(0, "last")
		stop()
		want := strings.Join([]string{
			"building etcd, kubectl for 2s, 0 of 40 packages compiled",
			"building etcd, kubectl for 17s, 1 of 40 packages compiled", // 1 of 40 says nothing of the other 39
			"building etcd, kubectl for 32s, 10 of 40 packages compiled, about 1m40s left",
			"building etcd, kubectl for 47s, linking",
			"etcd, kubectl: 50s", "",
		}, "\n")
		if diff := cmp.Diff(want, said.String()); diff != "" {
			t.Errorf("said (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff("# k8s.io/api\nx.go:1:2: not that way\nlast", p.rest.String()); diff != "" {
			t.Errorf("the rest (-want +got):\n%s", diff)
		}
	})
}

// go leaves out what is only the major version of a module.
func TestExecutable(t *testing.T) {
	got := map[string]string{}
	for _, p := range programs {
		got[p.name] = p.executable()
	}
	want := map[string]string{"etcd": "server", "kube-apiserver": "kube-apiserver", "kube-controller-manager": "kube-controller-manager",
		"kube-scheduler": "kube-scheduler", "kubectl": "kubectl", "fakenodes": "fakenodes", "helm": "helm"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
