// Package fakekubelet plays the kubelets of a test bed: it registers nodes, keeps their
// leases and takes pods to Running without running anything.
//
// What it does check is what Lodestone is about. A pod runs only if every claim that
// it mounts is bound to a volume that is bound to that claim, that its node can reach
// by the volume's nodeAffinity, and whose driver the node has. No node of the home
// cluster has the driver lodestone.dev. A pod whose volume can never be mounted
// on the node it was bound to is recorded, see [Kubelets.Violations].
//
// A node with a [Remote] stands for a remote cluster: its pods are copied there, and
// run when the copy runs. It takes the place of a virtual kubelet.
package fakekubelet

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/e2e/retryingwatch"
	"github.com/lodestone-storage/lodestone/pkg/controller"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

const (
	// workers is how many pods are handled at once.
	workers = 16

	// callTimeout bounds one API request, so that a frozen API server holds up nothing.
	callTimeout = 5 * time.Second
)

// Kubelets play the nodes of one cluster. Their methods may be called concurrently.
type Kubelets struct {
	client      kubernetes.Interface
	leasePeriod time.Duration
	runner      Runner
	execPort    int32 // of the nodes' kubelets; 0: they serve none
	recorder    record.EventRecorder
	queue       workqueue.TypedRateLimitingInterface[podKey]
	pods        cache.SharedIndexInformer
	nodes       corelisters.NodeLister
	volumes     corelisters.PersistentVolumeLister
	claims      corelisters.PersistentVolumeClaimLister

	ctx    context.Context
	cancel context.CancelFunc
	done   sync.WaitGroup

	mu         sync.Mutex // guards what follows
	played     map[string]*player
	violations map[violationKey]Violation
	complaints map[podKey]string // the last problem told of each pod
}

// podKey names a pod of the home cluster and the node that it is bound to.
type podKey struct {
	namespace, name, node string
}

// Start registers the nodes, waits until pods can be scheduled to them and plays them
// until ctx ends or Stop is called.
func Start(ctx context.Context, options Options) (*Kubelets, error) {
	client, err := kubernetes.NewForConfig(retryingwatch.Config(options.Config))
	if err != nil {
		return nil, fmt.Errorf("make the client of the simulated nodes: %w", err)
	}
	h := &Kubelets{
		client:      client,
		leasePeriod: options.leasePeriod(),
		runner:      options.Runner,
		queue: workqueue.NewTypedRateLimitingQueue(
			workqueue.NewTypedItemExponentialFailureRateLimiter[podKey](20*time.Millisecond, 2*time.Second)),
		played:     map[string]*player{},
		violations: map[violationKey]Violation{},
		complaints: map[podKey]string{},
	}
	h.ctx, h.cancel = context.WithCancel(ctx)
	if h.runner != nil {
		h.runner.Notify(func(pod *corev1.Pod) { h.enqueuePod(pod) })
	}
	if execer, ok := h.runner.(Execer); ok && options.Exec {
		if h.execPort, err = h.serveExec(execer, options.Config.CAData); err != nil {
			h.Stop()
			return nil, err
		}
	}
	if err := h.start(options.Nodes); err != nil {
		h.Stop()
		return nil, err
	}
	return h, nil
}

// Stop ends the play: nodes stay registered and become NotReady.
func (h *Kubelets) Stop() {
	h.cancel()
	h.mu.Lock()
	names := slices.Collect(maps.Keys(h.played))
	h.mu.Unlock()
	for _, name := range names {
		h.dismiss(name)
	}
	h.done.Wait()
}

func (h *Kubelets) start(nodes []Node) error {
	h.startEvents()
	if err := h.startInformers(); err != nil {
		return err
	}
	h.done.Go(func() {
		<-h.ctx.Done()
		h.queue.ShutDown()
	})
	for range workers {
		h.done.Go(h.work)
	}
	return h.AddNodes(h.ctx, nodes...)
}

func (h *Kubelets) startEvents() {
	broadcaster := record.NewBroadcaster(record.WithContext(h.ctx))
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: h.client.CoreV1().Events("")})
	h.recorder = broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "kubelet"})
	h.done.Go(func() {
		<-h.ctx.Done()
		broadcaster.Shutdown()
	})
}

func (h *Kubelets) startInformers() error {
	factory := informers.NewSharedInformerFactoryWithOptions(h.client, 0, informers.WithTransform(controller.DropManagedFields))
	h.pods = cache.NewSharedIndexInformer(
		cache.NewListWatchFromClient(h.client.CoreV1().RESTClient(), "pods", "", fields.OneTermNotEqualSelector("spec.nodeName", "")),
		&corev1.Pod{}, 0, cache.Indexers{byClaim: indexByClaim, byNode: indexByNode})
	if err := h.pods.SetTransform(controller.DropManagedFields); err != nil {
		return fmt.Errorf("set up the pod informer: %w", err)
	}
	h.nodes = factory.Core().V1().Nodes().Lister()
	h.volumes = factory.Core().V1().PersistentVolumes().Lister()
	h.claims = factory.Core().V1().PersistentVolumeClaims().Lister()
	handlers := []struct {
		informer cache.SharedIndexInformer
		enqueue  func(any)
	}{
		{h.pods, h.enqueuePod},
		{factory.Core().V1().PersistentVolumes().Informer(), h.enqueueUsersOfVolume},
		{factory.Core().V1().PersistentVolumeClaims().Informer(), h.enqueueUsersOfClaim},
	}
	for _, handler := range handlers {
		_, err := handler.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc:    handler.enqueue,
			UpdateFunc: func(_, object any) { handler.enqueue(object) },
			DeleteFunc: handler.enqueue,
		})
		if err != nil {
			return fmt.Errorf("watch for changes: %w", err)
		}
	}
	factory.Start(h.ctx.Done())
	h.done.Go(func() { h.pods.Run(h.ctx.Done()) })
	h.done.Go(func() {
		<-h.ctx.Done()
		factory.Shutdown()
	})
	factory.WaitForCacheSync(h.ctx.Done())
	if !cache.WaitForCacheSync(h.ctx.Done(), h.pods.HasSynced) {
		return fmt.Errorf("read the cluster's pods: %w", h.ctx.Err())
	}
	return nil
}

// DefaultLeasePeriod suits the grace period that package testbed gives nodes.
const DefaultLeasePeriod = 2 * time.Second

// Options say what to play.
type Options struct {
	// Config reaches the cluster whose nodes are played, with all rights.
	Config *rest.Config

	// Nodes are registered by Start. AddNode adds more.
	Nodes []Node

	// LeasePeriod is the time between two renewals of a node's lease, and between two
	// probes of a remote cluster. Zero means DefaultLeasePeriod.
	LeasePeriod time.Duration

	// Runner really runs some of the pods; nil: all are played.
	Runner Runner

	// Exec has the nodes serve exec in the pods that really run, if the Runner is an Execer.
	Exec bool
}

// Node is one node to play.
type Node struct {
	// Name is also the value of the label kubernetes.io/hostname.
	Name string

	// Labels are added to those that every node has.
	Labels map[string]string

	// Taints are set when the node is registered.
	Taints []corev1.Taint

	// Allocatable is the node's capacity too; by default 64 CPUs, 256 GiB and 500 pods.
	Allocatable corev1.ResourceList

	// Drivers are the CSI drivers that the node has, with the number of volumes that each
	// can attach; zero means no limit. They are published in the node's CSINode object.
	Drivers map[string]int32

	// Attach leaves attaching and detaching to the attach-detach controller, for drivers whose
	// CSIDriver object asks for that: pods wait until their volumes are attached, and the
	// node says which it uses.
	Attach bool

	// Remote makes this a virtual node.
	Remote *Remote
}

// Remote is the cluster that a virtual node stands for.
type Remote struct {
	// ID is the cluster's ID, the value of the node's label lodestone.dev/cluster.
	ID string

	// Config reaches the remote cluster, with all rights.
	Config *rest.Config

	// HomeID tells this home's copies from those of another home; "home" by default.
	HomeID string

	// NamespaceFor maps a namespace of the home cluster to one of the remote cluster, which
	// must exist. By default they have the same name.
	NamespaceFor func(string) string

	// Taint gives the node the taint lodestone.dev/remote=<ID>:NoSchedule.
	Taint bool
}

func (o Options) leasePeriod() time.Duration {
	if o.LeasePeriod == 0 {
		return DefaultLeasePeriod
	}
	return o.LeasePeriod
}

func (n Node) validate() error {
	if n.Name == "" {
		return fmt.Errorf("a simulated node needs a name")
	}
	if n.Remote != nil && (n.Remote.ID == "" || n.Remote.Config == nil) {
		return fmt.Errorf("virtual node %s: its remote cluster needs an ID and a client configuration", n.Name)
	}
	return nil
}

func (r *Remote) homeID() string {
	if r.HomeID == "" {
		return "home"
	}
	return r.HomeID
}

func (r *Remote) namespaceFor(namespace string) string {
	if r.NamespaceFor == nil {
		return namespace
	}
	return r.NamespaceFor(namespace)
}

// RemoteTaint is the key of the taint that virtual nodes may have.
const RemoteTaint = "lodestone.dev/remote"

func nodeObject(node Node) *corev1.Node {
	labels := map[string]string{
		corev1.LabelHostname:   node.Name,
		corev1.LabelOSStable:   "linux",
		corev1.LabelArchStable: "amd64",
	}
	taints := slices.Clone(node.Taints)
	if node.Remote != nil {
		labels[keys.Cluster] = node.Remote.ID
		labels["type"] = "virtual-kubelet"
		if node.Remote.Taint {
			taints = append(taints, corev1.Taint{Key: RemoteTaint, Value: node.Remote.ID, Effect: corev1.TaintEffectNoSchedule})
		}
	}
	maps.Copy(labels, node.Labels)
	var annotations map[string]string
	if node.Attach {
		annotations = map[string]string{managedAttach: "true"}
	}
	allocatable := node.Allocatable
	if allocatable == nil {
		allocatable = corev1.ResourceList{
			corev1.ResourceCPU:    resource.MustParse("64"),
			corev1.ResourceMemory: resource.MustParse("256Gi"),
			corev1.ResourcePods:   resource.MustParse("500"),
		}
	}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: node.Name, Labels: labels, Annotations: annotations},
		Spec:       corev1.NodeSpec{Taints: taints},
		Status: corev1.NodeStatus{
			Capacity:    allocatable,
			Allocatable: allocatable,
			Addresses: []corev1.NodeAddress{
				{Type: corev1.NodeHostName, Address: node.Name},
				{Type: corev1.NodeInternalIP, Address: "127.0.0.1"},
			},
			Conditions: nodeConditions(metav1.Now()),
			NodeInfo:   corev1.NodeSystemInfo{KubeletVersion: "v1.36.3-hollow", OperatingSystem: "linux", Architecture: "amd64"},
		},
	}
}

// nodeConditions are those of a healthy node.
func nodeConditions(now metav1.Time) []corev1.NodeCondition {
	conditions := []corev1.NodeCondition{{
		Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady", Message: "a fake kubelet plays this node",
		LastHeartbeatTime: now, LastTransitionTime: now,
	}}
	for _, pressure := range []corev1.NodeConditionType{corev1.NodeMemoryPressure, corev1.NodeDiskPressure, corev1.NodePIDPressure} {
		conditions = append(conditions, corev1.NodeCondition{
			Type: pressure, Status: corev1.ConditionFalse, Reason: "KubeletReady", LastHeartbeatTime: now, LastTransitionTime: now,
		})
	}
	return conditions
}

// register creates the Node and its CSINode. A Node of that name that exists gets the
// labels and the status, as with a kubelet that restarts.
func (h *Kubelets) register(ctx context.Context, node Node) error {
	wanted := nodeObject(node)
	if wanted.Status.DaemonEndpoints.KubeletEndpoint.Port = h.execPort; h.execPort != 0 {
		// The API server would look for a host of that name.
		wanted.Status.Addresses = slices.DeleteFunc(wanted.Status.Addresses, func(a corev1.NodeAddress) bool {
			return a.Type == corev1.NodeHostName
		})
	}
	created, err := h.client.CoreV1().Nodes().Create(ctx, wanted, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		created, err = h.reregister(ctx, wanted)
	} else if err == nil {
		created, err = h.untaint(ctx, created, wanted)
	}
	if err != nil {
		return fmt.Errorf("register node %s: %w", node.Name, err)
	}
	csiNode := &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: node.Name,
		OwnerReferences: []metav1.OwnerReference{nodeReference(created)}}}
	for _, name := range slices.Sorted(maps.Keys(node.Drivers)) {
		driver := storagev1.CSINodeDriver{Name: name, NodeID: node.Name, TopologyKeys: []string{corev1.LabelHostname}}
		if limit := node.Drivers[name]; limit > 0 {
			driver.Allocatable = &storagev1.VolumeNodeResources{Count: &limit}
		}
		csiNode.Spec.Drivers = append(csiNode.Spec.Drivers, driver)
	}
	_, err = h.client.StorageV1().CSINodes().Create(ctx, csiNode, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("register the CSI drivers of node %s: %w", node.Name, err)
	}
	return nil
}

// untaint takes away the taint that the API server gives every new node. The controller
// manager would do it too, but for a thousand nodes its client rate is too low.
func (h *Kubelets) untaint(ctx context.Context, created, wanted *corev1.Node) (*corev1.Node, error) {
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": created.UID},
		"spec":     map[string]any{"taints": wanted.Spec.Taints},
	})
	if err != nil {
		return nil, err
	}
	return h.client.CoreV1().Nodes().Patch(ctx, created.Name, types.MergePatchType, patch, metav1.PatchOptions{})
}

func (h *Kubelets) reregister(ctx context.Context, wanted *corev1.Node) (*corev1.Node, error) {
	node, err := h.client.CoreV1().Nodes().Get(ctx, wanted.Name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	maps.Copy(node.Labels, wanted.Labels)
	if node, err = h.client.CoreV1().Nodes().Update(ctx, node, metav1.UpdateOptions{}); err != nil {
		return nil, err
	}
	node.Status = wanted.Status
	return h.client.CoreV1().Nodes().UpdateStatus(ctx, node, metav1.UpdateOptions{})
}

func nodeReference(node *corev1.Node) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID}
}

// waitSchedulable waits until the taint is gone with which every node begins.
func (h *Kubelets) waitSchedulable(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for {
		node, err := h.nodes.Get(name)
		if err == nil && !slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeNotReady }) {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait until node %s is ready: %w", name, ctx.Err())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// heartbeat shows that the node lives until ctx ends.
func (h *Kubelets) heartbeat(ctx context.Context, p *player) {
	h.beat(ctx, p)
	// Many nodes must not beat in step.
	wait := time.Duration(rand.Int64N(int64(h.leasePeriod)))
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
		wait = h.leasePeriod
		h.beat(ctx, p)
	}
}

// beat renews the node's lease, and its status if that does not say that it is ready.
func (h *Kubelets) beat(ctx context.Context, p *player) {
	if !p.alive() {
		return
	}
	node, err := h.nodes.Get(p.node.Name)
	if err != nil {
		return // somebody has deleted it: a kubelet registers only when it starts
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if err := h.renewLease(ctx, node); err != nil && ctx.Err() == nil {
		klog.FromContext(ctx).V(2).Info("Renewing a lease failed", "node", node.Name, "err", err)
	}
	if !nodeReady(node) {
		if err := h.patchNodeStatus(ctx, node.Name); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).V(2).Info("Writing a node's status failed", "node", node.Name, "err", err)
		}
	}
}

func (h *Kubelets) renewLease(ctx context.Context, node *corev1.Node) error {
	leases := h.client.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	now := metav1.NowMicro()
	patch := fmt.Appendf(nil, `{"spec":{"renewTime":%q}}`, now.UTC().Format(metav1.RFC3339Micro))
	_, err := leases.Patch(ctx, node.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	if !apierrors.IsNotFound(err) {
		return err
	}
	_, err = leases.Create(ctx, &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: node.Name, OwnerReferences: []metav1.OwnerReference{nodeReference(node)}},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: &node.Name, LeaseDurationSeconds: ptr.To[int32](40), RenewTime: &now,
		},
	}, metav1.CreateOptions{})
	return err
}

func (h *Kubelets) patchNodeStatus(ctx context.Context, name string) error {
	patch, err := json.Marshal(map[string]any{"status": map[string]any{"conditions": nodeConditions(metav1.Now())}})
	if err != nil {
		return err
	}
	_, err = h.client.CoreV1().Nodes().Patch(ctx, name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	return err
}

func nodeReady(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

// Register registers nodes that are ready and that nobody plays: pods are scheduled
// to them and stay Pending, and the nodes are ready until the grace period of the
// cluster is over. It is for very many nodes, where only scheduling counts.
func Register(ctx context.Context, config *rest.Config, nodes ...Node) error {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("make the client of the nodes: %w", err)
	}
	h := &Kubelets{client: client}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(16)
	for _, node := range nodes {
		group.Go(func() error {
			if err := node.validate(); err != nil {
				return err
			}
			return h.register(ctx, node)
		})
	}
	return group.Wait()
}
