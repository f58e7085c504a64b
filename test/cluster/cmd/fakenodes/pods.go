package main

import (
	"context"
	"fmt"
	"hash/fnv"
	"os"

	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
)

// workers is how many pods are handled at once.
const workers = 8

// pods plays the kubelet for all pods of our nodes.
type pods struct {
	client kubernetes.Interface
	// nodes maps the name of each of our nodes to its index.
	nodes  map[string]int
	lister listers.PodLister
	queue  workqueue.TypedRateLimitingInterface[types.NamespacedName]
}

// runPods handles pods until the context ends.
func runPods(ctx context.Context, client kubernetes.Interface, nodes map[string]int) error {
	bound := informers.WithTweakListOptions(func(o *meta.ListOptions) {
		o.FieldSelector = fields.OneTermNotEqualSelector("spec.nodeName", "").String()
	})
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, bound)
	informer := factory.Core().V1().Pods()
	p := &pods{
		client: client, nodes: nodes, lister: informer.Lister(),
		queue: workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[types.NamespacedName]()),
	}
	_, err := informer.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    p.enqueue,
		UpdateFunc: func(_, changed any) { p.enqueue(changed) },
	})
	if err != nil {
		return fmt.Errorf("watch pods: %w", err)
	}
	factory.Start(ctx.Done())
	if !cache.WaitForCacheSync(ctx.Done(), informer.Informer().HasSynced) {
		return nil // the context has ended
	}
	for range workers {
		go p.work(ctx)
	}
	<-ctx.Done()
	p.queue.ShutDown()
	factory.Shutdown()
	return nil
}

func (p *pods) enqueue(object any) {
	if pod, ok := object.(*core.Pod); ok {
		p.queue.Add(types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name})
	}
}

func (p *pods) work(ctx context.Context) {
	for {
		name, shutdown := p.queue.Get()
		if shutdown {
			return
		}
		if err := p.handle(ctx, name); err == nil {
			p.queue.Forget(name)
		} else {
			if !apierrors.IsConflict(err) {
				fmt.Fprintf(os.Stderr, "fakenodes: pod %s: %v\n", name, err)
			}
			p.queue.AddRateLimited(name)
		}
		p.queue.Done(name)
	}
}

// handle brings one pod where it should be. A pod that is gone is fine.
func (p *pods) handle(ctx context.Context, name types.NamespacedName) error {
	pod, err := p.lister.Pods(name.Namespace).Get(name.Name)
	if err != nil {
		return ignoreNotFound(err)
	}
	index, ours := p.nodes[pod.Spec.NodeName]
	switch {
	case !ours:
		return nil
	case pod.DeletionTimestamp != nil:
		return ignoreNotFound(p.client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, meta.DeleteOptions{
			GracePeriodSeconds: ptr.To[int64](0),
			Preconditions:      meta.NewUIDPreconditions(string(pod.UID)),
		}))
	case pod.Status.Phase != core.PodPending && pod.Status.Phase != "":
		return nil
	}
	running := pod.DeepCopy()
	setRunning(running, nodeIP(index), meta.Now())
	_, err = p.client.CoreV1().Pods(pod.Namespace).UpdateStatus(ctx, running, meta.UpdateOptions{})
	return ignoreNotFound(err)
}

func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// setRunning writes the status that a kubelet would once all is well.
func setRunning(pod *core.Pod, hostIP string, now meta.Time) {
	status := &pod.Status
	status.Phase = core.PodRunning
	status.StartTime = &now
	status.HostIP, status.HostIPs = hostIP, []core.HostIP{{IP: hostIP}}
	status.PodIP = podIP(pod.UID)
	if pod.Spec.HostNetwork {
		status.PodIP = hostIP
	}
	status.PodIPs = []core.PodIP{{IP: status.PodIP}}
	status.InitContainerStatuses, status.ContainerStatuses = nil, nil
	for _, container := range pod.Spec.InitContainers {
		sidecar := container.RestartPolicy != nil && *container.RestartPolicy == core.ContainerRestartPolicyAlways
		status.InitContainerStatuses = append(status.InitContainerStatuses, containerStatus(container, sidecar, now))
	}
	for _, container := range pod.Spec.Containers {
		status.ContainerStatuses = append(status.ContainerStatuses, containerStatus(container, true, now))
	}
	conditions := []core.PodCondition{}
	for _, condition := range status.Conditions {
		if condition.Type == core.PodScheduled {
			conditions = append(conditions, condition)
		}
	}
	for _, kind := range []core.PodConditionType{core.PodInitialized, core.ContainersReady, core.PodReady} {
		conditions = append(conditions, core.PodCondition{Type: kind, Status: core.ConditionTrue, LastTransitionTime: now})
	}
	status.Conditions = conditions
}

// containerStatus is that of a container that runs, or has run and succeeded.
func containerStatus(container core.Container, running bool, now meta.Time) core.ContainerStatus {
	status := core.ContainerStatus{
		Name: container.Name, Image: container.Image, ImageID: container.Image,
		ContainerID: "fakenodes://" + container.Name, Ready: true, Started: ptr.To(running),
	}
	if running {
		status.State.Running = &core.ContainerStateRunning{StartedAt: now}
	} else {
		status.State.Terminated = &core.ContainerStateTerminated{Reason: "Completed", StartedAt: now, FinishedAt: now}
	}
	return status
}

// podIP is made from the UID, so that a restart of this program does not give
// an address twice. It is from 10.128.0.0/9.
func podIP(uid types.UID) string {
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(uid)) // never fails
	sum := hash.Sum32()
	return fmt.Sprintf("10.%d.%d.%d", 128+sum>>16&0x7f, sum>>8&0xff, sum&0xff)
}
