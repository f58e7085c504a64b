package rooms

import (
	"go/ast"
	"go/token"
	"go/types"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// upward is how many pairs of files of a package may refer to each other against the order that has fewest of them. A
// reference up is one that a reader cannot follow from the bottom; a number that grows wants another cut.
var upward = map[string]int{
	"fsm/printable": 0, "fsm/machine/diag": 1, "fsm/machine/expr": 1, "fsm/machine/program": 4, "fsm/machine/lint": 0, "fsm": 0, "fsm/verify/prove": 4,
	"fsm/show/describe": 5, "fsm/show/graph": 1, "fsm/show/diff": 1, "fsm/verify/simulate": 8, "fsm/fsmtest": 0,
	"controllers/runner": 0,
}

// uses has, for each file, the files of its package in which something is declared that it reads.
type uses map[string]map[string]bool

// usesIn counts each file once, by the types: names, fields and methods alike.
func usesIn(t *testing.T, in tree, p listed) uses {
	t.Helper()
	all := uses{}
	for _, name := range p.GoFiles {
		all[name] = map[string]bool{}
	}
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}}
	pkg, err := (&types.Config{Importer: in.from}).Check(p.ImportPath, in.fset, in.parsed(t, p.Dir, p.GoFiles...), info)
	if err != nil {
		t.Fatal(err)
	}
	file := func(pos token.Pos) string { return filepath.Base(in.fset.Position(pos).Filename) }
	for id, o := range info.Uses {
		if _, named := o.(*types.PkgName); o.Pkg() == pkg && !named && file(o.Pos()) != file(id.Pos()) {
			all[file(id.Pos())][file(o.Pos())] = true
		}
	}
	return all
}

// pairs counts the references between files.
func (u uses) pairs() (n int) {
	for _, to := range u {
		n += len(to)
	}
	return n
}

// up counts those that lead up in an order of files, bottom to top.
func (u uses) up(order []string) int { return len(u.ups(order)) }

// ups names them.
func (u uses) ups(order []string) (all []string) {
	for i, f := range order {
		for _, above := range order[i+1:] {
			if u[f][above] {
				all = append(all, f+" → "+above)
			}
		}
	}
	return all
}

// order is one with few references up: each file comes after those that it refers to, and where that is a circle it is put
// where it has fewest, until that changes nothing. It need not be the best there is, and is the same each time.
func (u uses) order() []string {
	var best []string
	seen := map[string]bool{}
	var visit func(string)
	visit = func(f string) {
		if seen[f] {
			return
		}
		seen[f] = true
		for _, below := range slices.Sorted(maps.Keys(u[f])) {
			visit(below)
		}
		best = append(best, f)
	}
	for _, f := range slices.Sorted(maps.Keys(u)) {
		visit(f)
	}
	for better := true; better; {
		better = false
		for _, f := range slices.Clone(best) {
			rest := slices.DeleteFunc(slices.Clone(best), func(other string) bool { return other == f })
			for at := range best {
				if tried := slices.Insert(slices.Clone(rest), at, f); u.up(tried) < u.up(best) {
					best, better = tried, true
				}
			}
		}
	}
	return best
}

func TestFilesReferDown(t *testing.T) {
	all := list(t)
	for _, p := range all.ours {
		name := strings.TrimPrefix(p.ImportPath, module)
		most, known := upward[name]
		if room(name) != "fsm" && !known {
			continue
		}
		u := usesIn(t, all, p)
		order := u.order()
		up := u.up(order)
		t.Logf("%-13s %2d files, %3d references between them, %2d up: %s", name, len(u), u.pairs(), up, strings.Join(u.ups(order), ", "))
		if !known || up > most {
			t.Errorf("%s: %d references between files lead up in the best order found, at most %d may: move what they mean further down, or into a file of its own", name, up, most)
		}
	}
}

func TestOrderHasFewReferencesUp(t *testing.T) {
	cases := map[string]struct {
		why  string
		uses uses
		want int
	}{
		"chain":  {"there is an order without any", uses{"a": {"b": true}, "b": {"c": true}, "c": {}}, 0},
		"circle": {"one leads up, wherever it is begun", uses{"a": {"b": true}, "b": {"c": true}, "c": {"a": true}}, 1},
		"pairs":  {"each pair has one", uses{"a": {"b": true}, "b": {"a": true}, "c": {"d": true}, "d": {"c": true}}, 2},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if got := c.uses.up(c.uses.order()); got != c.want {
				t.Errorf("%s: %d, want %d", c.why, got, c.want)
			}
		})
	}
}
