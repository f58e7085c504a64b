package datastoremigration

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/controllers/datastoremigration/backupstore"
	"github.com/phasegate/phasegate/controllers/runner"
	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/resources"
)

// servedBy is the APIService of v3 while a server behind a Service answers it.
func servedBy(namespace, name string) *apiregistrationv1.APIService {
	return &apiregistrationv1.APIService{ObjectMeta: metav1.ObjectMeta{Name: apiServiceName},
		Spec: apiregistrationv1.APIServiceSpec{Group: resources.V3Group, Version: resources.V3Version,
			Service: &apiregistrationv1.ServiceReference{Namespace: namespace, Name: name}}}
}

// What a migration or an APIService brings along from another cluster, or from git, is no record of this migration.
func TestTheAPIServiceOfAnotherMigration(t *testing.T) {
	saved, err := saveAPIService(servedBy("mine", "mine"))
	must(t, err)
	cases := map[string]struct {
		why       string
		migration string    // what the migration itself bears
		absent    bool      // there is no APIService
		service   string    // what the APIService bears
		by        types.UID // whose it is said to be
		restored  bool
	}{
		"on the migration":                    {why: "who may create migrations may not create APIServices", migration: saved},
		"on the migration, without a service": {why: "nor point v3 to nowhere", migration: saved, absent: true},
		"of another migration":                {why: "another cluster has another server, if any", service: saved, by: "other"},
		"of nobody":                           {why: "a note that does not say whose it is may be anybody's", service: saved},
		"of this migration":                   {why: "its state was lost", service: saved, by: "u", restored: true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			dm := &migration{ObjectMeta: metav1.ObjectMeta{Name: "to-v3", UID: "u"}}
			if c.migration != "" {
				dm.Annotations = map[string]string{migrationv1.AnnotationSavedAPIService: c.migration}
			}
			cl := newFake().WithStatusSubresource(dm).WithObjects(dm).Build()
			if !c.absent {
				crds := &apiregistrationv1.APIService{ObjectMeta: metav1.ObjectMeta{Name: apiServiceName}, Spec: apiregistrationv1.APIServiceSpec{Group: resources.V3Group, Version: resources.V3Version}}
				if c.service != "" {
					crds.Annotations = map[string]string{migrationv1.AnnotationSavedAPIService: c.service, migrationv1.AnnotationLockedBy: string(c.by)}
				}
				must(t, cl.Create(t.Context(), crds))
			}
			_, err := runner.Once(t.Context(), cl, dm, actionOn(cl, "RestoreAPIService"), nil, clock.RealClock{})
			must(t, err)
			all := &apiregistrationv1.APIServiceList{}
			must(t, cl.List(t.Context(), all))
			if restored := len(all.Items) > 0 && isAggregated(&all.Items[0]); restored != c.restored || len(all.Items) > 0 && c.absent {
				t.Errorf("the APIServices are %v: %s", all.Items, c.why)
			}
		})
	}
}

// Whether a backup is wanted, and how far it is, is on record where nobody else writes: an annotation comes from
// git, from another cluster, and goes with the next apply.
func TestTheBackupIsOnRecord(t *testing.T) {
	withoutRace(t)
	const annotation = "migration.projectcalico.org/backup"
	cases := map[string]struct {
		why  string
		note string // what the object bears; empty: it bears nothing
		torn bool   // a part was lost since the backup was written
	}{
		"taken off":              {why: "GitOps takes off what it does not know", torn: true},
		"whole, says the object": {why: "that was another cluster's", note: "Whole"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			b := newBackedUp(t, 7)
			must(t, b.Create(t.Context(), v3PoolCRD(time.Now())))
			b.note(t, migrationv1.AnnotationWaive, waiveV1Changed+"@u-1")
			if c.torn {
				must(t, b.backUp(t, b.WithWatch, nil))
				must(t, b.Delete(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "calico-system", Name: "to-v3-v1-backup-1"}}))
			}
			dm := &migration{}
			must(t, b.Get(t.Context(), client.ObjectKeyFromObject(b.dm), dm))
			delete(dm.Annotations, annotation)
			if c.note != "" {
				dm.Annotations[annotation] = c.note
			}
			must(t, b.Update(t.Context(), dm))
			if !c.torn {
				must(t, b.backUp(t, b.WithWatch, nil))
			}
			must(t, b.run(t, b.WithWatch, CleanUpAction, nil))
			index, err := (&backupstore.Store{Client: b.WithWatch, Namespace: "calico-system", Migration: b.dm}).Read(t.Context())
			if err != nil || index == nil || index.Objects["IPPool"] != 7 {
				t.Errorf("v1 is gone, and the backup has %+v, %v: %s", index, err, c.why)
			}
		})
	}
}

// A waiver is about what a person has seen: one that comes with the manifest from elsewhere waives nothing.
func TestWaiversAreBound(t *testing.T) {
	for given, want := range map[string]string{
		"dependents@u":                     "[dependents]",
		" dependents@u , memory@u":         "[dependents memory]",
		"dependents":                       "[]",
		"dependents@other":                 "[]",
		"dependents@":                      "[]",
		"dependents@other,v1-changed@u":    "[v1-changed]",
		"dependents@u@other":               "[]",
		strings.Repeat("dependents@", 3):   "[]",
		"v1-changed@u dependents v1-kinds": "[v1-changed]",
	} {
		dm := &migration{ObjectMeta: metav1.ObjectMeta{Name: "to-v3", UID: "u", Annotations: map[string]string{migrationv1.AnnotationWaive: given}}}
		waived := slices.DeleteFunc([]string{"dependents", "memory", "v1-changed", "v1-kinds"}, func(id string) bool { return !isWaived(dm, id) })
		if got := fmt.Sprint(waived); got != want {
			t.Errorf("%q waives %s, want %s", given, got, want)
		}
	}
}

// A MachineState that a restore brought into a cluster in which its migration has not parked anything tells of
// another APIService: v3 would point to a server that is not there.
func TestAStateFromElsewhereParksNothing(t *testing.T) {
	saved, err := saveAPIService(servedBy("calico-apiserver", "calico-api"))
	must(t, err)
	cases := map[string]struct {
		why            string
		parkedBy       string // the mark on the APIService
		v1LockedBy     string
		wantAggregated bool
	}{
		"nothing of its":        {why: "the cluster has been migrated since"},
		"another migration's":   {why: "that one releases itself", parkedBy: "other", v1LockedBy: "other"},
		"parked by it":          {why: "its finalizer was removed by hand", parkedBy: "u", wantAggregated: true},
		"v1 is locked by it":    {why: "kube-apiserver has made the APIService anew, without the mark", v1LockedBy: "u", wantAggregated: true},
		"locked and marked too": {why: "as it was left", parkedBy: "u", v1LockedBy: "u", wantAggregated: true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			state := &v1alpha1.MachineState{Spec: v1alpha1.MachineStateSpec{Machine: MachineName, Object: v1alpha1.ObjectReference{
				APIVersion: migrationv1.GroupVersion.String(), Kind: "DatastoreMigration", Name: "to-v3", UID: "u"}}}
			state.Name = v1alpha1.MachineStateName(MachineName, "u")
			state.Status.Phase, state.Status.Held = "Migrating", v1alpha1.Held("apiService")
			state.Status.Saved = map[string]v1alpha1.SavedText{savedAPIServiceKey: v1alpha1.SavedText(saved)}
			crds := &apiregistrationv1.APIService{ObjectMeta: metav1.ObjectMeta{Name: apiServiceName}, Spec: apiregistrationv1.APIServiceSpec{Group: resources.V3Group, Version: resources.V3Version}}
			if c.parkedBy != "" {
				crds.Annotations = map[string]string{migrationv1.AnnotationLockedBy: c.parkedBy}
			}
			lock := lockObject(false)
			lock.SetAnnotations(map[string]string{migrationv1.AnnotationLockedBy: c.v1LockedBy})
			cl := newFake().WithObjects(state, crds, lock).Build()
			machine, diags := fsm.Bind(shipped(t), Bindings())
			must(t, diags.Err())
			r := &runner.Reconciler[*migration]{Client: cl, Machine: func() *fsm.Machine { return machine }, Clock: clock.RealClock{},
				Program:  Program(cl, Settings{Registry: resources.Default(), CalicoNamespace: "calico-system", Discovery: nothingServed()}),
				Recorder: events.NewFakeRecorder(100), Metrics: runner.NewMetrics(prometheus.NewRegistry())}
			for range 10 {
				_, err := r.ReconcileState(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(state)})
				must(t, err)
			}
			if err := cl.Get(t.Context(), client.ObjectKeyFromObject(state), state); !apierrs.IsNotFound(err) {
				t.Errorf("the state: %v, held %v", err, state.Status.Held)
			}
			must(t, cl.Get(t.Context(), client.ObjectKeyFromObject(crds), crds))
			if isAggregated(crds) != c.wantAggregated {
				t.Errorf("v3 points to a server: %t: %s", isAggregated(crds), c.why)
			}
		})
	}
}
