// Command rbac writes the rules of the chart's roles, one file for each, and a page
// about them: what the controllers say that they need for the shipped machines. It
// is called by hack/generate.sh.
package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"

	"github.com/phasegate/phasegate/controllers/builtin"
	"github.com/phasegate/phasegate/controllers/catalog"
	"github.com/phasegate/phasegate/controllers/datastoremigration"
	"github.com/phasegate/phasegate/controllers/generic"
	"github.com/phasegate/phasegate/controllers/mcpserver"
	"github.com/phasegate/phasegate/controllers/rbac"
	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/phases"
	"github.com/phasegate/phasegate/resources"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: rbac DIR PAGE")
		os.Exit(2)
	}
	if err := write(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "rbac:", err)
		os.Exit(1)
	}
}

func write(dir, file string) error {
	roles, err := roles()
	if err != nil {
		return err
	}
	for _, r := range roles {
		text, err := yaml.Marshal(map[string][]rbacv1.PolicyRule{"rules": rbac.Merge(r.needs)})
		if err != nil {
			return err
		}
		text = append([]byte("# Made by hack/rbac from what the controllers say that they need: docs/operate/rights.md.\n"), text...)
		if err := os.WriteFile(filepath.Join(dir, r.name+".yaml"), text, 0o644); err != nil {
			return err
		}
	}
	return os.WriteFile(file, []byte(page(roles)), 0o644)
}

type role struct {
	name, doc string
	needs     []rbac.Need
}

func roles() ([]role, error) {
	migration, err := machine("datastore-migration.yaml")
	if err != nil {
		return nil, err
	}
	mcp, err := machine("mcpserver.yaml")
	if err != nil {
		return nil, err
	}
	kinds := datastoremigration.Settings{Registry: resources.Default()}
	late, migrate := rbac.Only(catalog.Needs(migration, kinds, rbac.Guess), datastoremigration.BackUpAction, datastoremigration.CleanUpAction)
	detach, migrate := rbac.Only(migrate, datastoremigration.DetachAction)
	ahead, migrate := rbac.Only(migrate, datastoremigration.OpenDoorAction, datastoremigration.CloseDoorAction)
	ofServers := catalog.Needs(mcp, kinds, rbac.Guess)
	var backUp, cleanUp, servers []rbac.Need
	for _, n := range late {
		if datastoremigration.IsBackUp(n) {
			backUp = append(backUp, n)
		} else {
			cleanUp = append(cleanUp, n)
		}
	}
	migrate = slices.DeleteFunc(migrate, func(n rbac.Need) bool {
		if datastoremigration.IsServers(n) {
			servers = append(servers, n)
		}
		return datastoremigration.IsServers(n)
	})
	return []role{
		{"datastoremigration", "The account of the migration.", migrate},
		{"datastoremigration-apiservers", "The same account, to count the API servers: a Role of kube-system.", servers},
		{"datastoremigration-cleanup", "The same account, to delete the v1 CRDs in a clean-up: `controllers.datastoremigration.cleanup.enabled`. You can grant it at that time.", cleanUp},
		{"datastoremigration-backup", "The same account, for the backup before that: a Role of the namespace `controllers.datastoremigration.calicoNamespace`, granted with the one above.", backUp},
		{"datastoremigration-copyahead", "The same account, to open [the side door](../explanation/side-door.md): `controllers.datastoremigration.copyAhead.enabled`.", ahead},
		{"datastoremigration-dependents", "The same account, to find [objects outside Calico with a Calico owner](troubleshooting.md#check-dependents): `controllers.datastoremigration.dependents.enabled`. " +
			"The chart adds the right to patch the kinds in `controllers.datastoremigration.dependents.patch`, by default ConfigMaps and Secrets.", detach},
		{"mcpserver", "The account of MCP servers. It has the rights of a proxy, too: an account can grant only rights that it has.", ofServers},
		{"mcpserver-toolhive", "The same account, with ToolHive's proxies (`proxy`): what only they use, and the rights to pods of their Roles.", rbac.Without(mcpserver.NeedsOf(mcpserver.ToolHive, mcp, rbac.Guess), ofServers)},
		{"custom", "The account of machines for your own kinds. Grant the rights that they need.", generic.Program(builtin.Options{}).NeedsOfAny()},
	}, nil
}

func machine(file string) (*fsm.Machine, error) {
	data, err := fs.ReadFile(phases.Files, file)
	if err != nil {
		return nil, err
	}
	def, found := fsm.Load(file, data)
	if err := found.Err(); err != nil {
		return nil, err
	}
	known, err := catalog.Bindings(def)
	if err != nil {
		return nil, err
	}
	m, found := fsm.Bind(def, known)
	return m, found.Err()
}
