package datastoremigration

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	coordinationv1 "k8s.io/api/coordination/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/controllers/check"
	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/resources/apierrors"
)

// servers asks each API server by itself: one that hangs knows nothing of a lock or of a CRD.
type servers struct {
	cluster

	config    *rest.Config
	elsewhere bool
	direct    directClients
}

const (
	// addressesCheck and reachedCheck are the ids of the checks, by which a person waives them.
	addressesCheck = "api-servers"
	reachedCheck   = "api-servers-reached"

	// kubernetesService is the Service of the API servers, and the name of its EndpointSlice.
	kubernetesService = "kubernetes"
	// servedName is in the certificate of every API server.
	servedName = "kubernetes.default.svc"
	// identityLabel is on the Leases by which API servers say that they are there, in kube-system.
	identityLabel, identityOfServers = "apiserver.kubernetes.io/identity", "kube-apiserver"

	// serverAnswers is how long an API server may take for what it is asked at a time.
	serverAnswers = 5 * time.Second
	serverPoll    = time.Second

	// Lists of the API servers, by resource version. For the newest an API server may wait a tenth of a second until its
	// cache has seen our own writes of other kinds.
	newest, cached = "", "0"
)

func apiServersRights() []rbacv1.PolicyRule {
	return grants(rule("get", discoveryv1.GroupName, "endpointslices", kubernetesService), rule("list", coordinationv1.GroupName, "leases"))
}

// knownServers is what the cluster says of its API servers.
type knownServers struct {
	// addresses are host and port of each, sorted.
	addresses []string
	// identities is how many Leases of API servers have not expired.
	identities int
}

// unclear is why there may be API servers that cannot be asked; empty where there are none. The only one
// needs no address: every connection leads to it.
func (k knownServers) unclear() string {
	switch n := len(k.addresses); {
	case k.identities == 0:
		return "no Lease in kube-system with the label " + identityLabel + " says how many API servers there are"
	case k.identities == 1 && n == 0, n >= k.identities:
		return ""
	default:
		return fmt.Sprintf("%d API servers have a Lease in kube-system, and EndpointSlice default/%s lists %d addresses (%v): the others cannot be asked whether they refuse writes", k.identities, kubernetesService, n, k.addresses)
	}
}

// serversOf reads what the two say. A Lease counts until it expires, an hour after its server was seen last: one that
// hangs renews it no more.
func serversOf(slice *discoveryv1.EndpointSlice, leases []coordinationv1.Lease, now time.Time) (k knownServers) {
	for _, endpoint := range slice.Endpoints {
		for _, address := range endpoint.Addresses {
			for _, port := range slice.Ports {
				if port.Port != nil {
					k.addresses = append(k.addresses, net.JoinHostPort(address, strconv.Itoa(int(*port.Port))))
				}
			}
		}
	}
	slices.Sort(k.addresses)
	k.addresses = slices.Compact(k.addresses)
	for _, lease := range leases {
		if spec := lease.Spec; spec.RenewTime != nil && spec.LeaseDurationSeconds != nil &&
			now.Before(spec.RenewTime.Add(time.Duration(*spec.LeaseDurationSeconds)*time.Second)) {
			k.identities++
		}
	}
	return k
}

func (a *servers) knownServers(ctx context.Context, now time.Time, version string) (knownServers, error) {
	slice, leases := &discoveryv1.EndpointSlice{}, &coordinationv1.LeaseList{}
	group, both := errgroup.WithContext(ctx)
	group.Go(func() error {
		err := a.client.Get(both, types.NamespacedName{Namespace: metav1.NamespaceDefault, Name: kubernetesService}, slice)
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("read the addresses of the API servers, EndpointSlice default/%s: %w", kubernetesService, err)
		}
		return nil
	})
	group.Go(func() error {
		if err := a.client.List(both, leases, client.InNamespace(metav1.NamespaceSystem), client.MatchingLabels{identityLabel: identityOfServers},
			&client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: version}}); err != nil {
			return fmt.Errorf("list the Leases of the API servers in kube-system: %w", err)
		}
		return nil
	})
	err := group.Wait()
	return serversOf(slice, leases.Items, now), err
}

// apiServer is one API server, asked by itself.
type apiServer struct {
	// address is empty where it is whichever our connection leads to.
	address string
	client  client.Client
}

func (a apiServer) name() string {
	if a.address == "" {
		return "the API server"
	}
	return "API server " + a.address
}

// config reaches the same server as cfg does, by itself.
func (a apiServer) config(cfg *rest.Config) *rest.Config {
	if a.address == "" {
		return cfg
	}
	cfg = rest.CopyConfig(cfg)
	cfg.Host, cfg.ServerName = "https://"+a.address, servedName
	return cfg
}

// servers are all API servers. What a person has waived is not waited for.
func (a *servers) servers(ctx context.Context, dm *migration, now time.Time, version string) ([]apiServer, error) {
	ours := []apiServer{{client: a.client}}
	if a.config == nil || isWaived(dm, reachedCheck) {
		return ours, nil
	}
	known, err := a.knownServers(ctx, now, version)
	if err != nil {
		return nil, err
	}
	if why := known.unclear(); why != "" && !isWaived(dm, addressesCheck) {
		return nil, &fsm.WaitError{After: serverPoll, Message: "not every API server can be asked: " + why}
	}
	if len(known.addresses) == 0 {
		return ours, nil
	}
	all := make([]apiServer, len(known.addresses))
	for i, address := range known.addresses {
		if all[i], err = a.direct.to(a.config, address, a.client); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// eachServer does the same at every API server at the same time, and answers which they are by a list of that version.
// One that does not answer is waited for.
func (a *servers) eachServer(ctx context.Context, sc *scope, version string, do func(context.Context, apiServer) error) ([]apiServer, error) {
	all, err := a.servers(ctx, sc.Object, sc.Clock.Now(), version)
	if err != nil {
		return nil, err
	}
	group, others := errgroup.WithContext(ctx)
	for _, server := range all {
		group.Go(func() error { return askServer(others, server, do) })
	}
	err = group.Wait()
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return all, err
}

// sameServers compares by addresses.
func sameServers(a, b []apiServer) bool {
	return slices.EqualFunc(a, b, func(a, b apiServer) bool { return a.address == b.address })
}

func askServer(ctx context.Context, server apiServer, do func(context.Context, apiServer) error) error {
	if server.address == "" {
		return do(ctx, server)
	}
	within, cancel := context.WithTimeout(ctx, serverAnswers)
	defer cancel()
	err := do(within, server)
	if isSilent(err) {
		return &fsm.WaitError{After: serverPoll, Message: fmt.Sprintf("waiting for %s, which does not answer: %v", server.name(), err)}
	}
	return err
}

// isSilent tells that an error is no answer of the server that was asked.
func isSilent(err error) bool {
	if err == nil || isWait(err) || errors.As(err, new(*fsm.TerminalError)) {
		return false
	}
	class := apierrors.Classify(err)
	// A handshake that fails has no class of its own.
	return apierrors.Retryable(class) || class == apierrors.Terminal && !errors.As(err, new(apierrs.APIStatus))
}

// directClients keep their connections: a handshake takes as long as several questions. The zero value is
// ready for use, from several goroutines.
type directClients struct {
	mu sync.Mutex
	by map[string]apiServer
}

// to reaches the API server at an address as cfg does, and knows the kinds that like knows.
func (d *directClients) to(cfg *rest.Config, address string, like client.Client) (apiServer, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if known, ok := d.by[address]; ok {
		return known, nil
	}
	c, err := client.New(apiServer{address: address}.config(cfg), client.Options{Scheme: like.Scheme(), Mapper: like.RESTMapper()})
	if err != nil {
		return apiServer{}, fmt.Errorf("make the client for API server %s: %w", address, err)
	}
	if d.by == nil {
		d.by = map[string]apiServer{}
	}
	d.by[address] = apiServer{address: address, client: c}
	return d.by[address], nil
}

// everyServer finds what would keep the migration from asking each API server whether it refuses writes.
func (a *servers) everyServer() []check.Check {
	const remedy = "a server that hangs at the lock, and cannot be asked, takes writes that v3 never gets"
	return []check.Check{
		{ID: addressesCheck, Title: "every API server has an address of its own", Waivable: true, Run: func(ctx context.Context) ([]check.Finding, error) {
			if a.config == nil {
				return nil, nil
			}
			known, err := a.knownServers(ctx, time.Now(), newest)
			if err != nil || known.unclear() == "" {
				return nil, err
			}
			return []check.Finding{{Level: check.Failure, Message: known.unclear() + "; " + remedy,
				Remedy: "if a server is gone for good, delete its Lease; if one address is that of a load balancer, let the API servers advertise their own (--advertise-address)"}}, nil
		}},
		{ID: reachedCheck, Title: "every API server can be asked by itself", Waivable: true, Run: a.unreached},
	}
}

func (a *servers) unreached(ctx context.Context) ([]check.Finding, error) {
	if a.config == nil {
		return nil, nil
	}
	known, err := a.knownServers(ctx, time.Now(), newest)
	if err != nil {
		return nil, err
	}
	silent := make([]error, len(known.addresses))
	var group errgroup.Group
	for i, address := range known.addresses {
		group.Go(func() error {
			server, err := a.direct.to(a.config, address, a.client)
			if err != nil {
				return err
			}
			silent[i] = askServer(ctx, server, func(ctx context.Context, server apiServer) error {
				_, err := readLock(ctx, server.client, a.registry.Lock().V1GVK())
				return err
			})
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	var findings []check.Finding
	for i, err := range silent {
		if !isWait(err) {
			continue // what it answers is another check's
		}
		f := check.Finding{Level: check.Failure, Message: fmt.Sprintf("API server %s: %v", known.addresses[i], err),
			Remedy: "repair it, or let this account's pods reach that address"}
		if a.elsewhere {
			f.Level, f.Remedy = check.Warning, "only the manager has to reach it: kubectl phasegate status says when it cannot"
		}
		findings = append(findings, f)
	}
	return findings, nil
}
