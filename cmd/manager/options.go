package main

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	kjson "sigs.k8s.io/json"

	"github.com/phasegate/phasegate/cmd/internal/checkup"
	"github.com/phasegate/phasegate/cmd/internal/release"
	"github.com/phasegate/phasegate/controllers/builtin"
	"github.com/phasegate/phasegate/controllers/datastoremigration"
	"github.com/phasegate/phasegate/controllers/mcpserver"
	"github.com/phasegate/phasegate/controllers/mcpserver/toolhive"
	"github.com/phasegate/phasegate/controllers/runner"
)

// none is the address of a server that is not wanted.
const none = "0"

type options struct {
	kubeconfig      string
	phasesDir       string
	kindsFile       string
	controllers     []string
	calicoNamespace string
	proxy           string
	proxyImage      string
	toolHiveImage   string
	toolHiveVersion string
	proxyResources  string
	httpHosts       []string
	httpPrivate     []string
	openShift       string
	workers         int
	externalCalls   int
	leader          leaderOptions
	metrics         metricsOptions
	probeAddress    string
	maxRequests     int
	storeQuota      resource.QuantityValue
	requestTimeout  time.Duration
	log             logOptions
	tracing         tracingOptions
	shutdownTimeout time.Duration

	// These are what validate makes of the flags.
	http        builtin.HTTP
	proxies     corev1.ResourceRequirements
	proxyRunner toolhive.Program
}

// addFlags defines every flag of the program and its subcommands.
func (o *options) addFlags(f *pflag.FlagSet) {
	f.StringVar(&o.kubeconfig, "kubeconfig", "", "path of the kubeconfig file; default: $KUBECONFIG, in-cluster, or ~/.kube/config")
	f.StringVar(&o.phasesDir, "phases-dir", "", "directory of machine files (*.yaml, *.yml), which replace or add to the compiled-in ones by name")
	f.StringVar(&o.kindsFile, "kinds-file", "", "kind registry file that replaces the compiled-in one")
	f.StringSliceVar(&o.controllers, "controllers", checkup.Controllers, "controllers to run; custom drives kinds that only have a machine file")
	f.StringVar(&o.calicoNamespace, "calico-namespace", "calico-system", "namespace of calico-node, calico-typha and calico-kube-controllers")
	f.StringVar(&o.proxy, "proxy", "", "program of the MCP servers' proxies: phasegate, or toolhive for ToolHive's proxyrunner, which enforces more; default: toolhive if --toolhive-proxy-image is set, else phasegate")
	f.StringVar(&o.proxyImage, "proxy-image", release.Current().Image("proxyrunner"), "image of the MCP servers' proxies")
	f.StringVar(&o.toolHiveImage, "toolhive-proxy-image", "", "image of ToolHive's proxyrunner, for --proxy=toolhive")
	f.StringVar(&o.toolHiveVersion, "toolhive-proxy-version", "", "version of ToolHive's proxyrunner, such as v0.63.0, if the tag of its image does not say it; fields that an older one ignores are refused, as with an unknown version")
	f.StringVar(&o.proxyResources, "proxy-resources", `{"requests":{"cpu":"50m","memory":"64Mi"},"limits":{"cpu":"1","memory":"512Mi"}}`, "requests and limits of the MCP servers' proxies, as `JSON`; a server's spec overrides them")
	f.StringVar(&o.openShift, "openshift", openShiftAuto, "leave the user and groups of MCP servers and their proxies to the cluster, as OpenShift needs it: auto, true or false; auto: if the API server serves security.openshift.io")
	f.StringArrayVar(&o.httpHosts, "allow-http-host", nil, "HOST or HOST:PORT that the action HTTPRequest may call; repeatable; default: none")
	f.StringArrayVar(&o.httpPrivate, "allow-private-http", nil, "private network, such as 10.1.0.0/16, that allowed hosts may be in; repeatable")
	f.IntVar(&o.workers, "workers", runner.DefaultWorkers, "objects of each kind that are reconciled at a time")
	f.IntVar(&o.externalCalls, "external-calls", runner.DefaultExternalCalls, "HTTPRequests of each kind that run at a time, besides --workers; others wait")
	f.IntVar(&o.maxRequests, "max-requests-in-flight", 90, "requests to the API server at a time, those of a migration's copy included; without watches and the lease")
	f.Var(&o.storeQuota, "store-quota", "etcd's --quota-backend-bytes, such as 8Gi: a migration does not start, or stops, before its copies fill it; default: that of etcd, 2Gi")
	f.DurationVar(&o.requestTimeout, "request-timeout", datastoremigration.DefaultRequestTimeout, "the longest --request-timeout of your API servers: for so long a migration looks for writes of v1 that were let in before the lock and land after the copy")
	f.StringVar(&o.probeAddress, "health-probe-bind-address", none, `address of /healthz and /readyz, such as :8081; "0" serves none`)
	f.DurationVar(&o.shutdownTimeout, "shutdown-timeout", 20*time.Second, "time for running work to end after SIGTERM; keep it below the pod's terminationGracePeriodSeconds")
	o.leader.addFlags(f)
	o.metrics.addFlags(f)
	o.log.addFlags(f)
	o.tracing.addFlags(f)
}

// validate finds what can be known to be wrong without a file or a cluster.
func (o *options) validate() error {
	if len(o.controllers) == 0 {
		return fmt.Errorf("--controllers: none is left to run: name some of %v", checkup.Controllers)
	}
	for _, name := range o.controllers {
		if !slices.Contains(checkup.Controllers, name) {
			return fmt.Errorf("--controllers: %q is not known; known controllers: %v", name, checkup.Controllers)
		}
	}
	if err := cmp.Or(o.readHTTP(), o.readProxies(), o.validateProxy(), o.validateOpenShift()); err != nil {
		return err
	}
	if err := errors.Join(positive("--workers", o.workers), positive("--external-calls", o.externalCalls), positive("--max-requests-in-flight", o.maxRequests)); err != nil {
		return err
	}
	if o.shutdownTimeout <= 0 {
		return fmt.Errorf("--shutdown-timeout: %s leaves no time to end in: use 1s or more", o.shutdownTimeout)
	}
	if err := address("--health-probe-bind-address", o.probeAddress); err != nil {
		return err
	}
	for _, part := range []interface{ validate() error }{&o.leader, &o.metrics, &o.log, &o.tracing} {
		if err := part.validate(); err != nil {
			return err
		}
	}
	return nil
}

func positive(flag string, n int) error {
	if n < 1 {
		return fmt.Errorf("%s: %d would let none through: use 1 or more", flag, n)
	}
	return nil
}

func (o *options) runs(controller string) bool { return slices.Contains(o.controllers, controller) }

// runsMachine tells whether one of the controllers that --controllers names runs a machine.
func (o *options) runsMachine(name string) bool { return o.runs(checkup.ControllerOf(name)) }

// limits are those of each controller. Where no host may be asked, no call takes its time.
func (o *options) limits() runner.Limits {
	limits := runner.Limits{Workers: o.workers}
	if len(o.httpHosts) > 0 {
		limits.ExternalCalls = o.externalCalls
	}
	return limits
}

func (o *options) readHTTP() error {
	o.http = builtin.HTTP{AllowHosts: o.httpHosts}
	for _, network := range o.httpPrivate {
		prefix, err := netip.ParsePrefix(network)
		if err != nil {
			return fmt.Errorf("--allow-private-http: %w: write a network such as 10.1.0.0/16", err)
		}
		o.http.AllowPrivate = append(o.http.AllowPrivate, prefix)
	}
	return nil
}

// readProxies reads the requests and limits of proxies. A field that there is not would be
// one that is not heeded.
func (o *options) readProxies() error {
	o.proxies = corev1.ResourceRequirements{}
	strict, err := kjson.UnmarshalStrict([]byte(o.proxyResources), &o.proxies)
	if err := errors.Join(append(strict, err)...); err != nil {
		return fmt.Errorf(`--proxy-resources: %w: write JSON such as {"requests":{"cpu":"50m","memory":"64Mi"},"limits":{"memory":"512Mi"}}`, err)
	}
	return nil
}

func (o *options) flavour() mcpserver.Flavour {
	if o.proxy == "" && o.toolHiveImage != "" {
		return mcpserver.ToolHive
	}
	return cmp.Or(mcpserver.Flavour(o.proxy), mcpserver.Phasegate)
}

func (o *options) imageOfProxies() string {
	if o.flavour() == mcpserver.ToolHive {
		return o.toolHiveImage
	}
	return o.proxyImage
}

func (o *options) validateProxy() error {
	switch flavour := o.flavour(); {
	case !slices.Contains(mcpserver.Flavours, flavour):
		return fmt.Errorf("--proxy: %q is not known: write one of %v", flavour, mcpserver.Flavours)
	case flavour == mcpserver.ToolHive && o.toolHiveImage == "":
		return errors.New("--proxy: toolhive needs the image of ToolHive's proxyrunner: give --toolhive-proxy-image")
	}
	var err error
	if o.proxyRunner, err = toolhive.ProgramOf(o.toolHiveImage, o.toolHiveVersion); err != nil {
		return fmt.Errorf("--toolhive-proxy-version: %w", err)
	}
	return nil
}

// address is an error unless a server can be told to listen there.
func address(flag, value string) error {
	if value == none {
		return nil
	}
	if _, _, err := net.SplitHostPort(value); err != nil {
		return fmt.Errorf(`%s: %w: write HOST:PORT, :PORT, or "0" for none`, flag, err)
	}
	return nil
}
