package main

import (
	"context"
	"fmt"
	"os"
	"time"

	coordination "k8s.io/api/coordination/v1"
	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"
)

// The periods of a kubelet: the node lifecycle controller believes a node dead
// after 40 seconds without a lease.
const (
	leasePeriod  = 10 * time.Second
	statusPeriod = time.Minute
	leaseSeconds = 40
)

// keepNode makes a node and renews it until the context ends. A failure is
// told and tried again at the next beat, because the API server may be away.
func keepNode(ctx context.Context, client kubernetes.Interface, name string, index int, version string) {
	report := func(err error) {
		if err != nil && ctx.Err() == nil {
			fmt.Fprintf(os.Stderr, "fakenodes: keep %s: %v\n", name, err)
		}
	}
	var lastStatus time.Time
	for {
		now := time.Now()
		report(renewLease(ctx, client, name, now))
		if now.Sub(lastStatus) >= statusPeriod {
			err := renewNode(ctx, client, newNode(name, index, version, now))
			report(err)
			if err == nil {
				lastStatus = now
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(leasePeriod):
		}
	}
}

// renewNode writes the status of a node, creating the node if need be.
func renewNode(ctx context.Context, client kubernetes.Interface, node *core.Node) error {
	_, err := client.CoreV1().Nodes().Create(ctx, node, meta.CreateOptions{})
	if !apierrors.IsAlreadyExists(err) {
		return err
	}
	existing, err := client.CoreV1().Nodes().Get(ctx, node.Name, meta.GetOptions{})
	if err != nil {
		return err
	}
	existing.Status = node.Status
	_, err = client.CoreV1().Nodes().UpdateStatus(ctx, existing, meta.UpdateOptions{})
	return err
}

// renewLease renews the lease of a node, creating it if need be.
func renewLease(ctx context.Context, client kubernetes.Interface, name string, now time.Time) error {
	leases := client.CoordinationV1().Leases(core.NamespaceNodeLease)
	spec := coordination.LeaseSpec{
		HolderIdentity:       ptr.To(name),
		LeaseDurationSeconds: ptr.To[int32](leaseSeconds),
		RenewTime:            ptr.To(meta.NewMicroTime(now)),
	}
	existing, err := leases.Get(ctx, name, meta.GetOptions{})
	if apierrors.IsNotFound(err) {
		_, err = leases.Create(ctx, &coordination.Lease{ObjectMeta: meta.ObjectMeta{Name: name}, Spec: spec}, meta.CreateOptions{})
		return err
	}
	if err != nil {
		return err
	}
	existing.Spec = spec
	_, err = leases.Update(ctx, existing, meta.UpdateOptions{})
	return err
}

// newNode describes a healthy node with room for any test.
func newNode(name string, index int, version string, now time.Time) *core.Node {
	capacity := core.ResourceList{
		core.ResourceCPU:              resource.MustParse("32"),
		core.ResourceMemory:           resource.MustParse("64Gi"),
		core.ResourceEphemeralStorage: resource.MustParse("100Gi"),
		core.ResourcePods:             resource.MustParse("110"),
	}
	return &core.Node{
		ObjectMeta: meta.ObjectMeta{
			Name: name,
			Labels: map[string]string{
				core.LabelHostname:   name,
				core.LabelOSStable:   "linux",
				core.LabelArchStable: "amd64",
				"type":               "fakenodes",
			},
		},
		Status: core.NodeStatus{
			Capacity:    capacity,
			Allocatable: capacity,
			Conditions:  nodeConditions(meta.NewTime(now)),
			Addresses: []core.NodeAddress{
				{Type: core.NodeInternalIP, Address: nodeIP(index)},
				{Type: core.NodeHostName, Address: name},
			},
			NodeInfo: core.NodeSystemInfo{
				Architecture: "amd64", OperatingSystem: "linux",
				KubeletVersion: version, ContainerRuntimeVersion: "fakenodes://", OSImage: "fakenodes",
			},
		},
	}
}

// nodeConditions are those that a kubelet reports, all well.
func nodeConditions(now meta.Time) []core.NodeCondition {
	states := []struct {
		kind   core.NodeConditionType
		status core.ConditionStatus
		reason string
	}{
		{core.NodeReady, core.ConditionTrue, "FakeNodeReady"},
		{core.NodeMemoryPressure, core.ConditionFalse, "FakeNodeHasMemory"},
		{core.NodeDiskPressure, core.ConditionFalse, "FakeNodeHasDisk"},
		{core.NodePIDPressure, core.ConditionFalse, "FakeNodeHasPIDs"},
		{core.NodeNetworkUnavailable, core.ConditionFalse, "FakeNodeHasNetwork"},
	}
	var conditions []core.NodeCondition
	for _, state := range states {
		conditions = append(conditions, core.NodeCondition{
			Type: state.kind, Status: state.status, Reason: state.reason,
			LastHeartbeatTime: now, LastTransitionTime: now,
		})
	}
	return conditions
}

// nodeIP is outside the ranges of Services and pods.
func nodeIP(index int) string { return fmt.Sprintf("10.64.%d.%d", index/250, index%250+1) }
