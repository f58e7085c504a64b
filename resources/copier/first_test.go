package copier

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// What the API server makes at its first sight of a kind it would make for each object that comes meanwhile; the
// others go side by side.
func TestTheFirstOfAKindGoesAlone(t *testing.T) {
	w := newWorld(t)
	const each = 6
	kinds := []string{"NetworkSet", "GlobalNetworkSet"}
	for i := range each {
		w.v1(kinds[0], fmt.Sprintf(`{"metadata": {"namespace": "default", "name": "set-%d"}}`, i))
		w.v1(kinds[1], fmt.Sprintf(`{"metadata": {"name": "set-%d"}}`, i))
	}
	var mu sync.Mutex
	begun, answered, most := map[string]int{}, map[string]int{}, map[string]int{}
	c := w.copier(interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			kind := obj.GetObjectKind().GroupVersionKind().Kind
			mu.Lock()
			if begun[kind]++; begun[kind] > 1 && answered[kind] == 0 {
				t.Errorf("%s %s is sent before the first %s is answered", kind, obj.GetName(), kind)
			}
			most[kind] = max(most[kind], begun[kind]-answered[kind])
			mu.Unlock()
			time.Sleep(50 * time.Millisecond) // as an API server that has something to make
			err := c.Create(ctx, obj, opts...)
			mu.Lock()
			answered[kind]++
			mu.Unlock()
			return err
		},
	})
	result, err := c.Copy(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if done := result.Progress.Done; done != int64(each*len(kinds)) {
		t.Errorf("%d objects are copied, want %d", done, each*len(kinds))
	}
	for _, kind := range kinds {
		if most[kind] < 2 {
			t.Errorf("at most %d %ss are in flight at a time: the others wait for nothing", most[kind], kind)
		}
	}
}
