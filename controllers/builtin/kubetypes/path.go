package kubetypes

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/phasegate/phasegate/fsm"
)

// PathFlaw is a path that leads to nothing in a kind.
type PathFlaw struct {
	fsm.Misfit
	// At is the name of the path that is wrong.
	At int
}

// PathMisfit compares a path with a kind; nil where it may lead to something, or the kind is not known.
func PathMisfit(apiVersion, kind string, path []string) *PathFlaw {
	t, known := typeOf(apiVersion, kind)
	if !known {
		return nil
	}
	for i, name := range path {
		name, each := strings.CutSuffix(name, "[*]")
		for t.Kind() == reflect.Pointer {
			t = t.Elem()
		}
		at := strings.Join(path[:i+1], ".")
		switch want := jsonType(t); {
		case want == "":
			return nil
		case want != "object":
			return &PathFlaw{At: i, Misfit: fsm.Misfit{Message: fmt.Sprintf("%s of a %s is %s, which has no field %s", strings.Join(path[:i], "."), kind, articles[want], name)}}
		case t.Kind() == reflect.Map:
			t = t.Elem()
		default:
			fields := map[string]reflect.Type{}
			fieldsOf(t, fields)
			if fields[name] == nil {
				return &PathFlaw{At: i, Misfit: fsm.Misfit{Message: fmt.Sprintf("a %s has no field %s", kind, at), Name: name, Known: slices.Sorted(maps.Keys(fields))}}
			}
			t = fields[name]
		}
		if each {
			for t.Kind() == reflect.Pointer {
				t = t.Elem()
			}
			if t.Kind() != reflect.Slice {
				return &PathFlaw{At: i, Misfit: fsm.Misfit{Message: fmt.Sprintf("%s of a %s is no list: leave [*] out", strings.TrimSuffix(at, "[*]"), kind)}}
			}
			t = t.Elem()
		}
	}
	return nil
}
