package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/clients"
	"github.com/lodestone-storage/lodestone/pkg/controller"
	"github.com/lodestone-storage/lodestone/pkg/homeepoch"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/virtualnode/session"
)

// ErrReturned ends a session whose cluster answers again after an outage: the watches of the old
// session may wait long before they try again.
var ErrReturned = errors.New("the cluster answers again")

// errUnwanted ends a session whose cluster belongs to another RemoteCluster.
var errUnwanted = errors.New("the cluster must not be used through this RemoteCluster")

// Duplicate is the reason of a cluster that another RemoteCluster stands for.
const Duplicate = "Duplicate"

// Config is what a Manager needs.
type Config struct {
	// Home is the home cluster; Nodes watches its nodes and is run by the caller.
	Home  kubernetes.Interface
	Nodes cache.SharedIndexInformer
	// Address and Port are those of the node's kubelet API.
	Address string
	Port    int32
	// Probe is the interval between probes of the remote cluster, Heartbeat the interval between
	// renewals of the leases.
	Probe, Heartbeat time.Duration
	// Unwanted returns, as a word and a sentence, why the cluster with this UID of its namespace
	// kube-system, empty if not known, must not be used; empty if it may.
	Unwanted func(uid string) (reason, sentence string)
	// Record asks home what the provisioner has recorded of home's mark in the cluster, nil if nothing,
	// and for the UID of the RemoteCluster.
	Record func(ctx context.Context) (*homeepoch.Record, string)
	// Changed is called when the state has changed. It must not block.
	Changed func()
}

// Manager maintains one virtual node. It is safe for concurrent use.
type Manager struct {
	config  Config
	cluster string
	trigger chan struct{}

	mu        sync.Mutex
	health    Health
	version   string
	retired   bool
	nameTaken bool
	working   bool // admitted was called for this session
	topology  v1alpha1.Topology
	lastState State
	epoch     epoch // only probe uses it
	// featureless says that home's API server took no declared features.
	featureless bool
}

// NewManager returns the Manager of the node of a cluster.
func NewManager(cluster string, config Config) *Manager {
	return &Manager{config: config, cluster: cluster, trigger: make(chan struct{}, 1)}
}

// Retire makes the node take no more pods, or take them again. A retired node is not created again
// when somebody deletes it.
func (m *Manager) Retire(retired bool) {
	m.mu.Lock()
	m.retired = retired
	m.mu.Unlock()
	m.Trigger()
}

// Trigger queues an update of the node.
func (m *Manager) Trigger() {
	select {
	case m.trigger <- struct{}{}:
	default:
	}
}

// State returns whether pods can run in the cluster, and false while that is not known.
func (m *Manager) State() (State, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.nameTaken {
		return State{Reason: "NameTaken", Message: fmt.Sprintf("there is a node named %s that is not Lodestone's: delete that node, or give "+
			"the RemoteCluster another name", m.cluster)}, true
	}
	return m.health.State(m.cluster)
}

// Run maintains the node for a session until ctx ends, and then returns nil. It calls admitted once
// the cluster has answered and either there is such a node, so that pods may be bound to it, or the
// node is retired and its pods are to be ended. ErrReturned asks for a new session.
func (m *Manager) Run(ctx context.Context, s *session.Session, admitted func()) error {
	prober, err := newProber(s)
	if err != nil {
		return err
	}
	m.mu.Lock()
	m.health, m.nameTaken, m.working, m.topology = Health{}, false, false, s.Topology
	m.mu.Unlock()
	unwatch, err := controller.Watch(m.config.Nodes, func(was, now *corev1.Node) {
		if controller.Either(was, now).Name == s.Node {
			m.Trigger()
		}
	})
	if err != nil {
		return fmt.Errorf("watch node %s: %w", s.Node, err)
	}
	working, end := context.WithCancelCause(ctx)
	var running sync.WaitGroup
	watch := sync.OnceFunc(func() { running.Go(func() { m.watchHome(working, s) }) })
	running.Go(func() { end(m.probe(working, prober, watch)) })
	running.Go(func() {
		m.renew(working, "node lease", func(ctx context.Context) error { return m.renewNode(ctx, s.Node) })
	})
	running.Go(func() {
		m.renew(working, "heartbeat", func(ctx context.Context) error { return m.renewHeartbeat(ctx, prober, s) })
	})
	m.syncUntil(working, s.Node, sync.OnceFunc(admitted))
	running.Wait()
	cause := context.Cause(working)
	end(nil)
	if err := unwatch(); err != nil {
		return fmt.Errorf("stop watching node %s: %w", s.Node, err)
	}
	if ctx.Err() == nil {
		return cause
	}
	return nil
}

// syncUntil updates the node whenever it is triggered.
func (m *Manager) syncUntil(ctx context.Context, name string, admitted func()) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-m.trigger:
		}
		if err := m.sync(ctx, name, admitted); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).V(2).Info("The node will be written again", "node", name, "err", err)
			retry := time.AfterFunc(time.Second, m.Trigger)
			context.AfterFunc(ctx, func() { retry.Stop() })
		}
		m.reportState()
	}
}

// reportState calls Changed if the state is a new one.
func (m *Manager) reportState() {
	state, known := m.State()
	m.mu.Lock()
	changed := known && m.lastState != state
	if changed {
		m.lastState = state
	}
	m.mu.Unlock()
	if changed {
		m.config.Changed()
	}
}

// sync updates the node once.
func (m *Manager) sync(ctx context.Context, name string, admitted func()) error {
	m.mu.Lock()
	health, retired, version, topology, featureless := m.health, m.retired, m.version, m.topology, m.featureless
	m.mu.Unlock()
	state, known := health.State(m.cluster)
	description := Description{
		Cluster: m.cluster, Address: m.config.Address, Port: m.config.Port, Version: version,
		State: state, Retired: retired, Now: metav1.Now(), Topology: topology, Featureless: featureless,
	}
	if health.Home != nil {
		description.Offer = &health.Home.Status
	}
	node := m.node(name)
	m.mu.Lock()
	m.nameTaken = node != nil && !Ours(node, m.cluster)
	m.mu.Unlock()
	begin := func() {
		m.mu.Lock()
		m.working = true
		m.mu.Unlock()
		admitted()
	}
	switch {
	case node == nil && retired:
		// Somebody deleted it, but the cluster may still run its pods.
		if usable(health, retired) {
			begin()
		}
		return nil
	case node == nil && (!known || health.Home == nil || health.Unwanted != ""):
		return nil
	case node == nil:
		return m.create(ctx, New(name, description))
	case !Ours(node, m.cluster):
		return nil
	}
	if !known {
		return nil
	}
	if usable(health, retired) {
		begin()
	}
	return m.update(ctx, node, description)
}

// usable reports whether work may begin in a cluster. In a cluster that belongs to another
// RemoteCluster it may only to end the pods that this one left there.
func usable(health Health, retired bool) bool {
	return health.Answered && (health.Unwanted == "" || (retired && health.UnwantedReason == Duplicate))
}

// Show writes a state into the node, if there is one, while no session runs.
func (m *Manager) Show(ctx context.Context, name string, state State) error {
	node := m.node(name)
	if node == nil || !Ours(node, m.cluster) {
		return nil
	}
	return m.update(ctx, node, Description{Cluster: m.cluster, Address: m.config.Address, Port: m.config.Port, State: state,
		Now: metav1.Now()})
}

// node returns the node as last seen, nil if there is none.
func (m *Manager) node(name string) *corev1.Node {
	return controller.Get[corev1.Node](m.config.Nodes, name)
}

// probe probes the cluster until ctx ends; it returns ErrReturned when the cluster answers again
// after it was silent. It calls found whenever there is a HomeCluster of this home.
func (m *Manager) probe(ctx context.Context, p *prober, found func()) error {
	ticker := time.NewTicker(m.config.Probe)
	defer ticker.Stop()
	for {
		answered, returned := m.probeOnce(ctx, p)
		m.Trigger()
		if returned {
			return ErrReturned
		}
		if m.mustStop() {
			return errUnwanted
		}
		if answered {
			found()
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// probeOnce probes once. answered says that there is a HomeCluster of this home, returned that the
// cluster was silent before.
func (m *Manager) probeOnce(ctx context.Context, p *prober) (answered, returned bool) {
	err := p.ready(ctx)
	var home *remotev1alpha1.HomeCluster
	lacking := ""
	if err == nil {
		home, err = p.home(ctx)
		if lacking = missing(m.cluster, p.homeID, err); lacking != "" {
			home, err = nil, nil
		}
	}
	version, uid := "", ""
	if err == nil && m.unversioned() {
		version = p.version(ctx)
	}
	if err == nil {
		uid, err = p.identity(ctx)
	}
	reason, unwanted, unsure := "", "", false
	if err == nil {
		reason, unwanted = m.config.Unwanted(uid)
	}
	if err == nil && unwanted == "" && home != nil {
		reason, unwanted, unsure, err = m.checkEpoch(ctx, p)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case err != nil || !unsure:
	case !m.health.Answered:
		// Nothing is said before it is known.
		return home != nil, false
	case m.health.UnwantedReason == NotInForce:
		reason, unwanted = m.health.UnwantedReason, m.health.Unwanted
	}
	if err != nil {
		if ctx.Err() == nil {
			m.health.Failures++
			m.health.Reason, m.health.Problem = failure(m.cluster, err)
		}
		return false, false
	}
	returned = m.health.Silent() && m.health.Answered
	if version != "" {
		m.version = version
	}
	m.health.Answered, m.health.Failures = true, 0
	m.health.Missing, m.health.Home = lacking, home
	m.health.Unwanted, m.health.UnwantedReason = unwanted, reason
	return home != nil, returned
}

// mustStop reports whether the session must end because the cluster must not be used. It goes on
// only to end pods that were begun there.
func (m *Manager) mustStop() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.working && m.health.Unwanted != "" && !usable(m.health, m.retired)
}

func (m *Manager) unversioned() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return !m.health.Answered || m.version == ""
}

// watchHome watches the HomeCluster of this home until ctx ends.
func (m *Manager) watchHome(ctx context.Context, s *session.Session) {
	informer := clients.NewInformer(s.Remote.HomeClusters(), &remotev1alpha1.HomeCluster{}, func(options *metav1.ListOptions) {
		options.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, s.HomeID).String()
	}, cache.Indexers{})
	_, err := controller.Watch(informer, func(_, home *remotev1alpha1.HomeCluster) {
		if home == nil || home.Name != s.HomeID {
			return
		}
		m.mu.Lock()
		m.health.Home, m.health.Missing = home, ""
		m.mu.Unlock()
		m.Trigger()
	})
	if err != nil {
		// Probes read the same object, a little later.
		klog.FromContext(ctx).Error(err, "The HomeCluster is not watched")
		return
	}
	informer.RunWithContext(ctx)
}

// leaseDuration is how long a node's lease is valid, in seconds: as with kubelets.
const leaseDuration = 40

// renew renews a lease in intervals while the remote cluster answers.
func (m *Manager) renew(ctx context.Context, what string, once func(context.Context) error) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		next := m.config.Heartbeat
		m.mu.Lock()
		alive := m.health.Alive() && m.health.Home != nil
		m.mu.Unlock()
		if !alive {
			next = min(next, 500*time.Millisecond)
		} else if err := once(ctx); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).V(2).Info("A lease will be renewed again", "lease", what, "err", err)
			next = min(next, time.Second)
		}
		timer.Reset(next)
	}
}

// renewNode renews the lease of the node, so that kube-controller-manager counts the node as
// maintained.
func (m *Manager) renewNode(ctx context.Context, name string) error {
	node := m.node(name)
	if node == nil || !Ours(node, m.cluster) {
		return fmt.Errorf("node %s is not there yet", name)
	}
	owner := metav1.OwnerReference{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID}
	return renewLease(ctx, m.config.Home, corev1.NamespaceNodeLease, name, name, &owner)
}

// renewHeartbeat renews the Lease by which the remote agent sees that home is connected.
func (m *Manager) renewHeartbeat(ctx context.Context, p *prober, s *session.Session) error {
	if err := renewLease(ctx, p.client, s.Tenant(), keys.HeartbeatLease, s.HomeID, nil); err != nil {
		return err
	}
	m.mu.Lock()
	m.health.Beats++
	m.mu.Unlock()
	return nil
}

// renewLease renews a lease, or creates it.
func renewLease(ctx context.Context, client kubernetes.Interface, namespace, name, holder string, owner *metav1.OwnerReference) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	leases := client.CoordinationV1().Leases(namespace)
	lease, err := leases.Get(ctx, name, metav1.GetOptions{})
	fresh := apierrors.IsNotFound(err)
	if fresh {
		lease = &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	} else if err != nil {
		return fmt.Errorf("get lease %s/%s: %w", namespace, name, err)
	}
	if owner != nil && !equality.Semantic.DeepEqual(lease.OwnerReferences, []metav1.OwnerReference{*owner}) {
		lease.OwnerReferences = []metav1.OwnerReference{*owner}
	}
	lease.Spec.HolderIdentity = ptr.To(holder)
	lease.Spec.LeaseDurationSeconds = ptr.To[int32](leaseDuration)
	lease.Spec.RenewTime = ptr.To(metav1.NowMicro())
	if fresh {
		_, err = leases.Create(ctx, lease, metav1.CreateOptions{})
	} else {
		_, err = leases.Update(ctx, lease, metav1.UpdateOptions{})
	}
	if err != nil {
		return fmt.Errorf("renew lease %s/%s: %w", namespace, name, err)
	}
	return nil
}

// writeTimeout limits each write to the home cluster.
const writeTimeout = 10 * time.Second

func (m *Manager) create(ctx context.Context, node *corev1.Node) error {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	_, err := m.config.Home.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil // the informer brings the change
	}
	if err != nil {
		return fmt.Errorf("create node %s: %w", node.Name, err)
	}
	klog.FromContext(ctx).Info("Node created", "node", klog.KObj(node))
	return nil
}

// update writes the differences: first labels, annotations and taints, then the status. The first
// write is a conflict if the node has changed meanwhile, because taints are one list; the
// informer's event then brings a new attempt.
func (m *Manager) update(ctx context.Context, have *corev1.Node, d Description) error {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	nodes := m.config.Home.CoreV1().Nodes()
	if want := WithMeta(have, d); !equality.Semantic.DeepEqual(have, want) {
		patch, err := difference(have, want, map[string]any{"uid": have.UID, "resourceVersion": have.ResourceVersion})
		if err != nil {
			return err
		}
		if have, err = nodes.Patch(ctx, have.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}); err != nil {
			return fmt.Errorf("patch node: %w", err)
		}
	}
	want := WithStatus(have, d)
	if equality.Semantic.DeepEqual(have.Status, want.Status) {
		return nil
	}
	patch, err := difference(have, want, map[string]any{"uid": have.UID})
	if err != nil {
		return err
	}
	written, err := nodes.Patch(ctx, have.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	if err != nil {
		return fmt.Errorf("patch status of node: %w", err)
	}
	if len(want.Status.DeclaredFeatures) > 0 && len(written.Status.DeclaredFeatures) == 0 {
		m.mu.Lock()
		m.featureless = true
		m.mu.Unlock()
	}
	return nil
}

// difference returns the patch from have to want, which applies only if the node still has the
// given metadata.
func difference(have, want *corev1.Node, metadata map[string]any) ([]byte, error) {
	before, err := json.Marshal(have)
	if err != nil {
		return nil, fmt.Errorf("encode node: %w", err)
	}
	after, err := json.Marshal(want)
	if err != nil {
		return nil, fmt.Errorf("encode node: %w", err)
	}
	raw, err := strategicpatch.CreateTwoWayMergePatch(before, after, corev1.Node{})
	if err != nil {
		return nil, fmt.Errorf("compare node with what it should be: %w", err)
	}
	patch := map[string]any{}
	if err := json.Unmarshal(raw, &patch); err != nil {
		return nil, fmt.Errorf("read the patch of a node: %w", err)
	}
	fields, ok := patch["metadata"].(map[string]any)
	if !ok {
		fields = map[string]any{}
	}
	for key, value := range metadata {
		fields[key] = value
	}
	patch["metadata"] = fields
	return json.Marshal(patch)
}
