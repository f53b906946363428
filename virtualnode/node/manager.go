package node

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/lodestone-storage/lodestone/virtualnode/session"
)

// ErrReturned ends a session whose cluster answers again after an outage: the
// watches of the old session may sleep for long before they try again.
var ErrReturned = errors.New("the cluster answers again")

// errUnwanted ends a session whose cluster turns out to be another RemoteCluster's.
var errUnwanted = errors.New("the cluster must not be used through this RemoteCluster")

// Duplicate is the word of a cluster that another RemoteCluster stands for.
const Duplicate = "Duplicate"

// Config is what a Manager needs.
type Config struct {
	// Home is the home cluster; Nodes watches its nodes and is run by the caller.
	Home  kubernetes.Interface
	Nodes cache.SharedIndexInformer
	// Address and Port are where the node's kubelet API is served.
	Address string
	Port    int32
	// Probe is how often the remote cluster is asked how it is, Heartbeat how
	// often the leases are renewed.
	Probe, Heartbeat time.Duration
	// Unwanted says, in a word and a sentence, why the cluster with this UID of its
	// namespace kube-system, empty if not known, must not be used; empty if it may.
	Unwanted func(uid string) (reason, sentence string)
	// Changed is called when the state changed. It must not block.
	Changed func()
}

// Manager keeps one virtual node. It is safe for concurrent use.
type Manager struct {
	config  Config
	cluster string
	poke    chan struct{}

	mu      sync.Mutex
	health  Health
	version string
	retired bool
	taken   bool
	begun   bool // admitted was called for this session
	told    State
}

// NewManager returns the Manager of the node of a cluster.
func NewManager(cluster string, config Config) *Manager {
	return &Manager{config: config, cluster: cluster, poke: make(chan struct{}, 1)}
}

// Retire has the node take no more pods, or take them again. A node that is
// retired is not made again when somebody deletes it.
func (m *Manager) Retire(retired bool) {
	m.mu.Lock()
	m.retired = retired
	m.mu.Unlock()
	m.Poke()
}

// Poke has the node be brought up to date soon.
func (m *Manager) Poke() {
	select {
	case m.poke <- struct{}{}:
	default:
	}
}

// State returns whether pods can run in the cluster, and false as long as that is
// not known.
func (m *Manager) State() (State, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.taken {
		return State{Reason: "NameTaken", Message: fmt.Sprintf("there is a node named %s that is not Lodestone's: delete that node, or give the RemoteCluster another name", m.cluster)}, true
	}
	return m.health.State(m.cluster)
}

// Run keeps the node for a session until ctx ends, and then returns nil. Admitted
// is called once the cluster answered and there is such a node, to which pods may be
// bound, or the node is retired, and what it ran is to be ended. ErrReturned asks for
// a new session.
func (m *Manager) Run(ctx context.Context, s *session.Session, admitted func()) error {
	prober, err := newProber(s)
	if err != nil {
		return err
	}
	m.mu.Lock()
	m.health, m.taken, m.begun = Health{}, false, false
	m.mu.Unlock()
	handler, err := m.config.Nodes.AddEventHandler(m.watchNode(s.Node))
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
	if err := m.config.Nodes.RemoveEventHandler(handler); err != nil {
		return fmt.Errorf("stop watching node %s: %w", s.Node, err)
	}
	if ctx.Err() == nil {
		return cause
	}
	return nil
}

func (m *Manager) watchNode(name string) cache.ResourceEventHandler {
	poke := func(obj any) {
		if key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(obj); err == nil && key == name {
			m.Poke()
		}
	}
	return cache.ResourceEventHandlerFuncs{AddFunc: poke, UpdateFunc: func(_, obj any) { poke(obj) }, DeleteFunc: poke}
}

// syncUntil brings the node up to date whenever poked.
func (m *Manager) syncUntil(ctx context.Context, name string, admitted func()) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-m.poke:
		}
		if err := m.sync(ctx, name, admitted); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).V(2).Info("The node will be written again", "node", name, "err", err)
			retry := time.AfterFunc(time.Second, m.Poke)
			context.AfterFunc(ctx, func() { retry.Stop() })
		}
		m.tell()
	}
}

// tell reports a state that is new.
func (m *Manager) tell() {
	state, known := m.State()
	m.mu.Lock()
	changed := known && m.told != state
	if changed {
		m.told = state
	}
	m.mu.Unlock()
	if changed {
		m.config.Changed()
	}
}

// sync brings the node up to date once.
func (m *Manager) sync(ctx context.Context, name string, admitted func()) error {
	m.mu.Lock()
	health, retired, version := m.health, m.retired, m.version
	m.mu.Unlock()
	state, known := health.State(m.cluster)
	description := Description{
		Cluster: m.cluster, Address: m.config.Address, Port: m.config.Port, Version: version,
		State: state, Retired: retired, Now: metav1.Now(),
	}
	if health.Home != nil {
		description.Offer = &health.Home.Status
	}
	node := m.node(name)
	m.mu.Lock()
	m.taken = node != nil && !Ours(node, m.cluster)
	m.mu.Unlock()
	begin := func() {
		m.mu.Lock()
		m.begun = true
		m.mu.Unlock()
		admitted()
	}
	switch {
	case node == nil && retired:
		// Somebody deleted it, but the cluster may still hold what it ran.
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

// usable reports whether work may begin in a cluster. Where it is another
// RemoteCluster's, only to end what this one left there.
func usable(health Health, retired bool) bool {
	return health.Answered && (health.Unwanted == "" || (retired && health.UnwantedReason == Duplicate))
}

// Show has the node, if there is one, show a state while no session runs.
func (m *Manager) Show(ctx context.Context, name string, state State) error {
	node := m.node(name)
	if node == nil || !Ours(node, m.cluster) {
		return nil
	}
	return m.update(ctx, node, Description{Cluster: m.cluster, Address: m.config.Address, Port: m.config.Port, State: state, Now: metav1.Now()})
}

// node returns the node as last seen, nil if there is none.
func (m *Manager) node(name string) *corev1.Node {
	obj, ok, err := m.config.Nodes.GetStore().GetByKey(name)
	if err != nil || !ok {
		return nil
	}
	node, _ := obj.(*corev1.Node)
	return node
}
