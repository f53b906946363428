package status

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/cli"
	"github.com/lodestone-storage/lodestone/kubectl-lodestone/replica"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/clients"
)

const (
	// assembleEvery is the time between two states of a Live, however much changes.
	assembleEvery = 500 * time.Millisecond
	// explainEvery is the time between two looks at what waits, which take some requests each;
	// explainAnyway is when that is done although nothing has changed.
	explainEvery, explainAnyway = 3 * time.Second, 30 * time.Second
)

// Live is a Status that is kept up to date: what can be watched is watched, and the rest is read
// again now and then.
type Live struct {
	home                 *cli.Cluster
	lodestone, namespace string
	// unread is what the user may not watch.
	unread  []string
	sources map[string]cache.SharedIndexInformer
	// changed has an element when something was seen to change since the last state.
	changed chan struct{}

	mu sync.Mutex
	// seen counts the changes.
	seen int
	// read is what cannot be watched.
	read Status
	// logins has heartbeats and kubeconfigs.
	logins facts
	// problem says that the cluster does not answer, in a sentence.
	problem string
}

// the resources that a Live watches.
const (
	remoteClusters = "remoteclusters"
	nodes          = "nodes"
	volumes        = "persistentvolumes"
	claims         = "persistentvolumeclaims"
	classes        = "storageclasses"
	pods           = "pods"
	daemonSets     = "daemonsets"
	volumeMoves    = "volumemoves"
	volumeReplicas = "volumereplicas"
)

// source is a resource with its API group; a namespaced one can be watched in one namespace.
type source struct {
	group, resource string
	namespaced      bool
}

// watched are all that a Status is made from, but for what logins read.
var watched = []source{
	{group: v1alpha1.GroupVersion.Group, resource: remoteClusters}, {resource: nodes}, {resource: volumes},
	{group: storagev1.GroupName, resource: classes}, {resource: claims, namespaced: true}, {resource: pods, namespaced: true},
	{group: appsv1.GroupName, resource: daemonSets, namespaced: true},
	{group: v1alpha1.GroupVersion.Group, resource: volumeMoves, namespaced: true},
	{group: v1alpha1.GroupVersion.Group, resource: volumeReplicas, namespaced: true},
}

// NewLive begins to watch, until ctx ends, what the user may. With a namespace, volumes, pods,
// moves and replicas are those of it, and rights in it are enough. It returns once all was read.
func NewLive(ctx context.Context, home *cli.Cluster, lodestone, namespace string) (*Live, error) {
	if err := installed(home); err != nil {
		return nil, err
	}
	l := &Live{home: home, lodestone: lodestone, namespace: namespace, sources: map[string]cache.SharedIndexInformer{},
		changed: make(chan struct{}, 1)}
	// A watch is one long request.
	config := rest.CopyConfig(home.Config)
	config.Timeout = 0
	for _, w := range watched {
		if w.resource == volumeReplicas { // an older home has none
			if served, err := home.Serves(v1alpha1.GroupVersion.String(), w.resource); err != nil {
				return nil, err
			} else if !served {
				continue
			}
		}
		scope, may, err := l.scope(ctx, w.group, w.resource, w.namespaced)
		if err != nil {
			return nil, err
		}
		if !may {
			l.unread = append(l.unread, w.resource)
			continue
		}
		if l.sources[w.resource], err = newSource(config, w.resource, scope); err != nil {
			return nil, err
		}
	}
	if len(l.sources) == 0 {
		return nil, fmt.Errorf("you may not list and watch any of %s in the cluster of context %q: ask its administrator for that right, or "+
			"give -n with a namespace of yours", strings.Join(l.unread, ", "), home.Context)
	}
	var synced []cache.InformerSynced
	for _, source := range l.sources {
		if err := l.prepare(source); err != nil {
			return nil, err
		}
		go source.RunWithContext(ctx)
		synced = append(synced, source.HasSynced)
	}
	reading, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	if !cache.WaitForCacheSync(reading.Done(), synced...) {
		if err := installed(home); err != nil {
			return nil, err
		}
		return nil, fmt.Errorf("the cluster of context %q did not list everything within %s: see how its API server is, and try again",
			home.Context, replica.Short(readTimeout))
	}
	return l, nil
}

// scope returns in which namespace a resource is watched, empty for all, and whether the user may.
func (l *Live) scope(ctx context.Context, group, resource string, namespaced bool) (namespace string, may bool, err error) {
	scopes := []string{metav1.NamespaceAll}
	if namespaced && l.namespace != "" {
		scopes = append(scopes, l.namespace)
	}
	for _, scope := range scopes {
		lacking, err := l.home.Lacking(ctx, cli.Right{Verb: "list", Group: group, Resource: resource, Namespace: scope},
			cli.Right{Verb: "watch", Group: group, Resource: resource, Namespace: scope})
		if err != nil || len(lacking) == 0 {
			return scope, err == nil, err
		}
	}
	return "", false, nil
}

func newSource(config *rest.Config, resource, namespace string) (cache.SharedIndexInformer, error) {
	switch resource {
	case remoteClusters:
		client, err := clients.NewRemoteClusters(config)
		if err != nil {
			return nil, err
		}
		return clients.NewRemoteClusterInformer(client), nil
	case volumeMoves, volumeReplicas:
		client, err := clients.NewVolumeMoveClient(config)
		if err != nil {
			return nil, err
		}
		if resource == volumeReplicas {
			return clients.NewInformer(client.Replicas(namespace), &v1alpha1.VolumeReplica{}, nil, cache.Indexers{}), nil
		}
		return clients.NewInformer(client.In(namespace), &v1alpha1.VolumeMove{}, nil, cache.Indexers{}), nil
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make a client to watch with: %w", err)
	}
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(namespace))
	switch resource {
	case nodes:
		return factory.Core().V1().Nodes().Informer(), nil
	case volumes:
		return factory.Core().V1().PersistentVolumes().Informer(), nil
	case claims:
		return factory.Core().V1().PersistentVolumeClaims().Informer(), nil
	case pods:
		return factory.Core().V1().Pods().Informer(), nil
	case classes:
		return factory.Storage().V1().StorageClasses().Informer(), nil
	default:
		return factory.Apps().V1().DaemonSets().Informer(), nil
	}
}

// prepare has changes of a source noted.
func (l *Live) prepare(source cache.SharedIndexInformer) error {
	// What is wrong is found out and said by explain; a log would be written over the user's terminal.
	if err := source.SetWatchErrorHandlerWithContext(func(context.Context, *cache.Reflector, error) {}); err != nil {
		return fmt.Errorf("prepare to watch: %w", err)
	}
	if err := source.SetTransform(func(object any) (any, error) {
		if accessor, err := meta.Accessor(object); err == nil {
			accessor.SetManagedFields(nil)
		}
		return object, nil
	}); err != nil {
		return fmt.Errorf("prepare to watch: %w", err)
	}
	_, err := source.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { l.note() }, UpdateFunc: func(any, any) { l.note() }, DeleteFunc: func(any) { l.note() },
	})
	return err
}

// note records that something changed.
func (l *Live) note() {
	l.mu.Lock()
	l.seen++
	l.mu.Unlock()
	l.wake()
}

func (l *Live) wake() {
	select {
	case l.changed <- struct{}{}:
	default:
	}
}

// Run calls show with the state, and whenever that may have changed, until ctx ends. Problem is a
// sentence if the cluster does not answer. What waits is looked at only while wanted says so.
func (l *Live) Run(ctx context.Context, wanted func() bool, show func(status Status, problem string)) {
	var ended sync.WaitGroup
	ended.Go(func() { l.explainAll(ctx, wanted) })
	defer ended.Wait()
	for {
		show(l.state())
		select {
		case <-ctx.Done():
			return
		case <-time.After(assembleEvery):
		}
		select {
		case <-ctx.Done():
			return
		case <-l.changed:
		}
	}
}

// explainAll looks at what waits, again and again.
func (l *Live) explainAll(ctx context.Context, wanted func() bool) {
	explained, at := -1, time.Time{}
	for {
		l.mu.Lock()
		seen, problem := l.seen, l.problem
		l.mu.Unlock()
		begun := time.Now()
		// Once at the beginning anyway, so that the first who looks sees it at once.
		if explained < 0 || wanted() && (seen != explained || problem != "" || begun.Sub(at) >= explainAnyway) {
			l.explain(ctx)
			explained, at = seen, time.Now()
		}
		// A slow cluster is asked less often.
		select {
		case <-ctx.Done():
			return
		case <-time.After(max(explainEvery, 5*time.Since(begun))):
		}
	}
}

// explain reads what cannot be watched.
func (l *Live) explain(all context.Context) {
	ctx, cancel := context.WithTimeout(all, readTimeout)
	defer cancel()
	r := &reading{home: l.home, lodestone: l.lodestone}
	f, read := l.facts(), Status{}
	err := r.logins(ctx, &f)
	if err == nil {
		read.Waiting, read.Omitted, err = r.waiting(ctx, f, only{namespace: l.namespace})
	}
	if err == nil {
		// Users who may not get namespace kube-system see no ID.
		read.HomeID, _ = l.home.HomeID(ctx, l.lodestone)
	}
	read.Unread = r.unread
	l.mu.Lock()
	if err == nil {
		l.read, l.logins, l.problem = read, facts{heartbeats: f.heartbeats, kubeconfigs: f.kubeconfigs}, ""
	} else if all.Err() == nil {
		l.problem = err.Error()
	}
	l.mu.Unlock()
	l.wake()
}

// state returns what is shown now.
func (l *Live) state() (Status, string) {
	f := l.facts()
	l.mu.Lock()
	read, problem := l.read, l.problem
	f.heartbeats, f.kubeconfigs = l.logins.heartbeats, l.logins.kubeconfigs
	l.mu.Unlock()
	now := time.Now()
	status := f.status(only{namespace: l.namespace}, now)
	status.HomeID, status.Unread = read.HomeID, slices.Concat(l.unread, read.Unread)
	status.addUnknown(slices.Contains(l.unread, remoteClusters))
	status.Waiting, status.Omitted = stillWaiting(f.waiting(only{namespace: l.namespace}), read)
	status.Notes = notes(status, now)
	return status, problem
}

// stillWaiting returns those sentences whose pods and claims wait still, and how many have none.
func stillWaiting(now []waits, read Status) ([]Waiting, int) {
	list, waiting := []Waiting{}, map[Waiting]bool{}
	for _, w := range now {
		waiting[w.unexplained()] = true
	}
	for _, w := range read.Waiting {
		if waiting[Waiting{Kind: w.Kind, Namespace: w.Namespace, Name: w.Name}] {
			list = append(list, w)
		}
	}
	return list, min(read.Omitted, len(now)-len(list))
}

// facts returns what was seen.
func (l *Live) facts() facts {
	return facts{
		remotes: all[v1alpha1.RemoteCluster](l.sources[remoteClusters]), nodes: all[corev1.Node](l.sources[nodes]),
		volumes: all[corev1.PersistentVolume](l.sources[volumes]), claims: all[corev1.PersistentVolumeClaim](l.sources[claims]),
		classes: all[storagev1.StorageClass](l.sources[classes]), pods: all[corev1.Pod](l.sources[pods]),
		sets: all[appsv1.DaemonSet](l.sources[daemonSets]), moves: all[v1alpha1.VolumeMove](l.sources[volumeMoves]),
		replicas: all[v1alpha1.VolumeReplica](l.sources[volumeReplicas]),
	}
}

// all returns the objects of a source, which is nil if the user may not read them.
func all[T any](source cache.SharedIndexInformer) []T {
	if source == nil {
		return nil
	}
	var list []T
	for _, object := range source.GetStore().List() {
		if typed, ok := object.(*T); ok {
			list = append(list, *typed)
		}
	}
	return list
}
