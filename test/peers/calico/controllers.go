package calico

import (
	"context"
	"path/filepath"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/phasegate/phasegate/test/support/harness"
)

// controllersAccount is the account of kube-controllers.
const controllersAccount = "calico-kube-controllers"

// StartKubeControllers starts kube-controllers with every right. group is CALICO_API_GROUP; empty: it asks discovery. Its own
// migration controller is in it, and takes the DatastoreMigration of one name alone. The caller ends it.
func (r Release) StartKubeControllers(ctx context.Context, c *harness.Cluster, group string) (*harness.Process, error) {
	all := []rbacv1.PolicyRule{{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"*"}}, {NonResourceURLs: []string{"*"}, Verbs: []string{"get"}}}
	if err := c.Grant(ctx, controllersAccount, all); err != nil {
		return nil, err
	}
	env := append(datastore(c.KubeconfigOf(controllersAccount)), "ENABLED_CONTROLLERS=node,loadbalancer")
	if group != "" {
		env = append(env, "CALICO_API_GROUP="+group)
	}
	return r.start(c, KubeControllers, env, "--status-file="+filepath.Join(c.LogDir, "kube-controllers.status"))
}
