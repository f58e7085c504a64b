package definitions

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	apierrs "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/fsm/machine/diag"
	"github.com/phasegate/phasegate/resources/pager"
)

// Published is a machine that a manager runs.
type Published v1alpha1.MachineDefinitionSpec

// List reads the machines that managers have published, by machine and manager. Where none
// can be read because the cluster does not have their kind or the account may not, unread
// says so, and it is no error.
func List(ctx context.Context, c client.Reader) (all []Published, unread string, err error) {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("MachineDefinitionList"))
	err = pager.Whole(ctx, c, list)
	switch {
	case apierrs.IsForbidden(err):
		return nil, "you may not list machinedefinitions.phasegate.dev", nil
	case err != nil && pager.UnlessAbsent(ctx, c, v1alpha1.MachineDefinitionCRD, err) == nil:
		return nil, "the CRD " + v1alpha1.MachineDefinitionCRD + " is not installed", nil
	case err != nil:
		return nil, "", err
	}
	for i := range list.Items {
		d := &v1alpha1.MachineDefinition{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(list.Items[i].Object, d); err != nil {
			return nil, "", fmt.Errorf("read MachineDefinition %s: %w: is this program of the version of the manager?", list.Items[i].GetName(), err)
		}
		all = append(all, Published(d.Spec))
	}
	slices.SortFunc(all, func(a, b Published) int {
		return cmp.Or(cmp.Compare(a.Machine, b.Machine), cmp.Compare(a.Manager, b.Manager))
	})
	return all, "", nil
}

// Compile makes a machine of the text, as this program understands it. Its file is called
// after the object that the text is from.
func (p Published) Compile(bindings func(*fsm.Definition) (fsm.Bindings, error)) (*fsm.Machine, error) {
	name := "MachineDefinition " + v1alpha1.MachineDefinitionName(p.Machine, p.Manager)
	def, diags := fsm.Load(name, []byte(p.Text))
	if def == nil {
		return nil, p.unfit(diags)
	}
	def.Revision = p.Revision // that of the manager, with which those of the states are compared
	b, err := bindings(def)
	if err != nil {
		return nil, err
	}
	m, diags := fsm.Bind(def, b)
	if m == nil {
		return nil, p.unfit(diags)
	}
	return m, nil
}

// unfit is one line: of what is wrong with the text for this program, the first.
func (p Published) unfit(diags diag.Diagnostics) error {
	lines := strings.Split(diags.Err().Error(), "\n")
	first := lines[min(1, len(lines)-1)] // the one before it tells that the file is refused
	if more := len(lines) - 2; more > 0 {
		first += fmt.Sprintf(" (and %d more)", more)
	}
	return fmt.Errorf("machine %s of %s cannot be read by this program: %s: use the kubectl-phasegate of the version of the manager, or give the machine file with -f",
		p.Machine, cmp.Or(p.Manager, "a manager without a lease"), first)
}

// Driver is the one that drives an object, of those that are for its kind: that of the
// manager which drove it last, else that of the revision which did, else the first. It is
// false where there is none.
func Driver(all []Published, manager, revision string) (Published, bool) {
	best, rank := Published{}, 0
	for _, p := range all {
		now := 1
		if p.Revision == revision {
			now++
		}
		if manager != "" && p.Manager == manager {
			now += 2
		}
		if now > rank {
			best, rank = p, now
		}
	}
	return best, rank > 0
}
