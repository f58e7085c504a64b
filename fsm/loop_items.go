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
func (c currentStep) beginRound(ctx context.Context) error {
	l := &round{looked: map[string]bool{}, due: c.edited || !c.input.Now().Before(c.due), saved: c.input.Now()}
	var err error
	if l.parallel, err = c.parallel(ctx, c.s.Loop); err != nil {
		return err
	}
	if c.st.Loop == nil {
		if l.left, err = c.items(ctx, c.s.Loop); err != nil {
			return err
		}
		c.st.Loop = &v1alpha1.Loop{Total: int32(len(l.left))}
		c.round = l
		if err = c.saveItems(); err != nil {
			c.round, c.st.Loop = nil, nil
		}
		return err
	}
	if err := utiljson.Unmarshal([]byte(cmp.Or(c.st.Loop.Items, "[]")), &l.left); err != nil {
		return Terminal("UnreadableItems", "the items of %s cannot be read (%w): correct them in the MachineState", c.s.Label, err)
	}
	c.round = l
	return nil
}

func (vs *values) parallel(ctx context.Context, l *program.Loop) (int, error) {
	if l.ParallelExpr == nil {
		return l.Parallel, nil
	}
	if vs.input.Prove != nil {
		return 2, nil
	}
	v, err := vs.value(ctx)(l.ParallelExpr)
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
func (vs *values) items(ctx context.Context, l *program.Loop) ([]*item, error) {
	if vs.input.Prove != nil {
		return vs.provedItems(l)
	}
	v, err := vs.value(ctx)(l.In)
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
		if it.Key, err = vs.keyOf(ctx, l, it); err != nil {
			return nil, err
		}
		if seen[it.Key] {
			return nil, Terminal("BadItems", "two items of %s have the key %s: give forEach a key: that tells them apart", l.In.Text, it.Key)
		}
		seen[it.Key], items[i] = true, it
	}
	return items, nil
}

func (vs *values) keyOf(ctx context.Context, l *program.Loop, it *item) (string, error) {
	key := it.Value
	if l.Key != nil {
		vs.item = it
		v, err := vs.value(ctx)(l.Key)
		vs.item = nil
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
func (vs *values) provedItems(l *program.Loop) ([]*item, error) {
	for n, more := range []*expr.Expr{l.Any, l.Several} {
		if is, err := vs.input.Prove(more); err != nil || !is {
			return []*item{{Key: "1"}}[:n], err
		}
	}
	return []*item{{Key: "1"}, {Key: "2"}}, nil
}

// saveItems brings the stored items to those that are left.
func (c currentStep) saveItems() error {
	if len(c.round.left) == 0 {
		c.st.Loop.Items = ""
		return nil
	}
	text, err := json.Marshal(c.round.left)
	if err != nil {
		return fmt.Errorf("items are no plain values: %w", err)
	}
	if len(text) > maxItems {
		return Terminal("BadItems", "the items have %d bytes, more than the %d that are stored: let them have fewer fields, or take them in parts", len(text), maxItems)
	}
	c.st.Loop.Items = string(text)
	return nil
}
