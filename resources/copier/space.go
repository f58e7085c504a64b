package copier

import (
	"context"
	"encoding/json"
	"fmt"
	"sync/atomic"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/resources"
)

// revisions is how often a copy is stored until its migration is through, and each time counts until etcd is
// defragmented: when it is created, and when its fields are handed over.
const revisions = 2

// overhead is what etcd needs for a revision besides the object: its key, its metadata, and pages that are not full.
const overhead = 1.25

// notesOf is how much larger a copy is than its v1 object: annotations of ours.
const notesOf = 200

// sample is how many objects of a kind tell how large one is.
const sample = 50

// Bytes is about how much the copies of all v1 objects will take of etcd's quota: as many as there are of a kind, as
// large as the first of them are on average.
func (c *Copier) Bytes(ctx context.Context) (int64, error) {
	kinds := c.reg.Kinds()
	totals, err := c.totals(ctx, kinds)
	if err != nil {
		return 0, err
	}
	number := map[string]int64{}
	for i, kind := range kinds {
		number[kind.Name()] = totals[i]
	}
	var all atomic.Int64
	err = eachKind(ctx, kinds, func(ctx context.Context, kind *resources.Kind) error {
		if number[kind.Name()] == 0 {
			return nil
		}
		each, err := c.meanSize(ctx, kind)
		all.Add(int64(float64(number[kind.Name()]) * float64(each+notesOf) * revisions * overhead))
		return err
	})
	return all.Load(), err
}

// meanSize is how large the first objects are on average, as etcd has it: JSON, with its managedFields.
func (c *Copier) meanSize(ctx context.Context, kind *resources.Kind) (int64, error) {
	list := &contentList{}
	list.SetGroupVersionKind(listKind(kind.V1GVK()))
	err := c.try(ctx, func() error { return c.c.List(ctx, list, client.Limit(sample)) })
	if err != nil {
		return 0, c.unlessAbsent(ctx, kind.V1CRDName(), fmt.Errorf("list %s: %w", kind.V1CRDName(), err))
	}
	size := 0
	for _, obj := range list.Items {
		data, err := json.Marshal(obj.Object)
		if err != nil {
			return 0, fmt.Errorf("encode %s %s: %w", kind.Name(), client.ObjectKeyFromObject(&obj), err)
		}
		size += len(data)
	}
	return int64(size / max(len(list.Items), 1)), nil
}
