// Package crdgate runs a controller exactly while its CRD is there: it starts
// when the CRD is Established, stops when the CRD goes, starts again when the
// CRD comes back, and is never there twice.
//
// It knows nothing of what the controller does, and it does not judge a CRD
// beyond its Established condition.
//
// # No second copy, by construction
//
// One goroutine (loop.serve) owns everything there is to know about the copy of
// the controller, and a new copy can only be begun in the state that the end of
// the old one leads to. The watch tells this goroutine nothing but "look again":
// what to do is decided from the newest state (decide), so lost or merged events
// (a CRD deleted and created within a moment) cannot mislead it.
package crdgate

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-logr/logr"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// Gate ties a controller to a CRD. It is a manager.Runnable that runs on the
// leader only; add it with manager.Add. It needs to list and watch the one
// CustomResourceDefinition named CRDName.
type Gate struct {
	// CRDName is the CRD's full name, "<plural>.<group>".
	CRDName string
	// Config reaches the API server whose CRD is watched.
	Config *rest.Config
	// Run is the controller. It blocks until its context is done and has freed
	// everything it used when it returns (RunController does). It is called once
	// for each life of the CRD, and again, after a pause that grows from 1 s to
	// 1 min, whenever it returned without having been told to.
	Run func(context.Context) error
}

var (
	_ manager.Runnable               = &Gate{}
	_ manager.LeaderElectionRunnable = &Gate{}
)

// NeedLeaderElection makes the manager start the gate on the leader only.
func (g *Gate) NeedLeaderElection() bool { return true }

// Start watches the CRD and runs the controller until ctx is done, then waits
// for the controller to end. The error is about a Gate that was not filled in
// properly; an API server that cannot be reached is waited for. It may be called
// again after it has returned.
func (g *Gate) Start(ctx context.Context) error {
	if g.CRDName == "" || g.Config == nil || g.Run == nil {
		return errors.New("crdgate: CRDName, Config and Run are all needed: fill in the Gate")
	}
	crds, err := clientset.NewForConfig(g.Config)
	if err != nil {
		return fmt.Errorf("crdgate %s: make a client for CRDs: %w", g.CRDName, err)
	}

	logger := log.FromContext(ctx).WithName("crdgate").WithValues("crd", g.CRDName)
	ctx = log.IntoContext(ctx, logger)
	changed := make(chan struct{}, 1)
	store, informer := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: cache.NewListWatchFromClient(crds.ApiextensionsV1().RESTClient(),
			"customresourcedefinitions", "", fields.OneTermEqualSelector("metadata.name", g.CRDName)),
		ObjectType: &apiextensionsv1.CustomResourceDefinition{},
		Handler:    lookAgain(changed),
		Logger:     &logger,
	})
	watchEnded := make(chan struct{})
	go func() {
		defer close(watchEnded)
		informer.RunWithContext(ctx)
	}()

	g.loop(logger, changed, func() types.UID { return wanted(fromStore(store, g.CRDName)) }).serve(ctx)
	<-watchEnded
	return nil
}

func (g *Gate) loop(logger logr.Logger, changed <-chan struct{}, want func() types.UID) *loop {
	return &loop{
		run:      g.Run,
		want:     want,
		changed:  changed,
		log:      logger,
		running:  runningGauge.WithLabelValues(g.CRDName),
		restarts: restartsCounter.WithLabelValues(g.CRDName),
	}
}

// lookAgain puts a token into changed at every event. One token is enough: it
// says nothing but that the store must be looked at.
func lookAgain(changed chan<- struct{}) cache.ResourceEventHandler {
	poke := func() {
		select {
		case changed <- struct{}{}:
		default:
		}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { poke() },
		UpdateFunc: func(any, any) { poke() },
		DeleteFunc: func(any) { poke() },
	}
}

// fromStore is the CRD as last seen, nil if it does not exist.
func fromStore(store cache.Store, name string) *apiextensionsv1.CustomResourceDefinition {
	obj, exists, err := store.GetByKey(name)
	if err != nil || !exists {
		return nil
	}
	return obj.(*apiextensionsv1.CustomResourceDefinition)
}
