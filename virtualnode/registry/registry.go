// Package registry opens a session for each RemoteCluster that wants a virtual node, replaces it
// when the kubeconfig or the object changes, and removes virtual nodes. Registry.Run starts one
// clusterWorker, with its own goroutine, for each RemoteCluster, so that no cluster waits for
// another. Read registry.go and then worker.go.
package registry

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/clients"
	"github.com/lodestone-storage/lodestone/pkg/controller"
	"github.com/lodestone-storage/lodestone/pkg/homeepoch"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/remotecluster"
	"github.com/lodestone-storage/lodestone/virtualnode/node"
	"github.com/lodestone-storage/lodestone/virtualnode/session"
)

// Config is what a Registry needs. The caller runs the informers.
type Config struct {
	Home    kubernetes.Interface
	Remotes *clients.RemoteClusters
	// Objects watches RemoteCluster objects, Secrets the Secrets of Namespace.
	Objects cache.SharedIndexInformer
	Secrets cache.SharedIndexInformer
	// Namespace is the namespace of kubeconfig Secrets.
	Namespace string
	// HomeID is the home cluster's ID, HomeUID the UID of its namespace
	// kube-system.
	HomeID, HomeUID string
	// Node is the configuration of virtual nodes, without Port and callbacks.
	Node node.Config
	// Endpoints serves the kubelet APIs of virtual nodes.
	Endpoints Endpoints
	// Workers run for each session once its node exists.
	Workers []session.Worker
	Metrics *Metrics
	// Interval is how often each cluster is reconciled without an event.
	Interval time.Duration
}

// Endpoints serves the kubelet APIs of virtual nodes.
type Endpoints interface {
	// Serve begins to serve for a node and returns the port; Close ends that. A second Serve for a
	// node without a Close is an error.
	Serve(ctx context.Context, node string) (int32, error)
	// Use sends requests for a node to a session's cluster from now on; nil: to none. Open streams
	// continue.
	Use(node string, s *session.Session)
	Close(node string)
}

// Registry has one clusterWorker for each RemoteCluster object.
type Registry struct {
	config Config

	mu      sync.Mutex
	workers map[string]*clusterWorker
	ended   bool
	running sync.WaitGroup
}

// New returns a Registry that does nothing until it is run.
func New(config Config) *Registry {
	return &Registry{config: config, workers: map[string]*clusterWorker{}}
}

// Run works until ctx ends, and returns when all clusterWorkers have ended.
func (r *Registry) Run(ctx context.Context) error {
	unwatchObjects, err1 := controller.Watch(r.config.Objects, func(was, now *v1alpha1.RemoteCluster) {
		r.serve(ctx, controller.Either(was, now).Name)
	})
	unwatchSecrets, err2 := controller.Watch(r.config.Secrets, func(was, now *corev1.Secret) {
		// The records of home's marks change all the time.
		if controller.Either(was, now).Type != homeepoch.SecretType {
			r.triggerAll()
		}
	})
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	<-ctx.Done()
	r.mu.Lock()
	r.ended = true
	r.mu.Unlock()
	r.running.Wait()
	return errors.Join(unwatchObjects(), unwatchSecrets())
}

// serve starts the worker of a RemoteCluster, or triggers it. The worker itself notices when its
// object is deleted.
func (r *Registry) serve(ctx context.Context, id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if t, ok := r.workers[id]; ok {
		t.Trigger()
		return
	}
	if r.ended || ctx.Err() != nil || r.object(id) == nil {
		return
	}
	config := r.config
	config.Node.Unwanted = func(uid string) (string, string) { return r.unwanted(id, uid) }
	config.Node.Record = func(ctx context.Context) (*homeepoch.Record, string) { return r.record(ctx, id) }
	t := newClusterWorker(id, config)
	r.workers[id] = t
	r.running.Go(func() {
		t.run(ctx)
		r.mu.Lock()
		delete(r.workers, id)
		r.mu.Unlock()
		// The object may have been created again while the worker ended.
		r.serve(ctx, id)
	})
}

// unwanted says why a RemoteCluster whose cluster has this UID must not be used, and remembers the
// UID. Of two RemoteClusters for one cluster the older is used: each pod must belong to one node
// only.
func (r *Registry) unwanted(id, uid string) (reason, sentence string) {
	if uid == "" {
		return "", ""
	}
	if uid == r.config.HomeUID {
		return "PointsHome", "the kubeconfig leads to the home cluster itself: use that of another cluster"
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if t := r.workers[id]; t != nil {
		t.uid = uid
	}
	self := r.object(id)
	if self != nil {
		if made := self.Annotations[keys.ClusterUID]; made != "" && made != uid {
			return "OtherCluster", "the kubeconfig leads to another cluster than the one that kubectl lodestone peer made this RemoteCluster " +
				"for: put back the kubeconfig of that one, or, if this one is meant, delete the annotation " + keys.ClusterUID
		}
	}
	for other, t := range r.workers {
		object := r.object(other)
		if other != id && t.uid == uid && self != nil && object != nil && remotecluster.Older(object, self) {
			return node.Duplicate, fmt.Sprintf("RemoteCluster %q already stands for this cluster: delete one of the two", other)
		}
	}
	return "", ""
}

// record returns what the provisioner has recorded of home's mark in a cluster, nil if nothing, and the
// UID of the RemoteCluster.
func (r *Registry) record(ctx context.Context, id string) (record *homeepoch.Record, remoteCluster string) {
	object := r.object(id)
	if object == nil {
		return nil, ""
	}
	secret := r.recordSecret(ctx, homeepoch.SecretName(id))
	if secret == nil || len(secret.Data[homeepoch.SecretKey]) == 0 {
		return nil, string(object.UID)
	}
	record, err := homeepoch.ParseRecord(secret.Data[homeepoch.SecretKey])
	if err != nil {
		// What cannot be read says that home must not act.
		return &homeepoch.Record{RemoteCluster: string(object.UID), Doubt: &homeepoch.Doubt{}}, string(object.UID)
	}
	return record, string(object.UID)
}

// recordTimeout bounds one question to the home cluster.
const recordTimeout = 3 * time.Second

// recordSecret asks the API server for the Secret with a record, nil if there is none: where home was restored from a
// backup while this program ran, watches that began before tell nothing of it. While the API server does not
// answer, what was told last counts.
func (r *Registry) recordSecret(ctx context.Context, name string) *corev1.Secret {
	ctx, cancel := context.WithTimeout(ctx, recordTimeout)
	defer cancel()
	found, err := r.config.Home.CoreV1().Secrets(r.config.Namespace).List(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()})
	switch {
	case err != nil:
		klog.FromContext(ctx).V(2).Info("The record of the home epoch is read from the cache", "err", err)
		return controller.Get[corev1.Secret](r.config.Secrets, r.config.Namespace+"/"+name)
	case len(found.Items) == 0:
		return nil
	}
	return &found.Items[0]
}

func (r *Registry) triggerAll() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, t := range r.workers {
		t.Trigger()
	}
}

// object returns the RemoteCluster of the given name as last read, nil if there is none. It must
// not be changed.
func (r *Registry) object(id string) *v1alpha1.RemoteCluster {
	return controller.Get[v1alpha1.RemoteCluster](r.config.Objects, id)
}

// Metrics are about virtual nodes.
type Metrics struct {
	ready    *prometheus.GaugeVec
	sessions *prometheus.CounterVec
}

// NewMetrics returns metrics that are registered.
func NewMetrics(registerer prometheus.Registerer) *Metrics {
	factory := promauto.With(registerer)
	return &Metrics{
		ready: factory.NewGaugeVec(prometheus.GaugeOpts{
			Name: "lodestone_virtual_node_ready", Help: "1 if the virtual node of a remote cluster takes pods, 0 if not.",
		}, []string{"cluster"}),
		sessions: factory.NewCounterVec(prometheus.CounterOpts{
			Name: "lodestone_virtual_node_sessions_total", Help: "How often work for a remote cluster began: at the start, after an outage and " +
				"with a new kubeconfig.",
		}, []string{"cluster"}),
	}
}

func (m *Metrics) show(cluster string, ready bool) {
	value := 0.0
	if ready {
		value = 1
	}
	m.ready.WithLabelValues(cluster).Set(value)
}

func (m *Metrics) forget(cluster string) {
	m.ready.DeleteLabelValues(cluster)
	m.sessions.DeleteLabelValues(cluster)
}
