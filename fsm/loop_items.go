package fsm

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"

	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/fsm/machine/expr"
	"github.com/phasegate/phasegate/fsm/machine/program"
)

// beginRound reads the items that are left, or makes them of the list.
func (r *Run) beginRound(ctx context.Context, s *program.Step) error {
	l := &round{looked: map[string]bool{}, due: r.edited || !r.input.Now().Before(r.due), saved: r.input.Now()}
	var err error
	if l.parallel, err = r.parallel(ctx, s.Loop); err != nil {
		return err
	}
	if r.st.Loop == nil {
		if l.left, err = r.items(ctx, s.Loop); err != nil {
			return err
		}
		r.st.Loop = &v1alpha1.Loop{Total: int32(len(l.left))}
		r.round = l
		if err = r.saveItems(); err != nil {
			r.round, r.st.Loop = nil, nil
		}
		return err
	}
	if err := utiljson.Unmarshal([]byte(cmp.Or(r.st.Loop.Items, "[]")), &l.left); err != nil {
		return Terminal("UnreadableItems", "the items of %s cannot be read (%w): correct them in the MachineState", s.Label, err)
	}
	r.round = l
	return nil
}

func (r *Run) parallel(ctx context.Context, l *program.Loop) (int, error) {
	if l.ParallelExpr == nil {
		return l.Parallel, nil
	}
	if r.input.Prove != nil {
		return 2, nil
	}
	v, err := r.value(ctx)(l.ParallelExpr)
	if err != nil {
		return 0, fmt.Errorf("parallel: %w", err)
	}
	n, is := v.Value().(int64)
	if !is || n < 1 {
		return 0, Terminal("BadItems", "parallel is %v: correct %s, so that it comes to a number from 1 on", v.Value(), l.ParallelExpr.Text)
	}
	return int(min(n, v1alpha1.ItemLimit)), nil
}

// items are those of the list, each with its key.
func (r *Run) items(ctx context.Context, l *program.Loop) ([]*item, error) {
	if r.input.Prove != nil {
		return r.provedItems(l)
	}
	v, err := r.value(ctx)(l.In)
	if err != nil {
		return nil, fmt.Errorf("forEach in %s: %w", l.In.Text, err)
	}
	native, err := expr.Native(v)
	if err != nil {
		return nil, err
	}
	list, is := native.([]any)
	if !is {
		return nil, Terminal("BadItems", "%s is no list: correct the expression", l.In.Text)
	}
	if len(list) > v1alpha1.ItemLimit {
		return nil, Terminal("BadItems", "%s has %d items, more than %d: take them in parts, for example page by page", l.In.Text, len(list), v1alpha1.ItemLimit)
	}
	seen, items := map[string]bool{}, make([]*item, len(list))
	for i, value := range list {
		it := &item{Value: value}
		if it.Key, err = r.keyOf(ctx, l, it); err != nil {
			return nil, err
		}
		if seen[it.Key] {
			return nil, Terminal("BadItems", "two items of %s have the key %s: give forEach a key: that tells them apart", l.In.Text, it.Key)
		}
		seen[it.Key], items[i] = true, it
	}
	return items, nil
}

func (r *Run) keyOf(ctx context.Context, l *program.Loop, it *item) (string, error) {
	key := it.Value
	if l.Key != nil {
		r.item = it
		v, err := r.value(ctx)(l.Key)
		r.item = nil
		if err != nil {
			return "", fmt.Errorf("key %s of an item: %w", l.Key.Text, err)
		}
		key = v.Value()
	}
	text, is := key.(string)
	if !is || !itemKey.MatchString(text) {
		return "", Terminal("BadItems", "%s is no key: it is a text of at most 253 letters, digits and . _ : / - that begins and ends with a letter or digit; give forEach a key: that is one", expr.Clip(fmt.Sprint(key), 120))
	}
	return text, nil
}

// provedItems are none, one, or two, which stand for any number.
func (r *Run) provedItems(l *program.Loop) ([]*item, error) {
	for n, more := range []*expr.Expr{l.Any, l.Several} {
		if is, err := r.input.Prove(more); err != nil || !is {
			return []*item{{Key: "1"}}[:n], err
		}
	}
	return []*item{{Key: "1"}, {Key: "2"}}, nil
}

// saveItems brings the stored items to those that are left.
func (r *Run) saveItems() error {
	if len(r.round.left) == 0 {
		r.st.Loop.Items = ""
		return nil
	}
	text, err := json.Marshal(r.round.left)
	if err != nil {
		return fmt.Errorf("items are no plain values: %w", err)
	}
	if len(text) > maxItems {
		return Terminal("BadItems", "the items have %d bytes, more than the %d that are stored: let them have fewer fields, or take them in parts", len(text), maxItems)
	}
	r.st.Loop.Items = string(text)
	return nil
}
