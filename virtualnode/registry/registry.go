// Package registry opens a session for each RemoteCluster that is to have
// a virtual node, ends and renews it as kubeconfigs and objects change, and takes
// virtual nodes away. Each cluster has a goroutine of its own, so that none waits
// for another.
package registry

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/remoteclusters"
	"github.com/lodestone-storage/lodestone/virtualnode/node"
	"github.com/lodestone-storage/lodestone/virtualnode/session"
)

// Config is what a Registry needs. The informers are run by the caller.
type Config struct {
	Home    kubernetes.Interface
	Remotes *remoteclusters.Client
	// Objects watches RemoteCluster objects, Secrets the Secrets of Namespace.
	Objects cache.SharedIndexInformer
	Secrets cache.SharedIndexInformer
	// Namespace is where kubeconfig Secrets must be.
	Namespace string
	// HomeID is the home cluster's ID, HomeUID the UID of its namespace
	// kube-system.
	HomeID, HomeUID string
	// Node is the configuration of virtual nodes, without port and hook.
	Node node.Config
	// Endpoints serves the kubelet APIs of virtual nodes.
	Endpoints Endpoints
	// Workers run for each session once its node is there.
	Workers []session.Worker
	Metrics *Metrics
	// Interval is how often each cluster is looked at when nothing happens.
	Interval time.Duration
}

// Endpoints serves the kubelet APIs of virtual nodes.
type Endpoints interface {
	// Serve begins to serve for a node and returns the port. Close ends it. Serving
	// twice for one node without a Close is an error.
	Serve(ctx context.Context, node string) (int32, error)
	// Use has requests for a node go to a session's cluster from now on; nil: to
	// none. Streams that run go on.
	Use(node string, s *session.Session)
	Close(node string)
}

// Registry holds one tenure for each RemoteCluster object.
type Registry struct {
	config Config

	mu      sync.Mutex
	tenures map[string]*tenure
	uids    map[string]string // of the clusters that RemoteClusters lead to
	ended   bool
	running sync.WaitGroup
}

// New returns a Registry that does nothing until it is run.
func New(config Config) *Registry {
	return &Registry{config: config, tenures: map[string]*tenure{}, uids: map[string]string{}}
}

// Run serves the clusters until ctx ends, and returns when all work for them has
// ended.
func (r *Registry) Run(ctx context.Context) error {
	objects, err := r.config.Objects.AddEventHandler(handler(func(obj any) {
		if remote, ok := obj.(*v1alpha1.RemoteCluster); ok {
			r.serve(ctx, remote.Name)
		}
	}))
	if err != nil {
		return fmt.Errorf("watch RemoteClusters: %w", err)
	}
	secrets, err := r.config.Secrets.AddEventHandler(handler(func(obj any) {
		if _, ok := obj.(*corev1.Secret); ok {
			r.pokeAll()
		}
	}))
	if err != nil {
		return fmt.Errorf("watch kubeconfig Secrets: %w", err)
	}
	<-ctx.Done()
	r.mu.Lock()
	r.ended = true
	r.mu.Unlock()
	r.running.Wait()
	return errors.Join(r.config.Objects.RemoveEventHandler(objects), r.config.Secrets.RemoveEventHandler(secrets))
}

// serve begins the tenure of a RemoteCluster, or pokes it. The tenure itself sees
// when its object is gone.
func (r *Registry) serve(ctx context.Context, id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if t, ok := r.tenures[id]; ok {
		t.Poke()
		return
	}
	if r.ended || ctx.Err() != nil || r.object(id) == nil {
		return
	}
	config := r.config
	config.Node.Unwanted = func(uid string) (string, string) { return r.unwanted(id, uid) }
	t := newTenure(id, config)
	r.tenures[id] = t
	r.running.Go(func() {
		t.run(ctx)
		r.mu.Lock()
		delete(r.tenures, id)
		delete(r.uids, id)
		r.mu.Unlock()
		// It may have been created again while the tenure ended.
		r.serve(ctx, id)
	})
}

// unwanted says why a RemoteCluster that leads to the cluster with a UID must not
// be used, and remembers the UID. Of two for one cluster the older is used: the
// pods of one node must be nobody else's.
func (r *Registry) unwanted(id, uid string) (reason, sentence string) {
	if uid == "" {
		return "", ""
	}
	if uid == r.config.HomeUID {
		return "PointsHome", "the kubeconfig leads to the home cluster itself: use that of another cluster"
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.uids[id] = uid
	self := r.object(id)
	for other, its := range r.uids {
		object := r.object(other)
		if other != id && its == uid && self != nil && object != nil && older(object, self) {
			return node.Duplicate, fmt.Sprintf("RemoteCluster %q already stands for this cluster: delete one of the two", other)
		}
	}
	return "", ""
}

func older(a, b *v1alpha1.RemoteCluster) bool {
	if !a.CreationTimestamp.Equal(&b.CreationTimestamp) {
		return a.CreationTimestamp.Before(&b.CreationTimestamp)
	}
	return a.Name < b.Name
}

func (r *Registry) pokeAll() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, t := range r.tenures {
		t.Poke()
	}
}

func (r *Registry) object(id string) *v1alpha1.RemoteCluster { return object(r.config.Objects, id) }

// object returns the RemoteCluster of the given name as last seen, nil if there is
// none. It must not be changed.
func object(objects cache.SharedIndexInformer, id string) *v1alpha1.RemoteCluster {
	obj, ok, err := objects.GetStore().GetByKey(id)
	if err != nil || !ok {
		return nil
	}
	remote, _ := obj.(*v1alpha1.RemoteCluster)
	return remote
}

func handler(changed func(obj any)) cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    changed,
		UpdateFunc: func(_, obj any) { changed(obj) },
		DeleteFunc: func(obj any) {
			if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = gone.Obj
			}
			changed(obj)
		},
	}
}
