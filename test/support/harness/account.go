package harness

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// tokenLife is longer than any run of tests. The default, an hour, is not: half way through `make faults`
// every request was Unauthorized.
const tokenLife = 24 * time.Hour

// Grant makes a service account in namespace default that has the rules and no
// others, and a kubeconfig for it, see KubeconfigOf. Again, it changes the rules.
func (c *Cluster) Grant(ctx context.Context, account string, rules []rbacv1.PolicyRule) error {
	meta := metav1.ObjectMeta{Name: account}
	inDefault := metav1.ObjectMeta{Name: account, Namespace: metav1.NamespaceDefault}
	role := &rbacv1.ClusterRole{ObjectMeta: meta}
	err := c.Client.Get(ctx, client.ObjectKeyFromObject(role), role)
	if err == nil {
		role.Rules = rules
		return c.Client.Update(ctx, role)
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
		if err := c.Client.Create(ctx, obj); err != nil {
			return fmt.Errorf("create %T %s: %w", obj, account, err)
		}
	}
	return c.WriteKubeconfig(ctx, c.KubeconfigOf(account), client.ObjectKey{Namespace: metav1.NamespaceDefault, Name: account}, nil)
}

// KubeconfigOf is the path of the kubeconfig that Grant wrote for an account.
func (c *Cluster) KubeconfigOf(account string) string {
	return filepath.Join(c.LogDir, account+".kubeconfig")
}

// WriteKubeconfig writes a kubeconfig with a token of a service account, whose
// namespace is the default one of requests. The token is worth nothing once what
// it is bound to is gone; nil binds it to nothing.
func (c *Cluster) WriteKubeconfig(ctx context.Context, path string, account client.ObjectKey, bound *authenticationv1.BoundObjectReference) error {
	core, err := kubernetes.NewForConfig(c.Config)
	if err != nil {
		return err
	}
	token, err := core.CoreV1().ServiceAccounts(account.Namespace).CreateToken(ctx, account.Name,
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{BoundObjectRef: bound, ExpirationSeconds: new(int64(tokenLife.Seconds()))}}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("get a token for %s: %w", account, err)
	}
	if left := time.Until(token.Status.ExpirationTimestamp.Time); left < tokenLife/2 {
		return fmt.Errorf("the token for %s lives for %s only: a long run would end in the middle", account, left)
	}
	config, err := clientcmd.LoadFromFile(c.Kubeconfig)
	if err != nil {
		return err
	}
	config.AuthInfos = map[string]*clientcmdapi.AuthInfo{account.Name: {Token: token.Status.Token}}
	current := config.Contexts[config.CurrentContext]
	current.AuthInfo, current.Namespace = account.Name, account.Namespace
	return clientcmd.WriteToFile(*config, path)
}
