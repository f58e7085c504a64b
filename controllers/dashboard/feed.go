package dashboard

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/controllers/datastoremigration"
	"github.com/phasegate/phasegate/controllers/live"
	"github.com/phasegate/phasegate/controllers/machinestate"
)

const (
	// ask is how often the API server is asked whether it still answers: a watch that
	// is silent looks like one that is cut.
	ask = 3 * time.Second
	// answerLimit is how long it may take to answer that.
	answerLimit = 2 * time.Second
)

// Feed follows the migrations of a cluster and their states by watches, which begin anew
// by themselves when they break.
type Feed struct {
	client     client.WithWatch
	migrations cache.SharedInformer
	states     cache.SharedInformer

	mu       sync.Mutex
	answered time.Time
	trouble  error
	// unread is why there are no states; empty if there are.
	unread string
	// stales are the migrations whose manager shows no sign of life. It is replaced, never changed.
	stales map[types.UID]*live.Stale
}

// NewFeed answers one that knows nothing before Run.
func NewFeed(c client.WithWatch) *Feed {
	f := &Feed{client: c}
	f.migrations = informer(c, &migrationv1.DatastoreMigration{}, func() client.ObjectList { return &migrationv1.DatastoreMigrationList{} }, "")
	f.states = informer(c, &v1alpha1.MachineState{}, func() client.ObjectList { return &v1alpha1.MachineStateList{} },
		v1alpha1.MachineLabel+"="+datastoremigration.MachineName)
	return f
}

// informer follows the objects of a kind that a label selector chooses.
func informer(c client.WithWatch, of runtime.Object, list func() client.ObjectList, selector string) cache.SharedInformer {
	return cache.NewSharedInformer(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			all := list()
			o.LabelSelector = selector
			return all, c.List(ctx, all, &client.ListOptions{Raw: &o})
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.LabelSelector = selector
			return c.Watch(ctx, list(), &client.ListOptions{Raw: &o})
		},
	}, of, 0)
}

// Run follows until the context ends. It may be called once.
func (f *Feed) Run(ctx context.Context) error {
	// The handlers take the place of one that writes to the terminal.
	err := f.migrations.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) { f.heard(err) })
	if err == nil {
		err = f.states.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) { f.heardOfStates(err) })
	}
	if err != nil {
		return err
	}
	go wait.UntilWithContext(ctx, f.ask, ask)
	go f.states.RunWithContext(ctx)
	f.migrations.RunWithContext(ctx)
	return nil
}

// Snapshot is what is known now, the oldest migration first.
func (f *Feed) Snapshot() Snapshot {
	f.mu.Lock()
	s := Snapshot{Answered: f.answered, Trouble: f.trouble}
	unread := cmp.Or(f.unread, "the MachineStates are being read")
	if f.states.HasSynced() {
		unread = ""
	}
	states, stales := machinestate.New(stored[*v1alpha1.MachineState](f.states), unread), f.stales
	f.mu.Unlock()
	for _, dm := range stored[*migrationv1.DatastoreMigration](f.migrations) {
		dm = dm.DeepCopy() // the informer's own is not to be changed
		m, err := live.NewMigration(dm, states)
		if err != nil {
			s.Trouble = err
		}
		m.Stale = stales[dm.UID]
		s.Migrations = append(s.Migrations, m)
	}
	slices.SortFunc(s.Migrations, func(a, b live.Migration) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
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
	f.heard(f.client.List(ctx, &migrationv1.DatastoreMigrationList{}, client.Limit(1)))
	stales := map[types.UID]*live.Stale{}
	for _, m := range f.Snapshot().Migrations {
		m.LookForManager(ctx, f.client, time.Now())
		stales[m.UID] = m.Stale
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
