package registry

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/clients"
	"github.com/lodestone-storage/lodestone/pkg/controller"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/virtualnode/node"
	"github.com/lodestone-storage/lodestone/virtualnode/session"
)

// badKubeconfig is the reason of a node without a session because there is no usable kubeconfig. It
// is written only after the last session has ended: kubectl lodestone unpeer relies on that.
const badKubeconfig = "BadKubeconfig"

// clusterWorker maintains the session and the virtual node of one RemoteCluster as long as that
// object exists. One goroutine runs it.
type clusterWorker struct {
	id      string
	config  Config
	manager *node.Manager
	trigger chan struct{}
	// uid is the cluster's UID, empty until it is known; the Registry's mutex guards it.
	uid string
	// serving says that the kubelet API of the node is served, retired that nothing is left of a
	// node that is not wanted.
	serving, retired bool

	current     *running
	fingerprint string
	// failures is how many sessions in a row ended early; the next may begin after pause.
	failures int
	pause    time.Time
}

func newClusterWorker(id string, config Config) *clusterWorker {
	return &clusterWorker{id: id, config: config, trigger: make(chan struct{}, 1)}
}

// Trigger queues the cluster.
func (w *clusterWorker) Trigger() {
	select {
	case w.trigger <- struct{}{}:
	default:
	}
}

// run reconciles the cluster until its RemoteCluster is gone or ctx ends.
func (w *clusterWorker) run(ctx context.Context) {
	logger := klog.FromContext(ctx).WithValues("cluster", w.id)
	ctx = klog.NewContext(ctx, logger)
	defer func() {
		w.endSession()
		w.config.Metrics.forget(w.id)
		if w.serving {
			w.config.Endpoints.Close(w.id)
		}
	}()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-w.trigger:
		}
		remote := controller.Get[v1alpha1.RemoteCluster](w.config.Objects, w.id)
		if remote == nil {
			return
		}
		next := wait.Jitter(w.config.Interval, 0.1)
		again, err := w.sync(ctx, remote)
		switch {
		case err != nil && ctx.Err() == nil:
			logger.V(2).Info("The cluster will be looked at again", "err", err)
			next = time.Second
		case again > 0:
			next = again
		}
		timer.Reset(next)
	}
}

// sync updates session and node to what the RemoteCluster says. The result is how soon to reconcile
// again, 0 for the usual interval.
func (w *clusterWorker) sync(ctx context.Context, remote *v1alpha1.RemoteCluster) (time.Duration, error) {
	if w.current != nil && w.current.ended() {
		w.sessionEnded(ctx)
	}
	wanted := remote.DeletionTimestamp == nil && remote.Spec.VirtualNode != v1alpha1.VirtualNodeDisabled
	if !wanted {
		return w.retire(ctx, remote)
	}
	if err := w.protect(ctx, remote); err != nil {
		return 0, err
	}
	if err := w.serve(ctx); err != nil {
		return 0, w.report(ctx, remote, node.State{Reason: "NoEndpoint", Message: err.Error()})
	}
	w.manager.Retire(false)
	wait, problem := w.ensureSession(ctx, remote)
	if problem != nil {
		state := node.State{Reason: badKubeconfig, Message: problem.Error()}
		return wait, errors.Join(w.manager.Show(ctx, w.id, state), w.report(ctx, remote, state))
	}
	if state, known := w.manager.State(); known {
		return wait, w.report(ctx, remote, withRanges(state, remote))
	}
	if said := meta.FindStatusCondition(remote.Status.Conditions, v1alpha1.VirtualNode); said != nil && said.Reason == badKubeconfig {
		return wait, w.report(ctx, remote, node.State{Reason: "Connecting", Message: "the cluster has not answered yet"})
	}
	return wait, nil
}

// withRanges adds to a state what a routed network lacks.
func withRanges(state node.State, remote *v1alpha1.RemoteCluster) node.State {
	if state.Ready && remote.Spec.PodNetwork == v1alpha1.Routed && len(remote.Spec.PodCIDRs) == 0 {
		state.Message += "; spec.podNetwork is Routed, but new pods get no address here until spec.podCIDRs names the ranges of the pods " +
			"there (kubectl lodestone peer --pod-cidrs)"
	}
	return state
}

// serve starts the service of the node's kubelet API, unless it runs already.
func (w *clusterWorker) serve(ctx context.Context) error {
	if w.serving {
		return nil
	}
	port, err := w.config.Endpoints.Serve(ctx, w.id)
	if err != nil {
		return err
	}
	w.serving = true
	config := w.config.Node
	config.Port = port
	config.Changed = w.Trigger
	w.manager = node.NewManager(w.id, config)
	return nil
}

// running is a session with all that works for it.
type running struct {
	begun  time.Time
	cancel context.CancelFunc
	done   chan struct{}
	err    error // valid after done
}

func (r *running) ended() bool {
	select {
	case <-r.done:
		return true
	default:
		return false
	}
}

// ensureSession makes sure that a session with the present kubeconfig runs. The error is one
// sentence for the user, and there is no session then; the duration is how soon to reconcile again,
// 0 for the usual interval.
func (w *clusterWorker) ensureSession(ctx context.Context, remote *v1alpha1.RemoteCluster) (time.Duration, error) {
	data, err := w.kubeconfig(remote)
	if err != nil {
		// Without a kubeconfig nothing more is to be done there, above all not while the
		// RemoteCluster is being deleted.
		w.endSession()
		return 0, err
	}
	fingerprint := fingerprint(remote, data)
	if w.current != nil && w.fingerprint == fingerprint {
		return 0, nil
	}
	if w.current == nil && w.fingerprint == fingerprint && time.Now().Before(w.pause) {
		return time.Until(w.pause), nil
	}
	w.endSession()
	config, err := clients.ParseKubeconfig(data)
	if err != nil {
		return 0, err
	}
	s, err := session.Open(remote, config, w.config.HomeID)
	if err != nil {
		return 0, err
	}
	w.fingerprint = fingerprint
	w.current = w.begin(ctx, s)
	return 0, nil
}

// fingerprint returns a hash of all that a session depends on.
func fingerprint(remote *v1alpha1.RemoteCluster, kubeconfig []byte) string {
	sum := sha256.New()
	_, _ = fmt.Fprintf(sum, "%s\n%s\n%s\n%q\n%q\n%q\n", remote.UID, remote.Spec.Namespaces.Strategy, remote.Spec.PodNetwork,
		remote.Spec.PodCIDRs, fmt.Sprint(remote.Spec.PodTranslations, remote.Spec.HomePodTranslations),
		[]string{remote.Spec.Topology.Region, remote.Spec.Topology.Zone, remote.Spec.HomeServer})
	_, _ = sum.Write(kubeconfig)
	return hex.EncodeToString(sum.Sum(nil))
}

// begin starts the node's manager, and the workers once there is a node. When one of them ends, all
// end.
func (w *clusterWorker) begin(ctx context.Context, s *session.Session) *running {
	ctx, cancel := context.WithCancel(ctx)
	r := &running{begun: time.Now(), cancel: cancel, done: make(chan struct{})}
	w.config.Endpoints.Use(w.id, s)
	w.config.Metrics.sessions.WithLabelValues(w.id).Inc()
	var mu sync.Mutex
	var group sync.WaitGroup
	end := func(err error) {
		mu.Lock()
		defer mu.Unlock()
		if ctx.Err() == nil {
			r.err = err
		}
		cancel()
	}
	admitted := func() {
		klog.FromContext(ctx).Info("Session began", "node", s.Node)
		for _, work := range w.config.Workers {
			group.Go(func() { end(work(ctx, s)) })
		}
	}
	group.Go(func() { end(w.manager.Run(ctx, s, admitted)) })
	go func() {
		group.Wait()
		s.Close()
		close(r.done)
		w.Trigger()
	}()
	return r
}

func (w *clusterWorker) endSession() {
	if w.current == nil {
		return
	}
	w.config.Endpoints.Use(w.id, nil)
	w.current.cancel()
	<-w.current.done
	w.current = nil
	w.fingerprint, w.failures, w.pause = "", 0, time.Time{}
}

// sessionEnded handles a session that ended by itself: the next begins after a pause, which grows
// with each failure in a row.
func (w *clusterWorker) sessionEnded(ctx context.Context) {
	err, lasted := w.current.err, time.Since(w.current.begun)
	w.current = nil
	if errors.Is(err, node.ErrReturned) {
		klog.FromContext(ctx).Info("Session is renewed, since the cluster answers again")
		w.failures = 0
		return
	}
	if lasted > time.Minute {
		w.failures = 0
	}
	w.failures++
	pause := min(time.Second<<min(w.failures-1, 5), 30*time.Second)
	w.pause = time.Now().Add(pause)
	klog.FromContext(ctx).Error(err, "Session ended and begins again", "pause", pause)
}

// kubeconfig returns the kubeconfig of a RemoteCluster. The error is one sentence
// for the user.
func (w *clusterWorker) kubeconfig(remote *v1alpha1.RemoteCluster) ([]byte, error) {
	ref := remote.Spec.KubeconfigSecretRef
	if ref.Namespace != w.config.Namespace {
		return nil, fmt.Errorf("the kubeconfig Secret must be in namespace %s, where Lodestone runs, not in %s: move it", w.config.Namespace,
			ref.Namespace)
	}
	key := ref.Key
	if key == "" {
		key = "kubeconfig"
	}
	secret := controller.Get[corev1.Secret](w.config.Secrets, ref.Namespace+"/"+ref.Name)
	if secret == nil {
		return nil, fmt.Errorf("there is no Secret %s/%s: create it with the kubeconfig under key %s", ref.Namespace, ref.Name, key)
	}
	if len(secret.Data[key]) == 0 {
		return nil, fmt.Errorf("the Secret %s/%s has no key %s: put the kubeconfig there", ref.Namespace, ref.Name, key)
	}
	return secret.Data[key], nil
}

const (
	// writeTimeout limits the requests of one step to the home cluster.
	writeTimeout = 10 * time.Second
	// drainInterval is how soon a node that is being drained is reconciled again.
	drainInterval = 2 * time.Second
)

// retire removes the virtual node: it is cordoned, its pods are evicted, and when the last one is
// gone, proven ended in the remote cluster, the Node is deleted and the RemoteCluster's finalizer
// removed. The session runs meanwhile, since it ends the pods.
func (w *clusterWorker) retire(ctx context.Context, remote *v1alpha1.RemoteCluster) (time.Duration, error) {
	if w.retired && !slices.Contains(remote.Finalizers, keys.VirtualNodeFinalizer) {
		return 0, w.reportDisabled(ctx, remote)
	}
	bounded, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	ours, err := w.ownNode(bounded)
	if err != nil {
		return 0, err
	}
	pods, err := w.pods(bounded, ours)
	if err != nil {
		return 0, err
	}
	var problem error
	if ours != nil || len(pods) > 0 {
		if err := w.serve(ctx); err != nil {
			return 0, err
		}
		w.manager.Retire(true)
		if _, problem = w.ensureSession(ctx, remote); problem != nil {
			klog.FromContext(ctx).V(2).Info("Pods cannot be ended in the cluster", "err", problem)
		}
	}
	if ours != nil && !ours.Spec.Unschedulable {
		if err := w.cordon(bounded, ours); err != nil {
			return 0, err
		}
	}
	if len(pods) > 0 {
		blocked, err := w.evict(bounded, pods)
		return drainInterval, errors.Join(err, w.report(ctx, remote, retiring(w.id, len(pods), blocked, problem)))
	}
	if ours != nil {
		err := w.config.Home.CoreV1().Nodes().Delete(bounded, ours.Name,
			metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &ours.UID}})
		if err != nil && !apierrors.IsNotFound(err) {
			return 0, fmt.Errorf("delete node %s: %w", ours.Name, err)
		}
		klog.FromContext(ctx).Info("Node deleted", "node", klog.KObj(ours))
	}
	w.endSession()
	if w.serving {
		w.config.Endpoints.Close(w.id)
		w.serving, w.manager = false, nil
	}
	w.retired = true
	return 0, w.release(ctx, remote)
}

// reportDisabled writes into the RemoteCluster that it has no node because none is wanted.
func (w *clusterWorker) reportDisabled(ctx context.Context, remote *v1alpha1.RemoteCluster) error {
	if remote.DeletionTimestamp != nil {
		return nil
	}
	return w.report(ctx, remote,
		node.State{Reason: "Disabled", Message: "spec.virtualNode is Disabled: Lodestone registers no node for this cluster"})
}

// retiring returns the state of a node that is being drained. problem says why no session ends its
// pods in the remote cluster, nil if one does.
func retiring(cluster string, pods, blocked int, problem error) node.State {
	message := fmt.Sprintf("node %s is being emptied, pods left: %d; each goes once its end in cluster %s is known (kubectl lodestone "+
		"release pod gives one up)", cluster, pods, cluster)
	if blocked > 0 {
		message += fmt.Sprintf("; held by a PodDisruptionBudget: %d", blocked)
	}
	if problem != nil {
		return node.State{Reason: badKubeconfig, Message: message + "; " + problem.Error()}
	}
	return node.State{Reason: "Leaving", Message: message}
}

// ownNode reads the cluster's virtual node from the API server, nil if it does not exist.
func (w *clusterWorker) ownNode(ctx context.Context) (*corev1.Node, error) {
	found, err := w.config.Home.CoreV1().Nodes().Get(ctx, w.id, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("get node %s: %w", w.id, err)
	}
	if !node.Ours(found, w.id) {
		return nil, nil
	}
	return found, nil
}

// pods reads the pods that keep the cluster's virtual node from the API server.
func (w *clusterWorker) pods(ctx context.Context, own *corev1.Node) ([]corev1.Pod, error) {
	list, err := w.config.Home.CoreV1().Pods("").List(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("spec.nodeName", w.id).String()})
	if err != nil {
		return nil, fmt.Errorf("list pods of node %s: %w", w.id, err)
	}
	return slices.DeleteFunc(list.Items, func(pod corev1.Pod) bool { return !mustEndFirst(&pod, own != nil) }), nil
}

// mustEndFirst reports whether a pod must have ended before the RemoteCluster is released. Pods
// that may run in the cluster must. Other pods only lose their node: they are evicted while there
// is a node, except those of a DaemonSet that tolerates everything, which would create them again
// as long as there is the node. Those are deleted with the node, as on every node.
func mustEndFirst(pod *corev1.Pod, node bool) bool {
	if slices.Contains(pod.Finalizers, keys.RemotePodFinalizer) {
		return true
	}
	owner := metav1.GetControllerOf(pod)
	return node && (owner == nil || owner.Kind != "DaemonSet")
}

func (w *clusterWorker) cordon(ctx context.Context, own *corev1.Node) error {
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": own.UID, "annotations": map[string]string{keys.Retired: "true"}},
		"spec":     map[string]any{"unschedulable": true},
	})
	if err != nil {
		return fmt.Errorf("encode patch of node %s: %w", own.Name, err)
	}
	if _, err := w.config.Home.CoreV1().Nodes().Patch(ctx, own.Name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("cordon node %s: %w", own.Name, err)
	}
	return nil
}

// evict evicts the pods that are not being deleted yet, and returns how many a PodDisruptionBudget
// protects.
func (w *clusterWorker) evict(ctx context.Context, pods []corev1.Pod) (blocked int, _ error) {
	for i := range pods {
		pod := &pods[i]
		if pod.DeletionTimestamp != nil {
			continue
		}
		err := w.config.Home.PolicyV1().Evictions(pod.Namespace).Evict(ctx, &policyv1.Eviction{
			ObjectMeta:    metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name},
			DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &pod.UID}},
		})
		switch {
		case apierrors.IsTooManyRequests(err):
			blocked++
		case err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err):
			return blocked, fmt.Errorf("evict pod %s/%s: %w", pod.Namespace, pod.Name, err)
		}
	}
	return blocked, nil
}

// report writes a state into the RemoteCluster's condition VirtualNode if it differs. The write
// fails if the object has changed since it was read: its other conditions belong to the
// provisioner.
func (w *clusterWorker) report(ctx context.Context, seen *v1alpha1.RemoteCluster, state node.State) error {
	status := metav1.ConditionFalse
	if state.Ready {
		status = metav1.ConditionTrue
	}
	w.config.Metrics.show(w.id, state.Ready)
	update := seen.DeepCopy()
	changed := meta.SetStatusCondition(&update.Status.Conditions, metav1.Condition{
		Type: v1alpha1.VirtualNode, Status: status, Reason: state.Reason, Message: state.Message, ObservedGeneration: seen.Generation})
	if !changed {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	if _, err := w.config.Remotes.UpdateStatus(ctx, update, metav1.UpdateOptions{}); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("write status of RemoteCluster %s: %w", w.id, err)
	}
	return nil
}

// protect adds the finalizer to a RemoteCluster before a node is created that depends on it.
func (w *clusterWorker) protect(ctx context.Context, remote *v1alpha1.RemoteCluster) error {
	w.retired = false
	if slices.Contains(remote.Finalizers, keys.VirtualNodeFinalizer) {
		return nil
	}
	return w.setFinalizers(ctx, remote, append(slices.Clone(remote.Finalizers), keys.VirtualNodeFinalizer))
}

// release removes the finalizer from a RemoteCluster.
func (w *clusterWorker) release(ctx context.Context, remote *v1alpha1.RemoteCluster) error {
	if !slices.Contains(remote.Finalizers, keys.VirtualNodeFinalizer) {
		return nil
	}
	return w.setFinalizers(ctx, remote, slices.DeleteFunc(slices.Clone(remote.Finalizers), func(s string) bool {
		return s == keys.VirtualNodeFinalizer
	}))
}

// setFinalizers writes the finalizers of a RemoteCluster if it has not changed since it was read.
func (w *clusterWorker) setFinalizers(ctx context.Context, remote *v1alpha1.RemoteCluster, finalizers []string) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": remote.UID, "resourceVersion": remote.ResourceVersion, "finalizers": finalizers}})
	if err != nil {
		return fmt.Errorf("encode finalizers: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	if _, err := w.config.Remotes.Patch(ctx, remote.Name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil &&
		!apierrors.IsNotFound(err) {
		return fmt.Errorf("set finalizers of RemoteCluster %s: %w", remote.Name, err)
	}
	return nil
}
