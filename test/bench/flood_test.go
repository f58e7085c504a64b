package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/phasegate/phasegate/test/support/harness"
	"github.com/phasegate/phasegate/test/support/setup"
)

const (
	// chartAccount is the manager's in runs with the chart's rights and its priority level.
	chartAccount = "chart-manager"
	// floodClients are more than the seats of all levels that lend some, of fewSeats.
	floodClients = 64
	// What is listed is 10 MB, and each client reads 320 KB of it a second, beyond the 4 MB that its connection takes: a
	// request that is being answered keeps its seat. Clients that read as fast as they can would take the two cores
	// instead, which no priority level gives back.
	floodObjects, floodObjectSize = 100, 100_000
	floodPiece, floodPause        = 32 << 10, 100 * time.Millisecond
)

// fewSeats is a tenth of what kube-apiserver has by itself, so that few clients fill it.
func fewSeats() []string {
	return []string{"--max-requests-inflight=40", "--max-mutating-requests-inflight=20"}
}

// asInstalled starts the manager with the account, rights and priority level of the chart: an administrator's requests
// have no level.
func asInstalled(ctx context.Context, s *setup.Setup, args ...string) (*ours, error) {
	rules, err := harness.MigrationRules()
	if err != nil {
		return nil, err
	}
	// What the values of the chart add to the roles by themselves.
	rules = append(rules, rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"configmaps", "secrets"}, Verbs: []string{"patch"}})
	if err := s.Grant(ctx, chartAccount, rules); err != nil {
		return nil, err
	}
	root, err := harness.Root()
	if err != nil {
		return nil, err
	}
	tool := func(name string, in string, args ...string) (string, error) {
		cmd := exec.CommandContext(ctx, filepath.Join(root, "bin", "tools", name), args...)
		cmd.Stdin = strings.NewReader(in)
		out, err := cmd.Output()
		if err != nil {
			return "", fmt.Errorf("%s: %w", cmd, err)
		}
		return string(out), nil
	}
	const account = "controllers.datastoremigration.serviceAccount."
	level, err := tool("helm", "", "template", "phasegate", filepath.Join(root, "charts", "phasegate"), "--namespace", metav1.NamespaceDefault,
		"--show-only", "templates/prioritylevel.yaml", "--set", account+"create=false,"+account+"name="+chartAccount)
	if err != nil {
		return nil, err
	}
	if _, err := tool("kubectl", level, "--kubeconfig", s.Kubeconfig, "apply", "-f", "-"); err != nil {
		return nil, err
	}
	return newOurs(ctx, s, append(args, "--kubeconfig", s.KubeconfigOf(chartAccount))...)
}

// flood fills the seats of all other service accounts until ctx ends, and returns once they are full.
func flood(ctx context.Context, s *setup.Setup) error {
	const account = "flood"
	err := s.Grant(ctx, account, []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"list"}}})
	if err != nil {
		return err
	}
	for i := range floodObjects {
		big := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: fmt.Sprintf("big-%d", i)}}
		big.Data = map[string]string{"text": strings.Repeat("x", floodObjectSize)}
		if err := s.Client.Create(ctx, big); err != nil {
			return fmt.Errorf("create what is listed: %w", err)
		}
	}
	for range floodClients {
		config, err := clientcmd.BuildConfigFromFlags("", s.KubeconfigOf(account))
		if err != nil {
			return err
		}
		config.QPS, config.DisableCompression = -1, true
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			return err
		}
		go func() {
			for ctx.Err() == nil {
				readSlowly(ctx, client)
			}
		}()
	}
	return harness.Await(ctx, "the flood to fill the seats", patience, func(ctx context.Context) error {
		shown, err := scrapeServer(ctx, s.Config)
		if err != nil {
			return err
		}
		if shown.Sum("apiserver_flowcontrol_current_inqueue_requests", "priority_level", "workload-low") == 0 {
			return errors.New("nobody waits for a seat")
		}
		return nil
	})
}

// readSlowly makes one request. What becomes of it does not matter: it may be one too many.
func readSlowly(ctx context.Context, client kubernetes.Interface) {
	body, err := client.CoreV1().RESTClient().Get().Namespace(metav1.NamespaceDefault).Resource("configmaps").Stream(ctx)
	if err != nil {
		time.Sleep(floodPause)
		return
	}
	defer body.Close()
	for {
		if _, err := io.CopyN(io.Discard, body, floodPiece); err != nil {
			return
		}
		time.Sleep(floodPause)
	}
}
