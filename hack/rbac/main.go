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
		{"datastoremigration-apiservers", "The same account, to know how many API servers there are: a Role of kube-system.", servers},
		{"datastoremigration-cleanup", "The same account, for the removal of the v1 CRDs at the end: `controllers.datastoremigration.cleanup.enabled`. It may be granted as late as that.", cleanUp},
		{"datastoremigration-backup", "The same account, for the backup before that removal: a Role of the namespace `controllers.datastoremigration.calicoNamespace`, granted with the one above.", backUp},
		{"datastoremigration-copyahead", "The same account, to add a version to Calico's v3 CRDs for the time of a migration, through which objects are copied before v1 is locked: `controllers.datastoremigration.copyAhead.enabled`.", ahead},
		{"datastoremigration-dependents", "The same account, to find what belongs to Calico's objects and is no object of Calico: `controllers.datastoremigration.dependents.enabled`. " +
			"The chart adds the right to patch what `controllers.datastoremigration.dependents.patch` lists: by default ConfigMaps and Secrets, to take references to their owners off while these change places.", detach},
		{"mcpserver", "The account of MCP servers. It holds the rights of a proxy too, since nobody can grant what he does not have.", catalog.Needs(mcp, kinds, rbac.Guess)},
		{"custom", "The account of machines that no controller is compiled in for. What such a machine works on is yours to grant.", generic.Program(builtin.Options{}).NeedsOfAny()},
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
