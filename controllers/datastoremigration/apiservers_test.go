package datastoremigration

import (
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/controllers/check"
	"github.com/phasegate/phasegate/controllers/datastoremigration/policies"
	"github.com/phasegate/phasegate/resources"
)

func serverLease(name string, renewed time.Time) coordinationv1.Lease {
	return coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: name, Labels: map[string]string{identityLabel: identityOfServers}},
		Spec:       coordinationv1.LeaseSpec{RenewTime: &metav1.MicroTime{Time: renewed}, LeaseDurationSeconds: new(int32(3600))},
	}
}

func serverSlice(ports []int32, addresses ...string) *discoveryv1.EndpointSlice {
	slice := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: kubernetesService}}
	for _, address := range addresses {
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{address}})
	}
	for _, port := range ports {
		slice.Ports = append(slice.Ports, discoveryv1.EndpointPort{Port: &port})
	}
	return slice
}

func TestUnclearServers(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	lease := func(ago time.Duration) coordinationv1.Lease { return serverLease("any", now.Add(-ago)) }
	cases := map[string]struct {
		why       string
		addresses []string
		leases    []coordinationv1.Lease
		want      string // a part; empty: all can be asked
	}{
		"three of three": {why: "as kubeadm does", addresses: []string{"10.0.0.1", "10.0.0.2", "10.0.0.3"},
			leases: []coordinationv1.Lease{lease(time.Second), lease(0), lease(time.Second)}},
		"one without an address": {why: "every connection leads to it", leases: []coordinationv1.Lease{lease(0)}},
		"a load balancer":        {why: "it leads to any of three", addresses: []string{"10.0.0.1"}, leases: []coordinationv1.Lease{lease(0), lease(0), lease(0)}, want: "3 API servers have a Lease in kube-system, and EndpointSlice default/kubernetes lists 1 addresses ([10.0.0.1:6443])"},
		"one that hangs":         {why: "it renews no Lease, and its address is taken away", addresses: []string{"10.0.0.1"}, leases: []coordinationv1.Lease{lease(0), lease(time.Minute)}, want: "2 API servers"},
		"one that is long gone":  {why: "its Lease has expired", addresses: []string{"10.0.0.1"}, leases: []coordinationv1.Lease{lease(0), lease(2 * time.Hour)}},
		"nobody tells":           {why: "one address may lead to many", addresses: []string{"10.0.0.1"}, want: "no Lease in kube-system"},
		"two without addresses":  {why: "a connection leads to one of them", leases: []coordinationv1.Lease{lease(0), lease(0)}, want: "2 API servers"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got := serversOf(serverSlice([]int32{6443}, c.addresses...), c.leases, now).unclear()
			if c.want == "" && got != "" || !strings.Contains(got, c.want) {
				t.Errorf("%s: it says %q, want %q", c.why, got, c.want)
			}
		})
	}
}

// The proof of the fence is that of every API server: one that hangs, or takes writes, is waited for.
func TestEveryServerIsAsked(t *testing.T) {
	const reason = "v1 is closed"
	refuses := answers(http.StatusForbidden, metav1.Status{Status: metav1.StatusFailure, Reason: metav1.StatusReasonForbidden, Message: reason})
	defer refuses.Close()
	overloaded := answers(http.StatusServiceUnavailable, metav1.Status{Status: metav1.StatusFailure, Reason: metav1.StatusReasonServiceUnavailable})
	defer overloaded.Close()
	accepts := answers(http.StatusOK, metav1.Status{Status: metav1.StatusSuccess})
	defer accepts.Close()
	away := answers(http.StatusOK, metav1.Status{})
	away.Close()
	cases := map[string]struct {
		why    string
		second *httptest.Server
		waive  string
		leases int
		want   string // what is waited for; empty: proved
	}{
		"both refuse":        {why: "nobody can write", second: refuses, leases: 1},
		"one takes writes":   {why: "it has not heard of the lock", second: accepts, leases: 2, want: "does not work yet at API server " + addressOf(t, accepts)},
		"one is overloaded":  {why: "it is no answer", second: overloaded, leases: 2, want: "waiting for API server " + addressOf(t, overloaded)},
		"one is away":        {why: "it may come back with writes in it", second: away, leases: 2, want: "waiting for API server " + addressOf(t, away)},
		"one is not listed":  {why: "it cannot be asked", second: refuses, leases: 3, want: "not every API server can be asked: 3 API servers"},
		"that is waived":     {why: "a person knows better", second: refuses, leases: 3, waive: addressesCheck + "@u"},
		"the others, waived": {why: "only the list is", second: accepts, leases: 3, waive: addressesCheck + "@u", want: "does not work yet"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			s := withServers(false, c.leases, port(t, refuses), port(t, c.second))
			sc := &scope{Object: &migration{ObjectMeta: metav1.ObjectMeta{UID: "u", Annotations: map[string]string{migrationv1.AnnotationWaive: c.waive}}}, Clock: clock.RealClock{}}
			got := ""
			if _, err := s.fence.proveFence(t.Context(), sc, newest, "mark", reason, 1); isWait(err) {
				got = err.Error()
			} else if err != nil {
				t.Fatal(err)
			}
			if c.want == "" && got != "" || !strings.Contains(got, c.want) {
				t.Errorf("%s: it waits for %q, want %q", c.why, got, c.want)
			}
		})
	}
}

// answers is an API server that answers everything in the same way.
func answers(code int, status metav1.Status) *httptest.Server {
	return httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		status.APIVersion, status.Kind, status.Code = "v1", "Status", int32(code)
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		_ = json.NewEncoder(w).Encode(status)
	}))
}

// An API server that was not asked when v1 was closed may have let in a write since: that it refuses now is not enough.
func TestStillClosedAtTheSameServers(t *testing.T) {
	dm := &migration{ObjectMeta: metav1.ObjectMeta{UID: "u"}}
	refuses := answers(http.StatusForbidden, metav1.Status{Status: metav1.StatusFailure, Reason: metav1.StatusReasonForbidden, Message: policies.LockMessage(dm)})
	defer refuses.Close()
	for name, c := range map[string]struct {
		closed []string
		waits  bool
	}{
		"the same":            {closed: []string{addressOf(t, refuses)}},
		"one went":            {closed: []string{"127.0.0.1:1", addressOf(t, refuses)}, waits: true},
		"another":             {closed: []string{"127.0.0.1:1"}, waits: true},
		"v1 was never closed": {},
	} {
		t.Run(name, func(t *testing.T) {
			s := withServers(false, 1, port(t, refuses))
			var closed []apiServer
			for _, address := range c.closed {
				closed = append(closed, apiServer{address: address})
			}
			err := s.v1Lock.stillClosed(t.Context(), &scope{Object: dm, Clock: clock.RealClock{}}, closed, time.Second)
			if err != nil && !isWait(err) || isWait(err) != c.waits {
				t.Errorf("it says %v, want a wait: %t", err, c.waits)
			}
		})
	}
}

// withServers has so many Leases of API servers, which listen on these ports.
func withServers(elsewhere bool, leases int, ports ...int32) *effects {
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(resources.Default().Lock().V1GVK(), meta.RESTScopeRoot)
	objects := []client.Object{lockObject(false), serverSlice(ports, "127.0.0.1")}
	for i := range leases {
		objects = append(objects, new(serverLease("apiserver-"+strconv.Itoa(i), time.Now())))
	}
	return newEffects(newFake().WithRESTMapper(mapper).WithObjects(objects...).Build(),
		Settings{Registry: resources.Default(), Config: &rest.Config{TLSClientConfig: rest.TLSClientConfig{Insecure: true}}, Elsewhere: elsewhere})
}

func addressOf(t *testing.T, server *httptest.Server) string {
	t.Helper()
	address, err := url.Parse(server.URL)
	must(t, err)
	return address.Host
}

func port(t *testing.T, server *httptest.Server) int32 {
	t.Helper()
	_, text, err := net.SplitHostPort(addressOf(t, server))
	must(t, err)
	n, err := strconv.ParseInt(text, 10, 32)
	must(t, err)
	return int32(n)
}

// What cannot be asked is said before anything begins, and a person decides.
func TestServersThatCannotBeAskedAreNamed(t *testing.T) {
	for elsewhere, level := range map[bool]check.Level{false: check.Failure, true: check.Warning} {
		s := withServers(elsewhere, 2, 1)
		for _, a := range check.Ask(t.Context(), s.servers.everyServer()) {
			want := map[string]check.Level{addressesCheck: check.Failure, reachedCheck: level}[a.ID]
			if a.Err != nil || !a.Waivable || len(a.Findings) != 1 || a.Findings[0].Level != want {
				t.Errorf("check %s, asked from elsewhere: %t, answers %v, %v, want one %s that may be waived", a.ID, elsewhere, a.Findings, a.Err, want)
			}
		}
	}
}
