package dashboard

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
)

const (
	// ask is how often the API server is asked whether it still answers: a watch that
	// is silent looks like one that is cut.
	ask = 3 * time.Second
	// answerLimit is how long it may take to answer that.
	answerLimit = 2 * time.Second
)

// Feed follows the migrations of a cluster by a watch, which begins anew by itself
// when it breaks.
type Feed struct {
	client   client.WithWatch
	informer cache.SharedInformer

	mu       sync.Mutex
	answered time.Time
	trouble  error
}

// NewFeed answers one that knows nothing before Run.
func NewFeed(c client.WithWatch) *Feed {
	return &Feed{client: c, informer: cache.NewSharedInformer(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			list := &migrationv1.DatastoreMigrationList{}
			return list, c.List(ctx, list, &client.ListOptions{Raw: &o})
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return c.Watch(ctx, &migrationv1.DatastoreMigrationList{}, &client.ListOptions{Raw: &o})
		},
	}, &migrationv1.DatastoreMigration{}, 0)}
}

// Run follows until the context ends. It may be called once.
func (f *Feed) Run(ctx context.Context) error {
	// The handler takes the place of one that writes to the terminal.
	err := f.informer.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) { f.heard(err) })
	if err != nil {
		return err
	}
	go wait.UntilWithContext(ctx, f.ask, ask)
	f.informer.RunWithContext(ctx)
	return nil
}

// Snapshot is what is known now, the oldest migration first.
func (f *Feed) Snapshot() Snapshot {
	f.mu.Lock()
	s := Snapshot{Answered: f.answered, Trouble: f.trouble}
	f.mu.Unlock()
	for _, o := range f.informer.GetStore().List() {
		if dm, ok := o.(*migrationv1.DatastoreMigration); ok {
			s.Migrations = append(s.Migrations, dm)
		}
	}
	slices.SortFunc(s.Migrations, func(a, b *migrationv1.DatastoreMigration) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	return s
}

func (f *Feed) ask(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, answerLimit)
	defer cancel()
	f.heard(f.client.List(ctx, &migrationv1.DatastoreMigrationList{}, client.Limit(1)))
}

// heard keeps what the API server did last: answer, or not.
func (f *Feed) heard(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.trouble = err; err == nil {
		f.answered = time.Now()
	}
}
