package program

import (
	"fmt"
	"maps"
	"slices"

	"github.com/phasegate/phasegate/fsm/diag"
)

// roles checks that the roles of a file are those that the program has and needs.
func (c *compiler) roles() {
	given := map[string]string{} // to whom
	for i, e := range c.def.Spec.Effects {
		c.role(given, fmt.Sprintf("spec.effects[%d].role", i), RoleOfEffect, e.Role, e.Name)
	}
	for i, p := range c.def.Spec.Phases {
		c.role(given, fmt.Sprintf("spec.phases[%d].role", i), RoleOfPhase, p.Role, p.Name)
	}
	for _, name := range slices.Sorted(maps.Keys(c.b.Roles)) {
		if role := c.b.Roles[name]; role.Required && given[name] == "" {
			c.find(fmt.Sprintf("spec.%ss", role.Of), "PG022", fmt.Sprintf("no %s has role: %s, which the program needs", role.Of, name),
				fmt.Sprintf("add role: %s to the %s that is it: %s", name, role.Of, role.Doc))
		}
	}
}

func (c *compiler) role(given map[string]string, path string, of RoleOf, name, owner string) {
	if name == "" {
		return
	}
	role, known := c.b.Roles[name]
	switch {
	case !known && len(c.b.Roles) == 0:
		c.find(path, "PG022", fmt.Sprintf("role %q is not known to this program, which has no roles", name), "remove it")
	case !known:
		c.find(path, "PG022", fmt.Sprintf("role %q is not known to this program", name), diag.Instead(name, "its roles", slices.Sorted(maps.Keys(c.b.Roles))))
	case role.Of != of:
		c.find(path, "PG022", fmt.Sprintf("role %s is for the %ss of a machine, not for the %s %s", name, role.Of, of, owner), "move it: "+role.Doc)
	case role.Unique && given[name] != "":
		c.find(path, "PG022", fmt.Sprintf("role %s is given to %s already", name, given[name]), "keep the one that is it: "+role.Doc)
	}
	given[name] = owner
}
