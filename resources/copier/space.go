package copier

import (
	"context"
	"encoding/json"
	"fmt"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/resources"
)

const (
	// revisions is how often a copy is stored until its migration is through, and each time counts until etcd is
	// defragmented: when it is created, and when its fields are handed over.
	revisions = 2
	// overhead is what etcd needs for a revision besides the object: its key, its metadata, and pages that are not full.
	overhead = 1.25
	// notesOf is how much larger a copy is than its v1 object: annotations of ours.
	notesOf = 200
	// sample is how many objects of a kind tell how large one is.
	sample = 50
)

// Bytes is about how much the copies of all v1 objects will take of etcd's quota: as many as there are of a kind, as
// large as the first of them are on average.
func (s *Source) Bytes(ctx context.Context) (int64, error) {
	kinds := s.reg.Kinds()
	totals, err := s.totals(ctx, kinds)
	if err != nil {
		return 0, err
	}
	var all atomic.Int64
	g, ctx := errgroup.WithContext(ctx)
	for i, kind := range kinds {
		if totals[i] == 0 {
			continue
		}
		g.Go(func() error {
			each, err := s.meanSize(ctx, kind)
			all.Add(int64(float64(totals[i]) * float64(each+notesOf) * revisions * overhead))
			return err
		})
	}
	err = g.Wait()
	return all.Load(), err
}

// meanSize is how large the first objects are on average, as etcd has it: JSON, with its managedFields.
func (s *Source) meanSize(ctx context.Context, kind *resources.Kind) (int64, error) {
	list := &contentList{}
	list.SetGroupVersionKind(listKind(kind.V1GVK()))
	size := 0
	err := s.pages(ctx, list, everyV1(kind), sample, func() error {
		list.SetContinue("")
		return eachOf(list.Items, func(obj *unstructured.Unstructured) error {
			data, err := json.Marshal(obj.Object)
			if err != nil {
				return fmt.Errorf("encode %s %s: %w", kind.Name(), client.ObjectKeyFromObject(obj), err)
			}
			size += len(data)
			return nil
		})
	})
	return int64(size / max(len(list.Items), 1)), err
}
