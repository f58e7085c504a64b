package crdgate

import (
	"time"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/types"
)

// wanted is the UID of the CRD that a controller should be running for, empty if
// none should.
//
// A CRD that is being deleted still counts: its objects may carry finalizers
// that only the controller removes, and without it the CRD would never go.
func wanted(crd *apiextensionsv1.CustomResourceDefinition) types.UID {
	if crd == nil || !apihelpers.IsCRDConditionTrue(crd, apiextensionsv1.Established) {
		return ""
	}
	return crd.UID
}

// situation is everything that decides what happens next.
type situation struct {
	// wanted is the UID of the CRD to run for, empty for none.
	wanted types.UID
	// running is the UID that the copy runs for, empty if there is no copy.
	running types.UID
	// stopping is set once the copy was told to stop; it still runs until it has
	// returned.
	stopping bool
	// resting is the UID whose copy returned by itself and is not yet due again.
	resting types.UID
}

type action string

const (
	wait  action = "wait"
	start action = "start"
	stop  action = "stop"
)

// decide is the whole policy. A copy for another UID is stopped, not reused: its
// informers belong to a CRD that is gone, perhaps with another schema.
func decide(s situation) action {
	switch {
	case s.running != "" && s.running != s.wanted && !s.stopping:
		return stop
	case s.running == "" && s.wanted != "" && s.wanted != s.resting:
		return start
	default:
		return wait
	}
}

const (
	firstRest = time.Second
	longRest  = time.Minute
)

// pauseAfter is the pause before a copy that returned by itself is started again, for
// the n-th time in a row (n starts at 1).
func pauseAfter(n int) time.Duration {
	d := firstRest
	for ; n > 1 && d < longRest; n-- {
		d *= 2
	}
	return min(d, longRest)
}
