package dashboard

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/cmd/kubectl-phasegate/internal/live"
	"github.com/phasegate/phasegate/controllers/runner/machinestate"
)

const (
	// ask is how often the API server is asked whether it still answers: a watch that
	// is silent looks like one that is cut.
	ask = 3 * time.Second
	// answerLimit is how long it may take to answer that.
	answerLimit = 2 * time.Second
)

// Feed follows the objects of a kind in a cluster and their states by watches, which begin
// anew by themselves when they break.
type Feed struct {
	client  client.WithWatch
	of      Of
	objects cache.SharedInformer
	states  cache.SharedInformer

	mu       sync.Mutex
	answered time.Time
	trouble  error
	// unread is why there are no states; empty if there are.
	unread string
	// stales are the objects whose manager shows no sign of life. It is replaced, never changed.
	stales map[types.UID]*live.Stale
}

// Of says which objects are shown.
type Of struct {
	Kind schema.GroupVersionKind
	// Machine is the name of the one that drives them.
	Machine string
	// Namespace is empty for all, and for kinds that have none.
	Namespace string
}

// NewFeed answers one that knows nothing before Run.
func NewFeed(c client.WithWatch, of Of) *Feed {
	f := &Feed{client: c, of: of}
	one := &unstructured.Unstructured{}
	one.SetGroupVersionKind(of.Kind)
	f.objects = informer(c, one, f.list, client.ListOptions{Namespace: of.Namespace})
	f.states = informer(c, &v1alpha1.MachineState{}, func() client.ObjectList { return &v1alpha1.MachineStateList{} },
		client.ListOptions{LabelSelector: labels.SelectorFromSet(labels.Set{v1alpha1.MachineLabel: of.Machine})})
	return f
}

func (f *Feed) list() client.ObjectList {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(f.of.Kind)
	return list
}

// informer follows the objects of a kind that options choose.
func informer(c client.WithWatch, of runtime.Object, list func() client.ObjectList, chosen client.ListOptions) cache.SharedInformer {
	with := func(o metav1.ListOptions) *client.ListOptions {
		chosen := chosen
		if chosen.LabelSelector != nil {
			o.LabelSelector = chosen.LabelSelector.String()
		}
		chosen.Raw = &o
		return &chosen
	}
	return cache.NewSharedInformer(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			all := list()
			return all, c.List(ctx, all, with(o))
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return c.Watch(ctx, list(), with(o))
		},
	}, of, 0)
}

// Run follows until the context ends. It may be called once.
func (f *Feed) Run(ctx context.Context) error {
	// The handlers take the place of one that writes to the terminal.
	err := f.objects.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) { f.heard(err) })
	if err == nil {
		err = f.states.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) { f.heardOfStates(err) })
	}
	if err != nil {
		return err
	}
	go wait.UntilWithContext(ctx, f.ask, ask)
	go f.states.RunWithContext(ctx)
	f.objects.RunWithContext(ctx)
	return nil
}

// Snapshot is what is known now, the oldest object first.
func (f *Feed) Snapshot() Snapshot {
	f.mu.Lock()
	s := Snapshot{Answered: f.answered, Trouble: f.trouble}
	unread := cmp.Or(f.unread, "the MachineStates are being read")
	if f.states.HasSynced() {
		unread = ""
	}
	states, stales := machinestate.New(stored[*v1alpha1.MachineState](f.states), unread), f.stales
	f.mu.Unlock()
	all := stored[*unstructured.Unstructured](f.objects)
	slices.SortFunc(all, func(a, b *unstructured.Unstructured) int {
		return cmp.Or(a.GetCreationTimestamp().Compare(b.GetCreationTimestamp().Time), cmp.Compare(a.GetNamespace(), b.GetNamespace()), cmp.Compare(a.GetName(), b.GetName()))
	})
	for _, u := range all {
		o, err := live.NewObject(u, states)
		if err != nil {
			s.Trouble = err
			continue
		}
		o.Stale = stales[o.UID]
		s.Objects = append(s.Objects, o)
	}
	return s
}

func stored[T any](informer cache.SharedInformer) (all []T) {
	for _, o := range informer.GetStore().List() {
		if o, ok := o.(T); ok {
			all = append(all, o)
		}
	}
	return all
}

// heardOfStates keeps why states cannot be read; one can do without some of the reasons.
func (f *Feed) heardOfStates(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if why := machinestate.Unread(err); why != "" {
		f.unread = why
	}
}

func (f *Feed) ask(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, answerLimit)
	defer cancel()
	f.heard(f.client.List(ctx, f.list(), client.InNamespace(f.of.Namespace), client.Limit(1)))
	stales := map[types.UID]*live.Stale{}
	for _, o := range f.Snapshot().shown() {
		o.LookForManager(ctx, f.client, time.Now())
		stales[o.UID] = o.Stale
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stales = stales
}

// heard keeps what the API server did last: answer, or not.
func (f *Feed) heard(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.trouble = err; err == nil {
		f.answered = time.Now()
	}
}
