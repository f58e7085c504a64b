package program

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/fsm/machine/expr"
)

// statusField is the name of a field of a status: what a JSON path of a printer column can have.
var statusField = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9]{0,62}$`)

// status compiles what the object shows. It is a view: results are not typed, since which there are depends on the phase, and
// what fails is not shown.
func (c *compiler) status(fields map[string]string) {
	if len(fields) > 0 && c.b.Reserved == nil {
		c.find("spec.status", "PG000", fmt.Sprintf("the status of a %s has a type of its own in the program, which shows what the machine does", c.def.Spec.For.Kind), "remove it")
		return
	}
	c.limit("spec.status", len(fields), v1alpha1.StateLimit)
	c.scope.AnyResult = true
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		path := "spec.status." + name
		switch {
		case !statusField.MatchString(name):
			c.find(path, "PG000", fmt.Sprintf("%q is not a name for a field of the status", name), "write at most 63 letters and digits, a letter first")
		case slices.Contains(c.b.Reserved, name):
			c.find(path, "PG015", fmt.Sprintf("status.%s is written by the manager", name), "choose another name than "+strings.Join(c.b.Reserved, ", "))
		case fields[name] == "":
			c.find(path, "PG000", "nothing is shown", "write an expression")
		}
		e := c.expr(path, fields[name], false)
		c.checkShownField(path, name, e)
		c.prog.Status = append(c.prog.Status, ShownField{name, e})
	}
	c.scope.NoResults()
}

// checkShownField looks whether a field is the same at two looks that change nothing, and whether the CRD keeps it.
func (c *compiler) checkShownField(path, name string, e *expr.Expr) {
	if e == nil {
		return
	}
	if e.ReadsClock(c.prog.Variables) {
		c.find(path, "PG000", "it reads the clock: each look at the object would write its status", "show a time that stays the same, such as one that a step has found")
	}
	if c.b.Kept == nil {
		return
	}
	want, known := c.b.Kept.StatusField(name)
	switch {
	case !known:
		c.find(path, "PG019", fmt.Sprintf("the CRD does not keep status.%s: the API server would drop it", name), "add it to the properties of status in the CRD, or correct the name")
	case !expr.FitsJSON(e.Out, want):
		c.find(path, "PG019", fmt.Sprintf("status.%s of the CRD is of type %s, and this is %s: the API server would refuse the status", name, want, e.Out), "convert it in the expression, or correct the CRD")
	}
}
