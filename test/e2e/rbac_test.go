package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

// managerAccount has what the chart grants, and nothing else: every test runs with it, so that a
// missing rule fails somewhere.
const managerAccount = "phasegate-manager"

// managerRules are those of the chart.
func managerRules(t *testing.T) []rbacv1.PolicyRule {
	t.Helper()
	role := &rbacv1.ClusterRole{}
	readYAML(t, filepath.Join(root(t), "charts", "phasegate", "files", "rbac", "manager.yaml"), role)
	return role.Rules
}

// grant makes a service account that has the rules, and a kubeconfig for it. Again, it changes the rules.
func (w *world) grant(account string, rules []rbacv1.PolicyRule) error {
	ctx := context.Background()
	meta := metav1.ObjectMeta{Name: account}
	inDefault := metav1.ObjectMeta{Name: account, Namespace: metav1.NamespaceDefault}
	role := &rbacv1.ClusterRole{ObjectMeta: meta}
	err := w.Client.Get(ctx, client.ObjectKeyFromObject(role), role)
	if err == nil {
		role.Rules = rules
		return w.Client.Update(ctx, role)
	}
	if !apierrs.IsNotFound(err) {
		return err
	}
	for _, obj := range []client.Object{
		&corev1.ServiceAccount{ObjectMeta: inDefault},
		&rbacv1.ClusterRole{ObjectMeta: meta, Rules: rules},
		&rbacv1.ClusterRoleBinding{
			ObjectMeta: meta,
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: account},
			Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Name: account, Namespace: metav1.NamespaceDefault}},
		},
	} {
		if err := w.Client.Create(ctx, obj); err != nil {
			return fmt.Errorf("create %T %s: %w", obj, account, err)
		}
	}
	return w.writeKubeconfig(ctx, account)
}

// alsoGrant gives the manager the rules of files of docs/extend besides, until the test ends.
func (w *world) alsoGrant(t *testing.T, files ...string) {
	t.Helper()
	rules := managerRules(t)
	for _, file := range files {
		data, err := os.ReadFile(example(t, file))
		if err != nil {
			t.Fatal(err)
		}
		for _, doc := range strings.Split(string(data), "\n---\n") {
			role := &rbacv1.ClusterRole{}
			if err := yaml.Unmarshal([]byte(doc), role); err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			rules = append(rules, role.Rules...)
		}
	}
	if err := w.grant(managerAccount, rules); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.grant(managerAccount, managerRules(t)); err != nil {
			t.Error(err)
		}
	})
}

func (w *world) kubeconfigOf(account string) string {
	return filepath.Join(w.LogDir, account+".kubeconfig")
}

func (w *world) writeKubeconfig(ctx context.Context, account string) error {
	core, err := kubernetes.NewForConfig(w.Config)
	if err != nil {
		return err
	}
	token, err := core.CoreV1().ServiceAccounts(metav1.NamespaceDefault).
		CreateToken(ctx, account, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("get a token for %s: %w", account, err)
	}
	config, err := clientcmd.LoadFromFile(w.Kubeconfig)
	if err != nil {
		return err
	}
	config.AuthInfos = map[string]*clientcmdapi.AuthInfo{account: {Token: token.Status.Token}}
	config.Contexts[config.CurrentContext].AuthInfo = account
	return clientcmd.WriteToFile(*config, w.kubeconfigOf(account))
}

// without returns the rules less some verbs on one resource of one group. Verbs that are not granted end the
// test: taking them away would test nothing.
func without(t *testing.T, rules []rbacv1.PolicyRule, group, resource string, verbs ...string) []rbacv1.PolicyRule {
	t.Helper()
	taken := map[string]bool{}
	var out []rbacv1.PolicyRule
	for _, rule := range rules {
		if slices.Contains(rule.APIGroups, group) && slices.Contains(rule.Resources, resource) {
			rule.Verbs = slices.DeleteFunc(slices.Clone(rule.Verbs), func(verb string) bool {
				taken[verb] = taken[verb] || slices.Contains(verbs, verb)
				return slices.Contains(verbs, verb)
			})
		}
		if len(rule.Verbs) > 0 {
			out = append(out, rule)
		}
	}
	for _, verb := range verbs {
		if !taken[verb] {
			t.Fatalf("the chart does not grant %s on %s.%s", verb, resource, group)
		}
	}
	return out
}
