package fakekubelet

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/controller"
)

// probeTimeout is how long a remote API server may take to say that it is ready.
const probeTimeout = 1500 * time.Millisecond

// remoteSession knows whether a remote cluster can be reached, and the copies that
// run there.
type remoteSession struct {
	remote *Remote
	client kubernetes.Interface
	period time.Duration
	up     atomic.Bool

	mu      sync.Mutex // guards what follows
	copies  corelisters.PodLister
	closing context.CancelFunc
}

// lister returns what is known of the copies, or nil while the cluster is unreachable.
func (s *remoteSession) lister() corelisters.PodLister {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.copies
}

func (s *remoteSession) ready(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	_, err := s.client.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(ctx)
	return err == nil
}

// run probes the cluster until ctx ends. When the cluster can be reached again, it
// reads the copies anew, for a watch that has lost its server tries again only
// after a growing pause, and calls onReturn.
func (s *remoteSession) run(ctx context.Context, onCopy func(any), onReturn func()) {
	logger := klog.FromContext(ctx).WithValues("cluster", s.remote.ID)
	for {
		select {
		case <-ctx.Done():
			s.close()
			return
		case <-time.After(s.period / 2):
		}
		switch ready := s.ready(ctx); {
		case ready && !s.up.Load():
			if s.open(ctx, onCopy) {
				logger.V(1).Info("The remote cluster can be reached")
				onReturn()
			}
		case !ready && s.up.Load() && ctx.Err() == nil:
			logger.V(1).Info("The remote cluster cannot be reached")
			s.close()
		}
	}
}

// openIfReady opens the session if the cluster can be reached now.
func (s *remoteSession) openIfReady(ctx context.Context, onCopy func(any)) {
	if s.ready(ctx) {
		s.open(ctx, onCopy)
	}
}

// open reads the copies and watches them; false means that the cluster went away meanwhile.
func (s *remoteSession) open(ctx context.Context, onCopy func(any)) bool {
	ctx, cancel := context.WithCancel(ctx)
	factory := informers.NewSharedInformerFactoryWithOptions(s.client, 0,
		informers.WithTransform(controller.DropManagedFields),
		informers.WithTweakListOptions(func(options *metav1.ListOptions) {
			options.LabelSelector = homeLabel + "=" + s.remote.homeID()
		}))
	pods := factory.Core().V1().Pods()
	_, err := pods.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    onCopy,
		UpdateFunc: func(_, object any) { onCopy(object) },
		DeleteFunc: onCopy,
	})
	if err != nil {
		klog.FromContext(ctx).Error(err, "Watching the copies of pods failed", "cluster", s.remote.ID)
		cancel()
		return false
	}
	factory.Start(ctx.Done())
	syncCtx, stopWaiting := context.WithTimeout(ctx, callTimeout)
	defer stopWaiting()
	if !cache.WaitForCacheSync(syncCtx.Done(), pods.Informer().HasSynced) {
		cancel()
		factory.Shutdown()
		return false
	}
	s.mu.Lock()
	s.copies = pods.Lister()
	s.closing = func() {
		cancel()
		factory.Shutdown()
	}
	s.mu.Unlock()
	s.up.Store(true)
	// What was told while the session was not up yet was not acted on.
	for _, duplicate := range pods.Informer().GetStore().List() {
		onCopy(duplicate)
	}
	return true
}

func (s *remoteSession) close() {
	s.up.Store(false)
	s.mu.Lock()
	closing := s.closing
	s.copies, s.closing = nil, nil
	s.mu.Unlock()
	if closing != nil {
		closing()
	}
}

// enqueueCopy looks at the home pod of a copy again.
func (h *Kubelets) enqueueCopy(object any) {
	if tombstone, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = tombstone.Obj
	}
	duplicate, ok := object.(*corev1.Pod)
	if !ok {
		return
	}
	if key, ok := homePod(duplicate); ok {
		h.queue.Add(key)
	}
}

// homePod returns the home pod that a copy names.
func homePod(duplicate *corev1.Pod) (podKey, bool) {
	parts := strings.Split(duplicate.Annotations[homePodAnnotation], "/")
	if len(parts) != 3 {
		return podKey{}, false
	}
	return podKey{node: parts[0], namespace: parts[1], name: parts[2]}, true
}

func homePodValue(key podKey) string {
	return fmt.Sprintf("%s/%s/%s", key.node, key.namespace, key.name)
}

// syncVirtual takes a pod of a virtual node a step on. The pod is nil if it does not
// exist, or no longer on this node.
func (h *Kubelets) syncVirtual(ctx context.Context, p *player, key podKey, pod *corev1.Pod) error {
	duplicate, err := p.remote.find(key)
	if err != nil {
		return err
	}
	if duplicate != nil && (pod == nil || !isCopyOf(duplicate, pod)) {
		return h.removeOrphan(ctx, p, key, duplicate)
	}
	switch {
	case pod == nil:
		h.forget(key)
		return nil
	case pod.DeletionTimestamp != nil:
		return h.endVirtual(ctx, p, pod, duplicate)
	case duplicate != nil:
		return h.mirror(ctx, pod, duplicate)
	case finished(pod):
		return nil
	case pod.Status.Phase == corev1.PodRunning:
		return h.failIfGone(ctx, p, pod)
	default:
		return h.startVirtual(ctx, p, pod)
	}
}

func isCopyOf(duplicate, pod *corev1.Pod) bool {
	return duplicate.Annotations[HomePodUIDAnnotation] == string(pod.UID)
}

// find returns the copy of a home pod as far as the cache knows, or nil.
func (s *remoteSession) find(key podKey) (*corev1.Pod, error) {
	copies := s.lister()
	if copies == nil {
		return nil, fmt.Errorf("cluster %s cannot be reached", s.remote.ID)
	}
	duplicate, err := orNil(copies.Pods(s.remote.namespaceFor(key.namespace)).Get(key.name))
	if duplicate != nil && duplicate.Annotations[homePodAnnotation] != homePodValue(key) {
		return nil, err // the copy of a pod that was on another of our nodes: its own key handles it
	}
	return duplicate, err
}

// findLive asks the remote API server for the pod of that name, copy or not.
func (s *remoteSession) findLive(ctx context.Context, pod *corev1.Pod) (*corev1.Pod, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return orNil(s.client.CoreV1().Pods(s.remote.namespaceFor(pod.Namespace)).Get(ctx, pod.Name, metav1.GetOptions{}))
}

// startVirtual copies a pod whose volumes can be mounted to the remote cluster.
func (h *Kubelets) startVirtual(ctx context.Context, p *player, pod *corev1.Pod) error {
	found, err := h.mountProblem(ctx, p, pod)
	if err != nil {
		return err
	}
	if found != nil {
		h.complain(pod, "FailedMount", found)
		h.queue.AddAfter(keyOf(pod), problemRetry)
		return nil
	}
	callCtx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	duplicate := copyOf(pod, p.node.Remote)
	_, err = p.remote.client.CoreV1().Pods(duplicate.Namespace).Create(callCtx, duplicate, metav1.CreateOptions{})
	if err == nil {
		return nil
	}
	if apierrors.IsAlreadyExists(err) {
		existing, readErr := p.remote.findLive(ctx, pod)
		if readErr != nil {
			return fmt.Errorf("read pod %s/%s in cluster %s: %w", duplicate.Namespace, pod.Name, p.node.Remote.ID, readErr)
		}
		if existing == nil || existing.Labels[homeLabel] == p.node.Remote.homeID() {
			h.queue.AddAfter(keyOf(pod), problemRetry) // ours, or our predecessor's: the cache will tell
			return nil
		}
		err = fmt.Errorf("a pod of that name is there already")
	}
	h.complain(pod, "FailedRemoteCreate", &problem{message: fmt.Sprintf("the pod cannot be created in cluster %s: %v", p.node.Remote.ID, err)})
	h.queue.AddAfter(keyOf(pod), problemRetry)
	return nil
}

// mirror writes what the copy's status says into the home pod.
func (h *Kubelets) mirror(ctx context.Context, pod, duplicate *corev1.Pod) error {
	if duplicate.DeletionTimestamp != nil || finished(pod) {
		return nil
	}
	status := homeStatus(duplicate)
	if pod.Status.Phase == status.Phase && pod.Status.Message == status.Message && (status.Phase != corev1.PodRunning || running(pod)) &&
		equality.Semantic.DeepEqual(pod.Status.ContainerStatuses, status.ContainerStatuses) {
		return nil
	}
	return patchStatus(ctx, h.client, pod, status)
}

// failIfGone marks a pod as failed whose copy is gone, so that its owner makes a new one.
func (h *Kubelets) failIfGone(ctx context.Context, p *player, pod *corev1.Pod) error {
	existing, err := p.remote.findLive(ctx, pod)
	if err != nil {
		return fmt.Errorf("look for the copy of pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	if existing != nil && isCopyOf(existing, pod) {
		return nil
	}
	return patchStatus(ctx, h.client, pod, corev1.PodStatus{
		Phase: corev1.PodFailed, Reason: "RemotePodGone", Message: "the pod was deleted in cluster " + p.node.Remote.ID,
	})
}

// endVirtual deletes the copy of a pod that is being deleted and lets the pod go when
// the copy is proven to be gone.
func (h *Kubelets) endVirtual(ctx context.Context, p *player, pod, duplicate *corev1.Pod) error {
	if duplicate == nil {
		var err error
		if duplicate, err = p.remote.findLive(ctx, pod); err != nil {
			return fmt.Errorf("look for the copy of pod %s/%s: %w", pod.Namespace, pod.Name, err)
		}
	}
	if duplicate == nil || !isCopyOf(duplicate, pod) {
		return finishDeletion(ctx, h.client, pod)
	}
	return p.remote.remove(ctx, duplicate)
}

// removeOrphan deletes a copy whose home pod is gone, if the home API server agrees.
func (h *Kubelets) removeOrphan(ctx context.Context, p *player, key podKey, duplicate *corev1.Pod) error {
	live, err := orNil(h.client.CoreV1().Pods(key.namespace).Get(ctx, key.name, metav1.GetOptions{}))
	if err != nil {
		return fmt.Errorf("read pod %s/%s: %w", key.namespace, key.name, err)
	}
	if live != nil && isCopyOf(duplicate, live) {
		return nil // the cache was behind; its next event brings the pod back here
	}
	return p.remote.remove(ctx, duplicate)
}

func (s *remoteSession) remove(ctx context.Context, duplicate *corev1.Pod) error {
	if duplicate.DeletionTimestamp != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	err := s.client.CoreV1().Pods(duplicate.Namespace).Delete(ctx, duplicate.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &duplicate.UID},
	})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("delete pod %s/%s in cluster %s: %w", duplicate.Namespace, duplicate.Name, s.remote.ID, err)
	}
	return nil
}

// Marks of a copy in the remote cluster.
const (
	homeLabel         = "hollow.lodestone.dev/home"
	homePodAnnotation = "hollow.lodestone.dev/home-pod"

	// HomePodUIDAnnotation is, on a copy in a remote cluster, the UID of its home pod.
	HomePodUIDAnnotation = "hollow.lodestone.dev/home-pod-uid"
)

// accountTokenVolume begins the name of the volume that the home API server adds to
// pods. Its token means nothing in the remote cluster.
const accountTokenVolume = "kube-api-access-"

// copyOf returns the pod to create in the remote cluster for a home pod. What refers
// to nodes, classes and accounts of the home cluster is left out, the volumes stay.
func copyOf(pod *corev1.Pod, remote *Remote) *corev1.Pod {
	duplicate := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name:        pod.Name,
			Namespace:   remote.namespaceFor(pod.Namespace),
			Labels:      map[string]string{},
			Annotations: map[string]string{},
		},
		Spec: *pod.Spec.DeepCopy(),
	}
	maps.Copy(duplicate.Labels, pod.Labels)
	maps.Copy(duplicate.Annotations, pod.Annotations)
	duplicate.Labels[homeLabel] = remote.homeID()
	duplicate.Annotations[HomePodUIDAnnotation] = string(pod.UID)
	duplicate.Annotations[homePodAnnotation] = homePodValue(keyOf(pod))
	spec := &duplicate.Spec
	spec.NodeName, spec.NodeSelector, spec.SchedulerName = "", nil, ""
	spec.Affinity, spec.Tolerations, spec.TopologySpreadConstraints, spec.SchedulingGates = nil, nil, nil, nil
	spec.Priority, spec.PriorityClassName, spec.PreemptionPolicy = nil, "", nil
	spec.RuntimeClassName, spec.Overhead = nil, nil
	spec.ServiceAccountName, spec.DeprecatedServiceAccount, spec.ImagePullSecrets = "", "", nil
	spec.AutomountServiceAccountToken = ptr.To(false)
	spec.Volumes = slices.DeleteFunc(spec.Volumes, func(v corev1.Volume) bool { return strings.HasPrefix(v.Name, accountTokenVolume) })
	dropTokenMounts(spec.Containers)
	dropTokenMounts(spec.InitContainers)
	return duplicate
}

func dropTokenMounts(containers []corev1.Container) {
	for i := range containers {
		containers[i].VolumeMounts = slices.DeleteFunc(containers[i].VolumeMounts, func(m corev1.VolumeMount) bool {
			return strings.HasPrefix(m.Name, accountTokenVolume)
		})
	}
}

// homeStatus is the status of a home pod whose copy has the given status.
func homeStatus(duplicate *corev1.Pod) corev1.PodStatus {
	status := corev1.PodStatus{
		Phase:                 duplicate.Status.Phase,
		Message:               duplicate.Status.Message,
		Reason:                duplicate.Status.Reason,
		StartTime:             duplicate.Status.StartTime,
		PodIP:                 duplicate.Status.PodIP,
		PodIPs:                duplicate.Status.PodIPs,
		ContainerStatuses:     duplicate.Status.ContainerStatuses,
		InitContainerStatuses: duplicate.Status.InitContainerStatuses,
	}
	for _, condition := range duplicate.Status.Conditions {
		if condition.Type == corev1.PodScheduled {
			// At home the pod is scheduled, to the virtual node.
			if condition.Status != corev1.ConditionTrue {
				status.Message = "not scheduled in the remote cluster: " + condition.Message
			}
			continue
		}
		condition.ObservedGeneration = 0
		status.Conditions = append(status.Conditions, condition)
	}
	return status
}

// problemRetry is the time after which a pod that could not be mounted is looked at
// again even if nothing it waits for has changed.
const problemRetry = 2 * time.Second

// syncLocal takes a pod of an ordinary node a step on.
func (h *Kubelets) syncLocal(ctx context.Context, p *player, pod *corev1.Pod) error {
	if h.runner != nil && h.runner.Runs(pod) {
		return h.syncRun(ctx, p, pod)
	}
	if pod.DeletionTimestamp != nil {
		return h.endLocal(ctx, pod)
	}
	if finished(pod) || running(pod) {
		return nil
	}
	// What runs has its volumes mounted already: no claim is looked at again.
	if pod.Status.Phase != corev1.PodRunning {
		found, err := h.mountProblem(ctx, p, pod)
		if err != nil {
			return err
		}
		if found != nil {
			h.complain(pod, "FailedMount", found)
			h.queue.AddAfter(keyOf(pod), problemRetry)
			return nil
		}
	}
	return patchStatus(ctx, h.client, pod, runningStatus(pod))
}

// endLocal tells that a pod has ended that is being deleted, and then lets it go: so do
// kubelets.
func (h *Kubelets) endLocal(ctx context.Context, pod *corev1.Pod) error {
	if !finished(pod) {
		if err := patchStatus(ctx, h.client, pod, endedStatus(pod)); err != nil {
			return err
		}
	}
	return finishDeletion(ctx, h.client, pod)
}

// finishDeletion removes a pod that is being deleted, as a kubelet does whose
// containers have ended.
func finishDeletion(ctx context.Context, client kubernetes.Interface, pod *corev1.Pod) error {
	if ptr.Deref(pod.DeletionGracePeriodSeconds, 1) == 0 {
		return nil // only finalizers hold it now
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	err := client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{
		GracePeriodSeconds: ptr.To[int64](0),
		Preconditions:      &metav1.Preconditions{UID: &pod.UID},
	})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("finish the deletion of pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return nil
}

func finished(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// running reports whether the pod runs and nobody has marked it unready, as the node
// lifecycle controller does when the node was silent.
func running(pod *corev1.Pod) bool {
	if pod.Status.Phase != corev1.PodRunning {
		return false
	}
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}
