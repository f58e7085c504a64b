package runner_test

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/controllers/runner"
	"github.com/phasegate/phasegate/fsm"
)

// cordon is an action that makes sure of something: it looks first, and changes
// only what is not so yet. After a crash it looks again, and does the rest.
func cordon(c client.Client) runner.Action[*migrationv1.DatastoreMigration] {
	return runner.Action[*migrationv1.DatastoreMigration]{
		// What the machine file may say, and what its expressions may read.
		ActionSpec: fsm.ActionSpec{
			Doc:     "Lets no new Pods onto a node.",
			Params:  map[string]fsm.Param{"node": {Type: fsm.TypeString, Required: true, Doc: "name of the node"}},
			Outputs: map[string]fsm.Type{"ready": fsm.TypeBool},
		},
		Do: func(ctx context.Context, s *runner.Scope[*migrationv1.DatastoreMigration]) (map[string]any, error) {
			node := &corev1.Node{}
			name := s.With.String("node", "")
			if err := c.Get(ctx, client.ObjectKey{Name: name}, node); err != nil {
				return nil, fmt.Errorf("read node %s: %w", name, err) // retried with the backoff of the phase
			}
			if node.DeletionTimestamp != nil {
				return nil, fsm.Wait("node %s is being deleted", name) // looked at again at the poll interval
			}
			if !node.Spec.Unschedulable {
				before := node.DeepCopy()
				node.Spec.Unschedulable = true
				if err := c.Patch(ctx, node, client.MergeFrom(before)); err != nil {
					return nil, fmt.Errorf("cordon node %s: %w", name, err)
				}
			}
			ready := slices.ContainsFunc(node.Status.Conditions, func(n corev1.NodeCondition) bool {
				return n.Type == corev1.NodeReady && n.Status == corev1.ConditionTrue
			})
			return map[string]any{"ready": ready}, nil
		},
	}
}

// spare is a guard: it answers a question about the world and changes nothing.
func spare(c client.Client) runner.Guard[*migrationv1.DatastoreMigration] {
	return runner.Guard[*migrationv1.DatastoreMigration]{
		Doc: "Another node takes Pods.",
		Open: func(ctx context.Context, _ *fsm.Machine, _ *migrationv1.DatastoreMigration) (bool, string, error) {
			nodes := &corev1.NodeList{}
			if err := c.List(ctx, nodes); err != nil {
				return false, "", fmt.Errorf("list nodes: %w", err)
			}
			open := 0
			for i := range nodes.Items {
				if !nodes.Items[i].Spec.Unschedulable {
					open++
				}
			}
			return open > 0, fmt.Sprintf("%d of %d nodes take Pods", open, len(nodes.Items)), nil
		},
	}
}

func exampleWorld(objs ...client.Object) client.WithWatch {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, migrationv1.AddToScheme} {
		if err := add(scheme); err != nil {
			panic(err)
		}
	}
	return fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&migrationv1.DatastoreMigration{}).WithObjects(objs...).Build()
}

// A program binds the names of a machine file to Go. In the file:
//
//   - {action: Cordon, with: {node: '${self.metadata.name}'}, until: 'result.ready', poll: 5s}
//     next:
//   - {to: Drained, when: 'guards.spare'}
func ExampleProgram() {
	c := exampleWorld()
	program := &runner.Program[*migrationv1.DatastoreMigration]{
		New:     func() *migrationv1.DatastoreMigration { return &migrationv1.DatastoreMigration{} },
		Actions: map[string]runner.Action[*migrationv1.DatastoreMigration]{"Cordon": cordon(c)},
		Guards:  map[string]runner.Guard[*migrationv1.DatastoreMigration]{"spare": spare(c)},
	}
	bindings := program.Bindings() // for fsm.Bind
	fmt.Println(bindings.Actions["Cordon"].Doc)
	fmt.Println(bindings.Guards["spare"])
	// Output:
	// Lets no new Pods onto a node.
	// Another node takes Pods.
}

// An action looks, changes what is not so yet, and answers what it saw.
func ExampleAction() {
	c := exampleWorld(
		&migrationv1.DatastoreMigration{ObjectMeta: metav1.ObjectMeta{Name: "move"}},
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}, Status: corev1.NodeStatus{
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}}},
	)
	ctx, obj := context.Background(), &migrationv1.DatastoreMigration{}
	if err := c.Get(ctx, client.ObjectKey{Name: "move"}, obj); err != nil {
		fmt.Println(err)
		return
	}
	outputs, err := runner.Once(ctx, c, obj, cordon(c), fsm.Params{"node": "n1"}, clock.RealClock{})
	fmt.Println(outputs, err)
	_, err = runner.Once(ctx, c, obj, cordon(c), fsm.Params{"node": "n2"}, clock.RealClock{})
	fmt.Println(err)
	// Output:
	// map[ready:true] <nil>
	// read node n2: nodes "n2" not found
}

// A guard says what it saw; status.machine.blocked shows it while an exit is closed.
func ExampleGuard() {
	c := exampleWorld(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}, Spec: corev1.NodeSpec{Unschedulable: true}})
	open, seen, err := spare(c).Open(context.Background(), nil, &migrationv1.DatastoreMigration{})
	fmt.Println(open, seen, err)
	// Output:
	// false 0 of 1 nodes take Pods <nil>
}
