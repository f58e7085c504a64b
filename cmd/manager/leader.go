package main

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/spf13/pflag"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/phasegate/phasegate/cmd/manager/internal/health"
	"github.com/phasegate/phasegate/cmd/manager/internal/leaderguard"
	"github.com/phasegate/phasegate/controllers/rbac"
)

// podNamespaceFile is there in every pod that has a token.
const podNamespaceFile = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

// leaderOptions say which lease makes a process the one that works.
type leaderOptions struct {
	elect               bool
	namespace, name     string
	lease, renew, retry time.Duration
}

func (o *leaderOptions) addFlags(f *pflag.FlagSet) {
	f.BoolVar(&o.elect, "leader-elect", false, "run only while holding the leader election lease")
	f.StringVar(&o.namespace, "leader-elect-namespace", "", "namespace of the lease; default: the pod's own")
	f.StringVar(&o.name, "leader-elect-lease-name", "phasegate-manager", "name of the lease; managers with other controllers need another name")
	f.DurationVar(&o.lease, "leader-elect-lease-duration", 15*time.Second, "time that others wait for a lease that is not renewed")
	f.DurationVar(&o.renew, "leader-elect-renew-deadline", 10*time.Second, "time that a leader tries to renew its lease before it exits")
	f.DurationVar(&o.retry, "leader-elect-retry-period", 2*time.Second, "pause between tries to get or renew the lease")
}

func (o *leaderOptions) validate() error {
	switch {
	case o.name == "":
		return errors.New("--leader-elect-lease-name: it is empty: name the lease")
	case o.retry <= 0:
		return fmt.Errorf("--leader-elect-retry-period: %s is no pause: use 1s or more", o.retry)
	case o.renew <= time.Duration(leaderelection.JitterFactor*float64(o.retry)):
		return fmt.Errorf("--leader-elect-renew-deadline: %s leaves no time for a second try: make it more than %.1f times --leader-elect-retry-period (%s)",
			o.renew, leaderelection.JitterFactor, o.retry)
	case o.lease <= o.renew:
		return fmt.Errorf("--leader-elect-lease-duration: after %s another manager would begin while this one still tries to renew: make it longer than --leader-elect-renew-deadline (%s)",
			o.lease, o.renew)
	}
	if _, err := os.Stat(podNamespaceFile); o.elect && o.namespace == "" && err != nil {
		return errors.New("--leader-elect-namespace: outside of a pod there is no namespace to default to: name that of the lease")
	}
	return nil
}

// installation names what the processes share that take turns; empty where they do not.
func (o *leaderOptions) installation() string {
	if !o.elect {
		return ""
	}
	namespace := o.namespace
	if namespace == "" {
		own, _ := os.ReadFile(podNamespaceFile) // validate has looked for it
		namespace = strings.TrimSpace(string(own))
	}
	return namespace + "/" + o.name
}

// needs is what the election must be allowed to do.
func (o *leaderOptions) needs() []rbac.Need {
	if !o.elect {
		return nil
	}
	needs := rbac.Flatten("leader election",
		rbac.Rule("create", coordinationv1.GroupName, "leases"), rbac.Rule("get update", coordinationv1.GroupName, "leases", o.name),
		rbac.Rule("create", "", "events"))
	for i := range needs {
		needs[i].Namespace = o.namespace
	}
	return needs
}

// configure asks for the lease over connections of its own, since a renewal must
// not queue behind the requests of a migration. Every try is a beat of the pulse.
// The connections for all else take no write once the lease was not renewed for a
// renew deadline: a process that was stopped, and goes on when another one leads, is
// a leader to itself for as long as that.
//
// The lease is given up when the process ends, so that a standby begins at once
// and not a lease duration later. That is safe: every write of ours is sent with a
// context that ends before the manager begins to wait for its controllers, and
// client-go sends nothing with one that has ended. So when the lease is given up
// nothing can be sent any more, not even by an action that does not end; what was
// under way has either arrived or not, which a successor bears as it bears a
// crash. The program ends right after.
func (o *leaderOptions) configure(m *manager.Options, cfg, work *rest.Config, pulse *health.Pulse) {
	own := rest.CopyConfig(cfg)
	if o.elect {
		held := leaderguard.New(o.renew)
		own.Wrap(held.Renewals)
		work.Dial = held.Dial
	}
	own.Wrap(func(next http.RoundTripper) http.RoundTripper { return beating{next, pulse} })
	m.LeaderElection, m.LeaderElectionReleaseOnCancel = o.elect, true
	m.LeaderElectionConfig = own
	m.LeaderElectionID, m.LeaderElectionNamespace = o.name, o.namespace
	m.LeaseDuration, m.RenewDeadline, m.RetryPeriod = &o.lease, &o.renew, &o.retry
}

// wedgedAfter is how long the election may be silent: it tries again every retry
// period, leading or not, and each try is given up after half the renew deadline.
func (o *leaderOptions) wedgedAfter() time.Duration { return 2 * o.lease }

// beating tells that somebody is at work, whatever comes of the request.
type beating struct {
	http.RoundTripper
	pulse *health.Pulse
}

func (b beating) RoundTrip(req *http.Request) (*http.Response, error) {
	b.pulse.Beat()
	return b.RoundTripper.RoundTrip(req)
}
