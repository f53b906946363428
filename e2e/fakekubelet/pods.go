package fakekubelet

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/lodestone-storage/lodestone/e2e/retryingwatch"
)

// Runner really runs pods of ordinary nodes. Package processes has one.
type Runner interface {
	// Runs reports whether a pod is really run; others are played.
	Runs(pod *corev1.Pod) bool

	// Run starts a pod unless it runs already, and returns its status. volumes are
	// what its claims are bound to, by the name of the pod's own volume.
	Run(ctx context.Context, pod *corev1.Pod, volumes map[string]*corev1.PersistentVolume) (corev1.PodStatus, error)

	// End ends what runs of the pods of a name, and returns when nothing does.
	End(namespace, name string)

	// Notify has look called when the status of a pod has changed.
	Notify(look func(pod *corev1.Pod))
}

// syncRun takes a pod that is really run a step on.
func (h *Kubelets) syncRun(ctx context.Context, p *player, pod *corev1.Pod) error {
	switch {
	case pod.DeletionTimestamp != nil:
		h.runner.End(pod.Namespace, pod.Name)
		return h.endLocal(ctx, pod)
	case finished(pod):
		return nil
	}
	if pod.Status.Phase != corev1.PodRunning {
		if found, err := h.mountProblem(ctx, p, pod); found != nil || err != nil {
			if found != nil {
				h.complain(pod, "FailedMount", found)
				h.queue.AddAfter(keyOf(pod), problemRetry)
			}
			return err
		}
	}
	volumes, err := h.mounted(ctx, pod)
	if err != nil {
		return err
	}
	status, err := h.runner.Run(ctx, pod, volumes)
	if err != nil {
		return fmt.Errorf("run pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	if equality.Semantic.DeepEqual(status.ContainerStatuses, pod.Status.ContainerStatuses) && status.Phase == pod.Status.Phase {
		return nil
	}
	return patchStatus(ctx, h.client, pod, status)
}

// mounted returns the volumes behind the claims of a pod, by the pod's own names
// for them.
func (h *Kubelets) mounted(ctx context.Context, pod *corev1.Pod) (map[string]*corev1.PersistentVolume, error) {
	volumes := map[string]*corev1.PersistentVolume{}
	read := h.liveReader(ctx, pod.Namespace)
	for _, source := range pod.Spec.Volumes {
		name, ok := claimName(pod, source)
		if !ok {
			continue
		}
		claim, err := read.claim(name)
		if err != nil || claim == nil {
			return nil, fmt.Errorf("read claim %s/%s, which a pod mounts: %w", pod.Namespace, name, err)
		}
		volume, err := read.volume(claim.Spec.VolumeName)
		if err != nil || volume == nil {
			return nil, fmt.Errorf("read volume %s, which a pod mounts: %w", claim.Spec.VolumeName, err)
		}
		volumes[source.Name] = volume
	}
	return volumes, nil
}

const (
	byClaim = "claim"
	byNode  = "node"
)

func indexByClaim(object any) ([]string, error) {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return nil, nil
	}
	var keys []string
	for _, volume := range pod.Spec.Volumes {
		if name, ok := claimName(pod, volume); ok {
			keys = append(keys, pod.Namespace+"/"+name)
		}
	}
	return keys, nil
}

func indexByNode(object any) ([]string, error) {
	if pod, ok := object.(*corev1.Pod); ok {
		return []string{pod.Spec.NodeName}, nil
	}
	return nil, nil
}

func keyOf(pod *corev1.Pod) podKey {
	return podKey{namespace: pod.Namespace, name: pod.Name, node: pod.Spec.NodeName}
}

func (h *Kubelets) enqueuePod(object any) {
	if tombstone, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = tombstone.Obj
	}
	if pod, ok := object.(*corev1.Pod); ok && h.player(pod.Spec.NodeName) != nil {
		h.queue.Add(keyOf(pod))
	}
}

func (h *Kubelets) enqueueUsersOfClaim(object any) {
	if claim, ok := object.(*corev1.PersistentVolumeClaim); ok {
		h.enqueueIndexed(byClaim, claim.Namespace+"/"+claim.Name)
	}
}

func (h *Kubelets) enqueueUsersOfVolume(object any) {
	if volume, ok := object.(*corev1.PersistentVolume); ok && volume.Spec.ClaimRef != nil {
		h.enqueueIndexed(byClaim, volume.Spec.ClaimRef.Namespace+"/"+volume.Spec.ClaimRef.Name)
	}
}

func (h *Kubelets) enqueueIndexed(index, value string) {
	pods, err := h.pods.GetIndexer().ByIndex(index, value)
	if err != nil {
		klog.FromContext(h.ctx).Error(err, "Looking up pods failed", "index", index)
		return
	}
	for _, pod := range pods {
		h.enqueuePod(pod)
	}
}

func (h *Kubelets) work() {
	for {
		key, shutdown := h.queue.Get()
		if shutdown {
			return
		}
		ctx, cancel := context.WithTimeout(h.ctx, 4*callTimeout)
		err := h.sync(ctx, key)
		cancel()
		if err != nil && h.ctx.Err() == nil {
			klog.FromContext(h.ctx).V(2).Info("Retrying a pod", "pod", klog.KRef(key.namespace, key.name), "node", key.node, "err", err)
			h.queue.AddRateLimited(key)
		} else {
			h.queue.Forget(key)
		}
		h.queue.Done(key)
	}
}

// sync takes one pod a step on. Pods of nodes that are not alive are left as they are,
// as by a kubelet that is gone.
func (h *Kubelets) sync(ctx context.Context, key podKey) error {
	p := h.player(key.node)
	if p == nil || !p.alive() {
		return nil
	}
	pod, err := h.cachedPod(key)
	if err != nil {
		return err
	}
	if p.remote != nil {
		return h.syncVirtual(ctx, p, key, pod)
	}
	if p.node.Attach {
		if err := h.reportUse(ctx, p); err != nil {
			return err
		}
	}
	if pod == nil {
		if h.runner != nil {
			h.runner.End(key.namespace, key.name)
		}
		h.forget(key)
		return nil
	}
	return h.syncLocal(ctx, p, pod)
}

// cachedPod returns the pod if it exists and is bound to the key's node, otherwise nil.
func (h *Kubelets) cachedPod(key podKey) (*corev1.Pod, error) {
	object, exists, err := h.pods.GetStore().GetByKey(key.namespace + "/" + key.name)
	if err != nil || !exists {
		return nil, err
	}
	pod := object.(*corev1.Pod)
	if pod.Spec.NodeName != key.node {
		return nil, nil
	}
	return pod, nil
}

// player plays one node.
type player struct {
	node   Node
	remote *remoteSession // of a virtual node, else nil
	silent atomic.Bool    // set by SetAlive
	inUse  inUse
	cancel context.CancelFunc
	done   sync.WaitGroup
}

// alive reports whether the node's kubelet works: that of a virtual node does not
// while its remote cluster is unreachable.
func (p *player) alive() bool {
	return !p.silent.Load() && (p.remote == nil || p.remote.up.Load())
}

func (h *Kubelets) player(name string) *player {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.played[name]
}

// AddNodes registers more nodes and waits until pods can be scheduled to them; to
// virtual nodes only if their remote cluster can be reached.
func (h *Kubelets) AddNodes(ctx context.Context, nodes ...Node) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(32)
	for _, node := range nodes {
		group.Go(func() error { return h.addNode(ctx, node) })
	}
	return group.Wait()
}

func (h *Kubelets) addNode(ctx context.Context, node Node) error {
	if err := node.validate(); err != nil {
		return err
	}
	playCtx, cancel := context.WithCancel(h.ctx)
	p := &player{node: node, cancel: cancel}
	if err := h.admit(p); err != nil {
		cancel()
		return err
	}
	if err := h.register(ctx, node); err != nil {
		h.dismiss(node.Name)
		return err
	}
	if p.remote != nil {
		p.remote.openIfReady(playCtx, h.enqueueCopy)
		p.done.Go(func() { p.remote.run(playCtx, h.enqueueCopy, func() { h.revive(playCtx, p) }) })
	}
	p.done.Go(func() { h.heartbeat(playCtx, p) })
	if p.alive() {
		if err := h.waitSchedulable(ctx, node.Name); err != nil {
			return err
		}
	}
	h.enqueueIndexed(byNode, node.Name)
	return nil
}

// admit makes the player known, so that events of its pods are heeded.
func (h *Kubelets) admit(p *player) error {
	if remote := p.node.Remote; remote != nil {
		client, err := kubernetes.NewForConfig(retryingwatch.Config(remote.Config))
		if err != nil {
			return fmt.Errorf("make the client of cluster %s: %w", remote.ID, err)
		}
		p.remote = &remoteSession{remote: remote, client: client, period: h.leasePeriod}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.played[p.node.Name] != nil {
		return fmt.Errorf("node %s is played already", p.node.Name)
	}
	h.played[p.node.Name] = p
	return nil
}

// dismiss ends the play of a node; it reports whether there was one.
func (h *Kubelets) dismiss(name string) bool {
	h.mu.Lock()
	p := h.played[name]
	delete(h.played, name)
	h.mu.Unlock()
	if p == nil {
		return false
	}
	p.cancel()
	p.done.Wait()
	return true
}

// RemoveNode stops playing a node and deletes its Node object, as when a machine is
// taken away. Pods on it are left to the cluster's controllers.
func (h *Kubelets) RemoveNode(ctx context.Context, name string) error {
	if !h.dismiss(name) {
		return fmt.Errorf("node %s is not played", name)
	}
	err := h.client.CoreV1().Nodes().Delete(ctx, name, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete node %s: %w", name, err)
	}
	return nil
}

// SetAlive makes a node's kubelet fall silent, or work again: a silent one renews no
// lease and does nothing for its pods.
func (h *Kubelets) SetAlive(name string, alive bool) error {
	p := h.player(name)
	if p == nil {
		return fmt.Errorf("node %s is not played", name)
	}
	p.silent.Store(!alive)
	if alive {
		h.revive(h.ctx, p)
	}
	return nil
}

// revive sends a sign of life at once and looks at all pods of the node again.
func (h *Kubelets) revive(ctx context.Context, p *player) {
	h.beat(ctx, p)
	h.enqueueIndexed(byNode, p.node.Name)
}

// readyConditions are the conditions that say that a pod runs.
var readyConditions = []corev1.PodConditionType{
	corev1.PodReadyToStartContainers, corev1.PodInitialized, corev1.ContainersReady, corev1.PodReady,
}

// runningStatus is the status of a pod all of whose containers run.
func runningStatus(pod *corev1.Pod) corev1.PodStatus {
	now := metav1.Now()
	status := corev1.PodStatus{
		Phase:     corev1.PodRunning,
		StartTime: &now,
		HostIP:    "127.0.0.1",
		HostIPs:   []corev1.HostIP{{IP: "127.0.0.1"}},
		PodIP:     podIP(pod.UID),
		PodIPs:    []corev1.PodIP{{IP: podIP(pod.UID)}},
	}
	if pod.Status.StartTime != nil {
		status.StartTime = pod.Status.StartTime
	}
	for _, condition := range readyConditions {
		status.Conditions = append(status.Conditions, corev1.PodCondition{
			Type: condition, Status: corev1.ConditionTrue, LastTransitionTime: now,
		})
	}
	started := true
	for _, container := range pod.Spec.Containers {
		status.ContainerStatuses = append(status.ContainerStatuses, corev1.ContainerStatus{
			Name: container.Name, Image: container.Image, Ready: true, Started: &started,
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: now}},
		})
	}
	for _, container := range pod.Spec.InitContainers {
		status.InitContainerStatuses = append(status.InitContainerStatuses, initStatus(container, now))
	}
	return status
}

// endedStatus is the status of a pod whose containers were made to end.
func endedStatus(pod *corev1.Pod) corev1.PodStatus {
	status := corev1.PodStatus{Phase: corev1.PodSucceeded}
	now := metav1.Now()
	for _, container := range pod.Status.ContainerStatuses {
		container.Ready, container.Started = false, nil
		container.State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "Completed", FinishedAt: now}}
		status.ContainerStatuses = append(status.ContainerStatuses, container)
	}
	for _, container := range pod.Status.InitContainerStatuses {
		if container.State.Running != nil {
			container.State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "Completed", FinishedAt: now}}
		}
		status.InitContainerStatuses = append(status.InitContainerStatuses, container)
	}
	return status
}

// initStatus is that of an init container that has done its work, or of a sidecar that runs.
func initStatus(container corev1.Container, now metav1.Time) corev1.ContainerStatus {
	started := true
	status := corev1.ContainerStatus{Name: container.Name, Image: container.Image, Ready: true, Started: &started}
	if container.RestartPolicy != nil && *container.RestartPolicy == corev1.ContainerRestartPolicyAlways {
		status.State.Running = &corev1.ContainerStateRunning{StartedAt: now}
		return status
	}
	status.State.Terminated = &corev1.ContainerStateTerminated{Reason: "Completed", StartedAt: now, FinishedAt: now}
	return status
}

// podIP is an address that nobody answers at, the same for the same pod.
func podIP(uid types.UID) string {
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(uid))
	sum := hash.Sum32()
	return fmt.Sprintf("10.%d.%d.%d", 128+sum>>16&0x7f, sum>>8&0xff, 1+sum&0xff%254)
}

// patchStatus writes the message and the reason, even if empty, and the other fields of
// status that are set, if the pod is still the same one.
func patchStatus(ctx context.Context, client kubernetes.Interface, pod *corev1.Pod, status corev1.PodStatus) error {
	patch, err := statusPatch(pod.UID, status)
	if err != nil {
		return fmt.Errorf("encode the status of pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	_, err = client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("write the status of pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return nil
}

func statusPatch(uid types.UID, status corev1.PodStatus) ([]byte, error) {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&status)
	if err != nil {
		return nil, err
	}
	// Left out, an old text would stay.
	fields["message"], fields["reason"] = status.Message, status.Reason
	return json.Marshal(map[string]any{"metadata": map[string]any{"uid": uid}, "status": fields})
}
