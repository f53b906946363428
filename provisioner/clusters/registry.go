package clusters

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/remoteclusters"
)

// Registry holds one Cluster for each RemoteCluster object.
type Registry struct {
	home      kubernetes.Interface
	remotes   *remoteclusters.Client
	objects   cache.SharedIndexInformer
	secrets   cache.SharedIndexInformer
	namespace string
	homeID    string
	homeUID   string
	interval  time.Duration
	volumes   func(cluster string) int
	snapshots func(cluster string) (int, bool)
	health    func(cluster string) *v1alpha1.VolumeHealth
	mapping   Mapping
	recorder  record.EventRecorder
	hooks     Hooks

	mu       sync.Mutex
	clusters map[string]*Cluster
	ended    bool
	running  sync.WaitGroup
}

// Config is what a Registry needs. The informers are run by the caller.
type Config struct {
	Home    kubernetes.Interface
	Remotes *remoteclusters.Client
	// Objects watches RemoteCluster objects, Secrets the Secrets of Namespace.
	Objects cache.SharedIndexInformer
	Secrets cache.SharedIndexInformer
	// Namespace is where kubeconfig Secrets must be.
	Namespace string
	// HomeID is the home cluster's ID, HomeUID the UID of its kube-system.
	HomeID, HomeUID string
	// Interval is how often each cluster is looked at.
	Interval time.Duration
	// Volumes returns how many virtual volumes have their data in a cluster.
	Volumes func(cluster string) int
	// Snapshots returns how many VolumeSnapshots have their data in a cluster; false
	// while that is not known. Nil: none has.
	Snapshots func(cluster string) (int, bool)
	// Health returns how they are, nil while that is not known.
	Health  func(cluster string) *v1alpha1.VolumeHealth
	Mapping Mapping
	// Recorder writes events on RemoteClusters.
	Recorder record.EventRecorder
	Hooks    Hooks
}

// Mapping is what is needed of the home cluster to keep namespaces in others.
type Mapping struct {
	// Namespaces, Volumes and Pods watch those of the home cluster.
	Namespaces, Volumes, Pods cache.SharedIndexInformer
	// Used says whether virtual volumes have their data in a namespace of
	// a cluster, claims of its home namespace may have backing claims there, or
	// pods of it may have copies there.
	Used func(cluster, namespace, home string) bool
}

// New returns a Registry that does nothing until it is run.
func New(config Config) *Registry {
	return &Registry{
		home: config.Home, remotes: config.Remotes, objects: config.Objects, secrets: config.Secrets,
		namespace: config.Namespace, homeID: config.HomeID, homeUID: config.HomeUID,
		interval: config.Interval, volumes: config.Volumes, health: config.Health, snapshots: config.Snapshots, mapping: config.Mapping, recorder: config.Recorder, hooks: config.Hooks,
		clusters: map[string]*Cluster{},
	}
}

// Run serves the clusters until ctx ends, and returns when all work for them has
// ended.
func (r *Registry) Run(ctx context.Context) error {
	objects, err := r.objects.AddEventHandler(changes(func(old, obj any) {
		before, _ := old.(*v1alpha1.RemoteCluster)
		after, _ := obj.(*v1alpha1.RemoteCluster)
		if either := cmp.Or(after, before); either != nil {
			r.serve(ctx, either.Name, changedByHome(before, after))
		}
	}))
	if err != nil {
		return fmt.Errorf("watch RemoteClusters: %w", err)
	}
	secrets, err := r.secrets.AddEventHandler(handler(func(obj any) {
		if secret, ok := obj.(*corev1.Secret); ok {
			r.pokeUsers(secret.Name)
		}
	}))
	if err != nil {
		return fmt.Errorf("watch kubeconfig Secrets: %w", err)
	}
	unwatch, err := r.watchMapping()
	if err != nil {
		return err
	}
	<-ctx.Done()
	r.end()
	r.running.Wait()
	return errors.Join(r.objects.RemoveEventHandler(objects), r.secrets.RemoveEventHandler(secrets), unwatch())
}

// end has nothing started for a cluster any more.
func (r *Registry) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended = true
}

// serve starts or pokes the cluster of a RemoteCluster. Its end is the business
// of the cluster itself, which sees that its object is gone. now says that it is
// not to wait.
func (r *Registry) serve(ctx context.Context, id string, now bool) {
	if !cache.WaitForCacheSync(ctx.Done(), r.secrets.HasSynced) {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if c, ok := r.clusters[id]; ok {
		if now {
			c.Poke()
		} else {
			c.Nudge()
		}
		return
	}
	if r.ended || ctx.Err() != nil || r.Object(id) == nil {
		return
	}
	c := &Cluster{id: id, registry: r, signals: newSignals(), since: time.Now(), recorded: map[string]bool{}, waiting: map[string]int{}, writing: make(chan struct{}, 1)}
	r.clusters[id] = c
	r.running.Go(func() {
		c.run(ctx)
		r.mu.Lock()
		delete(r.clusters, id)
		r.mu.Unlock()
		r.hooks.Changed(id, false)
		if r.Object(id) != nil {
			// It was created again while it ended.
			r.serve(ctx, id, true)
		}
		// It may have kept a second RemoteCluster for the same cluster waiting.
		r.PokeAll()
	})
}

// Get returns the cluster with the given ID, nil if there is none.
func (r *Registry) Get(id string) *Cluster {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.clusters[id]
}

// IDs returns the IDs of all clusters.
func (r *Registry) IDs() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	ids := make([]string, 0, len(r.clusters))
	for id := range r.clusters {
		ids = append(ids, id)
	}
	return ids
}

// Object returns the RemoteCluster of the given name as last seen, nil if there
// is none. It must not be changed.
func (r *Registry) Object(id string) *v1alpha1.RemoteCluster {
	obj, ok, err := r.objects.GetStore().GetByKey(id)
	if err != nil || !ok {
		return nil
	}
	remote, _ := obj.(*v1alpha1.RemoteCluster)
	return remote
}

func (r *Registry) all() []*v1alpha1.RemoteCluster {
	var all []*v1alpha1.RemoteCluster
	for _, obj := range r.objects.GetStore().List() {
		if remote, ok := obj.(*v1alpha1.RemoteCluster); ok {
			all = append(all, remote)
		}
	}
	return all
}

// kubeconfig returns the kubeconfig of a RemoteCluster. The error is one
// sentence for the user.
func (r *Registry) kubeconfig(remote *v1alpha1.RemoteCluster) ([]byte, error) {
	ref := remote.Spec.KubeconfigSecretRef
	if ref.Namespace != r.namespace {
		return nil, fmt.Errorf("the kubeconfig Secret must be in namespace %s, where Lodestone runs, not in %s: move it", r.namespace, ref.Namespace)
	}
	key := keyOf(remote)
	secret := r.secret(ref.Name)
	if secret == nil {
		return nil, fmt.Errorf("there is no Secret %s/%s: create it with the kubeconfig under key %s", ref.Namespace, ref.Name, key)
	}
	data := secret.Data[key]
	if len(data) == 0 {
		return nil, fmt.Errorf("the Secret %s/%s has no key %s: put the kubeconfig there", ref.Namespace, ref.Name, key)
	}
	return data, nil
}

// keyOf is the key of the kubeconfig in its Secret.
func keyOf(remote *v1alpha1.RemoteCluster) string {
	if key := remote.Spec.KubeconfigSecretRef.Key; key != "" {
		return key
	}
	return "kubeconfig"
}

func (r *Registry) secret(name string) *corev1.Secret {
	obj, ok, err := r.secrets.GetStore().GetByKey(r.namespace + "/" + name)
	if err != nil || !ok {
		return nil
	}
	secret, _ := obj.(*corev1.Secret)
	return secret
}
