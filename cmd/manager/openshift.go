package main

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
)

// openShiftGroup has the rules by which OpenShift refuses pods that name their user.
const openShiftGroup = "security.openshift.io"

// The values of --openshift.
const (
	openShiftAuto  = "auto"
	openShiftTrue  = "true"
	openShiftFalse = "false"
)

func (o *options) validateOpenShift() error {
	if !slices.Contains([]string{openShiftAuto, openShiftTrue, openShiftFalse}, o.openShift) {
		return fmt.Errorf("--openshift: %q is not known: write auto, true or false", o.openShift)
	}
	return nil
}

// openShiftOf is what tells whether the cluster is OpenShift; nil where the flag says no. The cluster is asked until it has
// answered once: it does not become another.
func (o *options) openShiftOf(cfg *rest.Config) func(context.Context) (bool, error) {
	if o.openShift == openShiftFalse {
		return nil
	}
	var known atomic.Pointer[bool]
	if o.openShift == openShiftTrue {
		known.Store(new(true))
	}
	return func(ctx context.Context) (bool, error) {
		if is := known.Load(); is != nil {
			return *is, nil
		}
		api, err := discovery.NewDiscoveryClientForConfig(cfg)
		if err != nil {
			return false, err
		}
		groups := &metav1.APIGroupList{}
		if err := api.RESTClient().Get().AbsPath("/apis").Do(ctx).Into(groups); err != nil {
			return false, fmt.Errorf("list the groups of the API server: %w", err)
		}
		is := slices.ContainsFunc(groups.Groups, func(g metav1.APIGroup) bool { return g.Name == openShiftGroup })
		known.Store(&is)
		return is, nil
	}
}
