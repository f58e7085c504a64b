package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/cmd/kubectl-phasegate/internal/live"
	"github.com/phasegate/phasegate/cmd/kubectl-phasegate/internal/statusview"
	"github.com/phasegate/phasegate/controllers/catalog"
	"github.com/phasegate/phasegate/controllers/machinestore/definitions"
	"github.com/phasegate/phasegate/fsm"
)

// known are the machines that a command may be about: those of -f, else those that managers
// have published, and for a kind that nobody has published one for the compiled-in one.
type known struct {
	client client.Client
	mapper meta.RESTMapper
	all    []candidate
	// unread says why nothing that is published could be read; empty where it could.
	unread string
	// caller is what the commands need that are shown.
	caller statusview.Caller
	// namespace is that of the flag, else of the context.
	namespace string
}

type candidate struct {
	name string
	kind schema.GroupVersionKind
	// published has one for each manager that runs it; without any, the machine is at hand.
	published []definitions.Published
	atHand    *fsm.Machine
	// compiled says that the machine at hand is not that of -f.
	compiled bool
	// instead is the compiled-in machine of the name, for a published one that this program cannot
	// read; warn says why it is taken.
	instead *fsm.Machine
	warn    func(machine string, why error)
}

func (c *cluster) machines(ctx context.Context, s streams, files []string) (*known, error) {
	k := &known{}
	var err error
	if k.client, k.mapper, err = c.connect(); err != nil {
		return nil, err
	}
	if k.namespace, err = c.namespace(); err != nil {
		return nil, err
	}
	k.caller = statusview.Caller{Flags: c.given(), File: strings.Join(quoted(files), ",")}
	var published []definitions.Published
	if len(files) == 0 {
		if published, k.unread, err = c.published(ctx); err != nil {
			return nil, err
		}
	}
	machines, err := readMachines(s, files)
	if err != nil {
		return nil, err
	}
	k.all = candidates(published, machines, len(files) == 0)
	for i := range k.all {
		k.all[i].warn = c.warn(s)
	}
	return k, nil
}

// warn says once for each machine that another one is taken for it.
func (c *cluster) warn(s streams) func(machine string, why error) {
	return func(machine string, why error) {
		if !slices.Contains(c.warned, machine) {
			c.warned = append(c.warned, machine)
			say(s.err, "‼ %s; until then, this output uses machine %s as compiled into this program", why, machine)
		}
	}
}

// published reads what managers have published, without asking first what the cluster serves.
func (c *cluster) published(ctx context.Context) ([]definitions.Published, string, error) {
	cfg, err := c.rest()
	if err != nil {
		return nil, "", err
	}
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{v1alpha1.GroupVersion, apiextensionsv1.SchemeGroupVersion})
	mapper.Add(v1alpha1.GroupVersion.WithKind("MachineDefinition"), meta.RESTScopeRoot)
	mapper.Add(apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition"), meta.RESTScopeRoot) // which says whether there are any
	reader, err := client.New(cfg, client.Options{Mapper: mapper})
	if err != nil {
		return nil, "", err
	}
	return definitions.List(ctx, reader)
}

// candidates is pure: the published machines, and those at hand whose kind none of them is for. A
// compiled-in one stands by for a published one of its name.
func candidates(published []definitions.Published, atHand []*fsm.Machine, compiled bool) (all []candidate) {
	for _, p := range published {
		i := slices.IndexFunc(all, func(c candidate) bool { return c.name == p.Machine })
		if i < 0 {
			i, all = len(all), append(all, candidate{name: p.Machine, kind: schema.FromAPIVersionAndKind(p.For.APIVersion, p.For.Kind)})
		}
		all[i].published = append(all[i].published, p)
	}
	for _, m := range atHand {
		kind := schema.FromAPIVersionAndKind(m.For().APIVersion, m.For().Kind)
		if !slices.ContainsFunc(all, func(c candidate) bool { return c.kind.GroupKind() == kind.GroupKind() && len(c.published) > 0 }) {
			all = append(all, candidate{name: m.Name(), kind: kind, atHand: m, compiled: compiled})
		}
		if i := slices.IndexFunc(all, func(c candidate) bool { return compiled && c.name == m.Name() && c.kind == kind }); i >= 0 {
			all[i].instead = m
		}
	}
	return all
}

// machine is the one that drives an object; a zero object stands for any. A published one of a
// newer manager, which this program cannot read, is told by the compiled-in one, if there is one.
func (c candidate) machine(o live.Object) (*fsm.Machine, error) {
	p, ok := definitions.Driver(c.published, o.Manager, o.Machine.Revision)
	if !ok {
		return c.atHand, nil
	}
	m, err := p.Compile(catalog.Bindings)
	if err == nil || c.instead == nil {
		return m, err
	}
	if c.warn != nil {
		c.warn(c.name, err)
	}
	return c.instead, nil
}

// anew is a candidate as managers publish it by now. It keeps what stands by for it.
func (k *known) anew(ctx context.Context, c candidate) (candidate, error) {
	published, _, err := definitions.List(ctx, k.client)
	for _, now := range candidates(published, nil, false) {
		if now.name == c.name {
			now.instead, now.warn = c.instead, c.warn
			return now, nil
		}
	}
	return c, err
}

func (c candidate) lowerKind() string { return strings.ToLower(c.kind.Kind) }

// noted says on stderr that a machine may not be the one that the manager runs.
func (k *known) noted(s streams, c candidate) {
	if c.compiled {
		why := cmp.Or(k.unread, "no manager has published it")
		say(s.err, "‼ the file that drives %s is unknown (%s): this output uses machine %s as compiled into this program; give the manager's file with -f", c.kind.Kind, why, c.name)
	}
}

// driving is the machine for objects of a kind, and the candidate that it is of.
func (k *known) driving(s streams, kind string) (candidate, *fsm.Machine, error) {
	among, err := k.ofKind(kind)
	if err != nil {
		return candidate{}, nil, err
	}
	k.noted(s, among[0])
	m, err := among[0].machine(live.Object{})
	return among[0], m, err
}

// ofKind are the machines for what a user calls a kind: kind, resource or short name, with or
// without version and group; all of them for an empty text.
func (k *known) ofKind(text string) ([]candidate, error) {
	if text == "" {
		return k.all, nil
	}
	of := func(fits func(candidate) bool) []candidate {
		return slices.DeleteFunc(slices.Clone(k.all), func(c candidate) bool { return !fits(c) })
	}
	found := of(func(c candidate) bool {
		full := c.lowerKind() + "." + c.kind.Group
		return slices.Contains([]string{c.lowerKind(), full}, strings.ToLower(text))
	})
	if len(found) == 0 {
		group, err := kindFor(k.mapper, text)
		if err != nil {
			return nil, err
		}
		if found = of(func(c candidate) bool { return c.kind.GroupKind() == group }); len(found) == 0 {
			return nil, fmt.Errorf("no machine drives %s: no manager has published one: give its file with -f", group)
		}
	}
	if i := slices.IndexFunc(found, func(c candidate) bool { return c.kind.GroupKind() != found[0].kind.GroupKind() }); i > 0 {
		return nil, fmt.Errorf("which %s? write %s.%s or %s.%s", text, found[0].lowerKind(), found[0].kind.Group, found[i].lowerKind(), found[i].kind.Group)
	}
	return found, nil
}

// target is the object that a command is about, and the machine that drives it.
type target struct {
	candidate
	driver *fsm.Machine
	object live.Object
	// left are objects that are gone, whose states are there.
	left []live.Object
}

func (t target) String() string { return t.lowerKind() + "/" + t.object.Name }

// errNothing is wrapped by the error that says that there is no such object. Objects that are
// gone, and whose state is there, come with it.
var errNothing = errors.New("there is no object")

// errNoMachine says that no machine fits, where no kind was given.
var errNoMachine = errors.New("no machine fits: give its file with -f")

// find answers the object that the arguments are about: that of a name, else the only one. A word
// that is no name may be a kind.
func (k *known) find(ctx context.Context, s streams, args []string, fits func(*fsm.Machine) bool) (target, error) {
	kind, name := parseTarget(args)
	one, err := k.search(ctx, kind, name, fits)
	if errors.Is(err, errNothing) && kind == "" && name != "" && len(one.left) == 0 {
		if _, unknown := k.ofKind(name); unknown == nil {
			one, err = k.search(ctx, name, "", fits)
		}
	}
	if err != nil {
		return one, err
	}
	k.noted(s, one.candidate)
	noted(s, one.object)
	return one, nil
}

// search is find for a kind and a name, either of which may be empty. Only machines that fit count,
// where no kind is given.
func (k *known) search(ctx context.Context, kind, name string, fits func(*fsm.Machine) bool) (target, error) {
	among, err := k.ofKind(kind)
	if err != nil {
		return target{}, err
	}
	found := search{known: k, name: name, kind: kind}
	for _, c := range among {
		if err := found.look(ctx, c, fits); err != nil {
			return target{}, err
		}
	}
	return found.only()
}

type search struct {
	*known
	kind, name string
	found      []target
	left       []target
	looked     []string
	// refused is the first error that says that one may not look, missing that there is no
	// such object.
	refused, missing error
}

func (f *search) look(ctx context.Context, c candidate, fits func(*fsm.Machine) bool) error {
	known, err := c.machine(live.Object{})
	if err != nil && f.kind == "" {
		f.refused = cmp.Or(f.refused, err)
		return nil
	}
	if err != nil {
		return err
	}
	if f.kind == "" && !fits(known) {
		return nil
	}
	f.looked = append(f.looked, c.kind.Kind)
	objects, err := f.objects(ctx, known, c)
	switch {
	case apierrs.IsForbidden(err):
		f.refused = cmp.Or(f.refused, err)
	case apierrs.IsNotFound(err), meta.IsNoMatchError(err):
		f.missing = cmp.Or(f.missing, err)
	case err != nil:
		return err
	}
	for _, o := range objects {
		t := target{candidate: c, object: o}
		if o.Gone {
			t.driver = known
			f.left = append(f.left, t)
			continue
		}
		if t.driver, err = c.machine(o); err != nil {
			return err
		}
		f.found = append(f.found, t)
	}
	return nil
}

func (f *search) objects(ctx context.Context, m *fsm.Machine, c candidate) ([]live.Object, error) {
	if f.name == "" {
		return live.List(ctx, f.client, m, f.within(c))
	}
	key := client.ObjectKey{Namespace: f.within(c), Name: f.name}
	o, err := live.Get(ctx, f.client, m, key)
	if err == nil && o.Saved != nil {
		return []live.Object{o}, nil
	}
	if err != nil && !apierrs.IsNotFound(err) && !meta.IsNoMatchError(err) {
		return nil, err
	}
	left, failed := live.Left(ctx, f.client, m, key)
	if err == nil {
		left = slices.Insert(left, 0, o)
	}
	return left, errors.Join(err, failed)
}

// within is the namespace to look in: none for kinds that have none.
func (k *known) within(c candidate) string {
	mapping, err := k.mapper.RESTMapping(c.kind.GroupKind(), c.kind.Version)
	if err == nil && mapping.Scope.Name() == meta.RESTScopeNameRoot {
		return ""
	}
	return k.namespace
}

const maxNamed = 10

// only is the one that was found. Where no name was given, those of kinds without a namespace
// come first.
func (f *search) only() (target, error) {
	found := f.found
	if f.name == "" {
		if wide := slices.DeleteFunc(slices.Clone(found), func(t target) bool { return t.object.Namespace != "" }); len(wide) > 0 {
			found = wide
		}
	}
	switch {
	case len(found) == 1:
		return f.withLeft(found[0]), nil
	case len(found) > 1:
		var names []string
		for _, t := range found[:min(len(found), maxNamed)] {
			names = append(names, t.String())
		}
		if more := len(found) - len(names); more > 0 {
			names = append(names, fmt.Sprintf("and %d more", more))
		}
		return target{}, fmt.Errorf("which one? give one of: %s", strings.Join(names, ", "))
	case f.refused != nil:
		return target{}, fmt.Errorf("%w: give the kind and the name of one that you may read", f.refused)
	}
	return f.nothing()
}

func (f *search) withLeft(one target) target {
	for _, t := range f.left {
		if t.name == one.name {
			one.left = append(one.left, t.object)
		}
	}
	return one
}

// nothing says what there is not, with what is left of objects that are gone.
func (f *search) nothing() (one target, err error) {
	if len(f.left) > 0 {
		one = f.withLeft(target{candidate: f.left[0].candidate, driver: f.left[0].driver})
	}
	kinds := strings.Join(f.looked, ", ")
	switch {
	case len(f.looked) == 0:
		return one, errNoMachine
	case f.name == "":
		return one, fmt.Errorf("%w of %s: create one (docs/operate/migrate.md, docs/extend/new-machine.md), or choose another namespace with -n or cluster with --context", errNothing, kinds)
	case len(f.looked) == 1 && f.missing != nil:
		return one, f.missing
	}
	return one, fmt.Errorf("%w %s of %s in namespace %s: give its kind, or its namespace with -n", errNothing, f.name, kinds, f.namespace)
}
