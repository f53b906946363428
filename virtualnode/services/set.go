// Package services keeps the Multi-Cluster Services API (KEP-1645) between home and the remote clusters whose networks are joined: what a
// ServiceExport of one of them names can be used in all, by a ServiceImport in the namespace that belongs to the same home namespace.
//
// Read set.go first: the Set knows what each cluster exports, and package rules says what that becomes. Each cluster has a queue of its own
// (act.go), which writes in that cluster alone, so one that does not answer holds up no other. places.go has what is watched of a cluster.
package services

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	mcs "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/clients"
	"github.com/lodestone-storage/lodestone/pkg/controller"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/remotecluster"
	"github.com/lodestone-storage/lodestone/virtualnode/services/rules"
	"github.com/lodestone-storage/lodestone/virtualnode/session"
)

const (
	// workers is how many names are worked on at once for each cluster, stepTimeout bounds all requests for one.
	workers, stepTimeout = 4, 10 * time.Second
	// firstRetry and lastRetry are the shortest and the longest pause after a failed request, refusedPeriod that after one which fails until
	// somebody acts.
	firstRetry, lastRetry, refusedPeriod = 50 * time.Millisecond, 10 * time.Second, 30 * time.Second
)

// Config is what a Set needs.
type Config struct {
	// HomeID is the ID of the home cluster, Home and Services reach it.
	HomeID   string
	Home     kubernetes.Interface
	Services *clients.MultiClusterServices
	// Factory has the informers of home's own kinds; the caller starts it. Objects are the RemoteClusters of home.
	Factory informers.SharedInformerFactory
	Objects cache.SharedIndexInformer
}

// Set is home and the remote clusters. It is safe for concurrent use.
type Set struct {
	Config
	nodes, namespaces cache.SharedIndexInformer

	mu      sync.Mutex
	members map[string]*member // by the ID of the cluster
}

// key is a name in a home namespace, and in those of remote clusters that belong to it.
type key struct{ namespace, name string }

// New returns a Set that does nothing until Run. It must be called before the Factory is started.
func New(config Config) *Set {
	core := config.Factory.Core().V1()
	s := &Set{Config: config, nodes: core.Nodes().Informer(), namespaces: core.Namespaces().Informer(), members: map[string]*member{}}
	core.Services().Informer()
	config.Factory.Discovery().V1().EndpointSlices().Informer()
	return s
}

// Run works for home until ctx ends. It does so once the custom resource definitions of the API are there.
func (s *Set) Run(ctx context.Context) error {
	m := newMember(s, &rules.Cluster{ID: s.HomeID}, s.Home, s.Services, func(home string) string { return home })
	unwatchNodes, err1 := controller.Watch(s.nodes, func(was, now *corev1.Node) {
		if node := controller.Either(was, now); node.Labels[keys.Cluster] != "" && ready(was) != ready(now) {
			s.changedAll("")
		}
	})
	unwatchNamespaces, err2 := controller.Watch(s.namespaces, func(was, now *corev1.Namespace) {
		if was == nil || now == nil || was.DeletionTimestamp != now.DeletionTimestamp || was.Labels[keys.Offload] != now.Labels[keys.Offload] ||
			was.Annotations[keys.OffloadClusters] != now.Annotations[keys.OffloadClusters] {
			s.changedAll(controller.Either(was, now).Name)
		}
	})
	unwatchObjects, err3 := controller.Watch(s.Objects, func(was, now *v1alpha1.RemoteCluster) {
		if was == nil || now == nil || was.Generation != now.Generation || !slices.Equal(was.Status.Transit, now.Status.Transit) {
			s.changedAll("")
		}
	})
	defer func() {
		for _, unwatch := range []func() error{unwatchNodes, unwatchNamespaces, unwatchObjects} {
			if unwatch != nil {
				_ = unwatch()
			}
		}
	}()
	if err := errors.Join(err1, err2, err3); err != nil {
		return err
	}
	core := s.Factory.Core().V1()
	m.begin(ctx, "", &place{services: core.Services().Informer(),
		slices: s.Factory.Discovery().V1().EndpointSlices().Informer()})
	m.run(ctx)
	m.watching.Wait()
	return nil
}

// Remote works for a remote cluster until ctx ends: it is a session.Worker.
func (s *Set) Remote(ctx context.Context, remote *session.Session) error {
	logger := klog.FromContext(ctx).WithValues("cluster", remote.Cluster)
	ctx = klog.NewContext(ctx, logger)
	if remote.Cluster == s.HomeID {
		logger.Info("No Services are shared with a remote cluster that has the name of the home cluster: give home another --cluster-id")
		<-ctx.Done()
		return nil
	}
	api, err := clients.NewMultiClusterServices(remote.Config)
	if err != nil {
		return err
	}
	m := newMember(s, &rules.Cluster{ID: remote.Cluster, Network: networkOf(remote), Ranges: remote.Ranges,
		Translations: remote.Translations, HomeTranslations: remote.HomeTranslations}, remote.Client, api, remote.Namespace)
	m.requests = clients.NewInformer(remote.Remote.NamespaceRequests(remote.Tenant()), &remotev1alpha1.NamespaceRequest{}, nil,
		cache.Indexers{})
	registration, err := m.requests.AddEventHandler(controller.Handler(func(was, now *remotev1alpha1.NamespaceRequest) {
		request := controller.Either(was, now)
		// A request of an earlier session with another strategy is for a namespace that belongs to none of ours now.
		if home := request.Spec.HomeNamespace; remote.Namespace(home) == request.Name {
			m.given(ctx, home, request.Name, now != nil && meta.IsStatusConditionTrue(now.Status.Conditions, remotev1alpha1.Ready))
		}
	}))
	if err != nil {
		return fmt.Errorf("watch NamespaceRequests: %w", err)
	}
	var running sync.WaitGroup
	running.Go(func() { m.requests.RunWithContext(ctx) })
	running.Go(func() {
		if cache.WaitForCacheSync(ctx.Done(), registration.HasSynced) {
			m.listed.Store(true)
			s.changedAll("")
		}
	})
	m.run(ctx)
	running.Wait()
	m.watching.Wait()
	return nil
}

// networkOf is that of a session; one without says Isolated.
func networkOf(remote *session.Session) v1alpha1.PodNetwork {
	if remote.Network == "" {
		return v1alpha1.Isolated
	}
	return remote.Network
}

// join adds a cluster, leave takes it away: until it is back nothing is known of it.
func (s *Set) join(m *member) {
	s.mu.Lock()
	s.members[m.ID] = m
	s.mu.Unlock()
	s.changedAll("")
}

func (s *Set) leave(m *member) {
	s.mu.Lock()
	if s.members[m.ID] == m {
		delete(s.members, m.ID)
	}
	s.mu.Unlock()
	s.changedAll("")
}

// all returns the clusters of which something is known, sorted.
func (s *Set) all() []*member {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.SortedFunc(maps.Values(s.members), func(a, b *member) int { return strings.Compare(a.ID, b.ID) })
}

func (s *Set) member(id string) *member {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.members[id]
}

// changed queues a name for each cluster.
func (s *Set) changed(k key) {
	for _, m := range s.all() {
		m.queue.Add(k)
	}
}

// changedAll queues all names of a home namespace, or of all if that is empty.
func (s *Set) changedAll(namespace string) {
	all := s.all()
	for _, m := range all {
		for k := range m.names(namespace) {
			for _, other := range all {
				other.queue.Add(k)
			}
		}
	}
}

// concerns says whether a cluster exports or imports a name: Services and EndpointSlices of others are of no interest.
func (s *Set) concerns(k key) bool {
	return slices.ContainsFunc(s.all(), func(m *member) bool { return m.has(k) })
}

// open says whether a cluster takes part in a home namespace.
func (s *Set) open(cluster *rules.Cluster, namespace string) bool {
	home := controller.Get[corev1.Namespace](s.namespaces, namespace)
	switch {
	case home == nil || home.DeletionTimestamp != nil:
		return false
	case cluster.Home():
		return home.Labels[keys.Offload] == keys.OffloadEnabled
	default:
		return cluster.Network.Joined() && remotecluster.MayUse(home, cluster.ID)
	}
}

// seen is what is known of a name in all clusters.
type seen struct {
	exports []rules.Export
	// clusters are the IDs of those that take part, unknown those of which nothing is known now.
	clusters []string
	unknown  map[string]bool
	// problems say why a cluster does not import the name, absent why it has no part in the API.
	problems, absent map[string]string
}

// observe reads a name in all clusters.
func (s *Set) observe(k key) seen {
	now := seen{unknown: map[string]bool{}, problems: map[string]string{}, absent: map[string]string{}}
	for remote := range controller.Each[v1alpha1.RemoteCluster](s.Objects) {
		cluster := &rules.Cluster{ID: remote.Name, Network: remote.Spec.PodNetwork}
		if remote.DeletionTimestamp == nil && remote.Spec.VirtualNode != v1alpha1.VirtualNodeDisabled && cluster.Network.Joined() &&
			s.open(cluster, k.namespace) {
			now.unknown[remote.Name] = true
		}
	}
	now.unknown[s.HomeID] = true
	for _, m := range s.all() {
		if !m.knows(k.namespace) {
			continue
		}
		delete(now.unknown, m.ID)
		if !s.open(m.Cluster, k.namespace) {
			continue
		}
		at, problem := m.at(k.namespace)
		if at == nil {
			if problem != "" {
				now.absent[m.ID] = problem
			}
			continue
		}
		now.clusters = append(now.clusters, m.ID)
		if problem := m.problem(k); problem != "" {
			now.problems[m.ID] = problem
		}
		if export := m.export(at, k); export != nil && export.Object.DeletionTimestamp == nil {
			now.exports = append(now.exports, *export)
		}
	}
	return now
}

// export returns what a cluster exports under a name, nil if nothing.
func (m *member) export(at *place, k key) *rules.Export {
	namespace := m.namespace(k.namespace)
	object := controller.Get[mcs.ServiceExport](at.exports, namespace+"/"+k.name)
	if object == nil {
		return nil
	}
	export := &rules.Export{From: m.Cluster, Object: object,
		Service: controller.Get[corev1.Service](at.services, namespace+"/"+k.name), TooMany: m.tooMany(at, namespace, k.name)}
	for _, slice := range controller.In[discoveryv1.EndpointSlice](at.slices, namespace) {
		if slice.Labels[discoveryv1.LabelServiceName] == k.name && !rules.Reflected(slice) {
			export.Slices = append(export.Slices, slice)
		}
	}
	return export
}

// tooMany says whether an export is one of those that are not taken of a remote cluster.
func (m *member) tooMany(at *place, namespace, name string) bool {
	if m.Home() {
		return false
	}
	var names []string
	for _, other := range controller.In[mcs.ServiceExport](at.exports, namespace) {
		names = append(names, other.Name)
	}
	return rules.TooMany(names, name)
}

// destination is a namespace of a cluster, as the rules know it.
func (s *Set) destination(to *rules.Cluster, namespace string) rules.Destination {
	return rules.Destination{
		To: to, HomeID: s.HomeID, Namespace: namespace,
		Owner: func(node string) (*rules.Cluster, bool) {
			found := controller.Get[corev1.Node](s.nodes, node)
			if found == nil || found.Labels[keys.Cluster] == "" {
				return nil, false
			}
			if m := s.member(found.Labels[keys.Cluster]); m != nil && m.Network.Joined() {
				return m.Cluster, false
			}
			return nil, true
		},
		ThroughHome: func(cluster string) bool {
			remote := controller.Get[v1alpha1.RemoteCluster](s.Objects, to.ID)
			return remote != nil && slices.Contains(remote.Status.Transit, cluster)
		},
		Silent: func(cluster string) bool {
			return cluster != s.HomeID && !ready(controller.Get[corev1.Node](s.nodes, cluster))
		},
	}
}

func ready(node *corev1.Node) bool {
	return node != nil && slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}
