package leaderguard

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"

	"github.com/phasegate/phasegate/resources/apierrors"
)

// server answers every request with a lease; code is that of its answers to writes.
func server(t *testing.T, code *int) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if req.Method != http.MethodGet {
			w.WriteHeader(*code)
		}
		_, _ = w.Write([]byte(`{"kind":"Lease","apiVersion":"coordination.k8s.io/v1","metadata":{"name":"l"}}`))
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// The election's client is client-go's own here, so that a renewal is what it sends.
func TestWhoMayWrite(t *testing.T) {
	type steps = []string
	cases := map[string]struct {
		why   string
		steps steps
		want  apierrors.Class
	}{
		"never held": {why: "a standby reads, and who needs no lease writes"},
		"looked at":  {why: "to ask who leads is not to lead", steps: steps{"get"}},
		"held":       {why: "the leader writes", steps: steps{"acquire"}},
		"run out":    {why: "nobody knows whether another one leads by now", steps: steps{"acquire", "wait"}, want: apierrors.Unavailable},
		"asked when run out": {why: "a look at the lease does not bring it back", steps: steps{"acquire", "wait", "get"},
			want: apierrors.Unavailable},
		"refused":     {why: "a renewal that failed is none", steps: steps{"acquire", "wait", "refuse", "renew"}, want: apierrors.Unavailable},
		"renewed":     {why: "late, but before anybody else took it", steps: steps{"acquire", "wait", "renew"}},
		"given up":    {why: "the next one leads at once, not a lease duration later", steps: steps{"acquire", "release"}, want: apierrors.Unavailable},
		"not let go":  {why: "the server may have taken it, though the answer says otherwise", steps: steps{"acquire", "refuse", "release"}, want: apierrors.Unavailable},
		"taken again": {why: "it leads again", steps: steps{"acquire", "release", "acquire"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			code := http.StatusOK
			l := New(time.Hour)
			config := &rest.Config{Host: server(t, &code)}
			election := rest.CopyConfig(config)
			election.Wrap(l.Renewals)
			leases := coordinationclient.NewForConfigOrDie(election).Leases("ns")
			for _, step := range c.steps {
				do(t, leases, l, &code, step)
			}
			config.Dial = l.Dial
			client, err := rest.HTTPClientFor(config)
			if err != nil {
				t.Fatal(err)
			}
			answer, err := client.Post(config.Host+"/write", "text/plain", strings.NewReader("x"))
			if err == nil {
				_ = answer.Body.Close()
			}
			if diff := cmp.Diff(c.want, apierrors.Classify(err)); diff != "" {
				t.Errorf("%s: %v (-want +got):\n%s", c.why, err, diff)
			}
		})
	}
}

func do(t *testing.T, leases coordinationclient.LeaseInterface, l *Lease, code *int, step string) {
	t.Helper()
	me, nobody := "me", ""
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "l"}, Spec: coordinationv1.LeaseSpec{HolderIdentity: &me}}
	var err error
	switch step {
	case "get":
		_, err = leases.Get(t.Context(), "l", metav1.GetOptions{})
	case "acquire":
		_, err = leases.Create(t.Context(), lease, metav1.CreateOptions{})
	case "renew":
		_, err = leases.Update(t.Context(), lease, metav1.UpdateOptions{})
	case "release":
		lease.Spec.HolderIdentity = &nobody
		_, err = leases.Update(t.Context(), lease, metav1.UpdateOptions{})
	case "refuse":
		*code = http.StatusConflict
	case "wait":
		old := l.renewed.Load().Add(-l.worth)
		l.renewed.Store(&old)
	}
	if (err != nil) != (*code == http.StatusConflict && step != "refuse" && step != "get") {
		t.Fatalf("%s: %v", step, err)
	}
}

type answersLate time.Duration

func (late answersLate) RoundTrip(*http.Request) (*http.Response, error) {
	time.Sleep(time.Duration(late))
	return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
}

// Others count from when the API server has stored a renewal, which may be right after it was sent.
func TestALeaseCountsFromWhenItsRenewalWasSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(10 * time.Second)
		body := `{"kind":"Lease","apiVersion":"coordination.k8s.io/v1","spec":{"holderIdentity":"me"}}`
		renewal := httptest.NewRequestWithContext(t.Context(), http.MethodPut, "/apis/coordination.k8s.io/v1/namespaces/ns/leases/l", strings.NewReader(body))
		renewal.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(body)), nil }
		if _, err := l.Renewals(answersLate(8 * time.Second)).RoundTrip(renewal); err != nil {
			t.Fatal(err)
		}
		if err := l.lost(); err != nil {
			t.Errorf("8 s after it was sent: %v", err)
		}
		time.Sleep(2 * time.Second)
		if l.lost() == nil {
			t.Error("10 s after it was sent, 2 s after its answer, the lease is still relied on")
		}
	})
}

// A connection that was open when the lease ran out is worth as little as a new one.
func TestOpenConnectionIsCut(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	l := New(time.Hour)
	c, err := l.Dial(context.Background(), "tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Write([]byte("before")); err != nil {
		t.Fatal(err)
	}
	past := time.Now().Add(-time.Hour)
	l.renewed.Store(&past)
	if n, err := c.Write([]byte("after")); n != 0 || apierrors.Classify(err) != apierrors.Unavailable {
		t.Errorf("wrote %d bytes, error %v", n, err)
	}
	if _, err := c.Read(make([]byte, 1)); err == nil {
		t.Error("the connection is still open")
	}
}
