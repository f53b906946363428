// Package remote connects to the remote clusters. It reads RemoteCluster objects and their
// kubeconfig Secrets, probes each cluster on its own goroutine, so that a slow or dead one
// delays no other, watches volumes, classes, backing claims and snapshots there, requests
// and returns the namespaces there that belong to namespaces of home, and writes the status
// of the RemoteCluster. Clusters is the entry point: Run serves all of them, Get returns
// one Cluster, Subscribe adds callbacks. Start with clusters.go, then health.go.
package remote

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/clients"
	"github.com/lodestone-storage/lodestone/pkg/controller"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/home"
)

// Clusters has one Cluster for each RemoteCluster object. It is safe for concurrent use.
type Clusters struct {
	home      kubernetes.Interface
	remotes   *clients.RemoteClusters
	objects   cache.SharedIndexInformer
	secrets   cache.SharedIndexInformer
	namespace string
	homeID    string
	homeUID   string
	interval  time.Duration
	contents  Contents
	recorder  record.EventRecorder
	listeners listeners

	// namespaces, volumes and pods are informers on the home cluster.
	namespaces, volumes, pods cache.SharedIndexInformer

	mu       sync.Mutex
	clusters map[string]*Cluster
	ended    bool
	// endedClusters are those whose goroutines have ended because the program ends.
	endedClusters []endedCluster
	running       sync.WaitGroup
}

// Config is what Clusters need. The caller runs the informers.
type Config struct {
	Home    kubernetes.Interface
	Remotes *clients.RemoteClusters
	// Objects is the informer of RemoteClusters, Secrets that of the Secrets in Namespace.
	Objects cache.SharedIndexInformer
	Secrets cache.SharedIndexInformer
	// Namespace is the namespace of kubeconfig Secrets.
	Namespace string
	// HomeID is the home cluster's ID, HomeUID the UID of its namespace kube-system.
	HomeID, HomeUID string
	// Interval is how often each cluster is probed.
	Interval time.Duration
	// Namespaces, Volumes and Pods are informers on the home cluster.
	Namespaces, Volumes, Pods cache.SharedIndexInformer
	Contents                  Contents
	// Recorder writes events on RemoteClusters.
	Recorder record.EventRecorder
}

// Contents says what home stores in remote clusters. It answers from caches.
type Contents interface {
	// Volumes returns how many virtual volumes have their data in a cluster.
	Volumes(cluster string) int
	// Snapshots returns how many VolumeSnapshots have their data in a cluster; false
	// while that is not known.
	Snapshots(cluster string) (int, bool)
	// Health counts the volumes of a cluster by their state, nil while that is not known.
	Health(cluster string) *v1alpha1.VolumeHealth
	// ClusterUIDs returns the UIDs of clusters that the virtual volumes of a cluster carry.
	ClusterUIDs(cluster string) []string
	// Uses says whether a namespace of a cluster is in use: a virtual volume has its data
	// there, claims of the home namespace may have backing claims there, or pods of it may
	// have copies there.
	Uses(cluster, namespace, home string) bool
}

// New returns Clusters that do nothing until Run.
func New(config Config) *Clusters {
	return &Clusters{
		home: config.Home, remotes: config.Remotes, objects: config.Objects, secrets: config.Secrets,
		namespace: config.Namespace, homeID: config.HomeID, homeUID: config.HomeUID,
		interval: config.Interval, contents: config.Contents, recorder: config.Recorder,
		namespaces: config.Namespaces, volumes: config.Volumes, pods: config.Pods,
		clusters: map[string]*Cluster{},
	}
}

// Run serves the clusters until ctx ends, and returns when all their goroutines have ended.
func (r *Clusters) Run(ctx context.Context) error {
	unwatchObjects, err := controller.Watch(r.objects, func(was, now *v1alpha1.RemoteCluster) {
		r.serve(ctx, controller.Either(was, now).Name, changedByHome(was, now))
	})
	if err != nil {
		return err
	}
	unwatchSecrets, err := controller.Watch(r.secrets, func(was, now *corev1.Secret) { r.checkUsers(controller.Either(was, now).Name) })
	if err != nil {
		return err
	}
	// Only changes matter: a later connection queues all namespaces by itself.
	unwatchPods, err := controller.Watch(r.pods, func(was, now *home.Pod) {
		for _, namespaces := range r.namespaceControllers() {
			namespaces.PodChanged(was, now)
		}
	})
	if err != nil {
		return err
	}
	// Which volume it was does not matter, so none is unpacked.
	unwatchVolumes, err := controller.AddHandler(r.volumes, cache.ResourceEventHandlerFuncs{DeleteFunc: func(any) {
		for _, namespaces := range r.namespaceControllers() {
			namespaces.VolumeGone()
		}
	}})
	if err != nil {
		return fmt.Errorf("watch volumes: %w", err)
	}
	<-ctx.Done()
	r.end()
	r.running.Wait()
	return errors.Join(unwatchObjects(), unwatchSecrets(), unwatchPods(), unwatchVolumes())
}

// serve starts a RemoteCluster's goroutine, or has it probe if it runs already: at once if
// now is set, else after the pause. The goroutine ends by itself once the RemoteCluster is
// gone.
func (r *Clusters) serve(ctx context.Context, id string, now bool) {
	if !cache.WaitForCacheSync(ctx.Done(), r.secrets.HasSynced) {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if c, ok := r.clusters[id]; ok {
		if now {
			c.CheckNow()
		} else {
			c.CheckSoon()
		}
		return
	}
	if r.ended || ctx.Err() != nil || r.Object(id) == nil {
		return
	}
	c := &Cluster{id: id, clusters: r, signals: newSignals(), since: time.Now(), sent: time.Now(), recorded: map[string]bool{},
		waiting: map[string]int{}, writing: make(chan struct{}, 1), gate: clients.NewGate()}
	r.clusters[id] = c
	r.running.Go(func() {
		c.run(ctx)
		r.mu.Lock()
		delete(r.clusters, id)
		r.mu.Unlock()
		r.listeners.clusterChanged(id, false)
		if r.Object(id) != nil {
			// The RemoteCluster was created again meanwhile.
			r.serve(ctx, id, true)
		}
		// Another RemoteCluster for the same cluster may have been refused because of this
		// one.
		r.CheckAll()
	})
}

// end prevents new goroutines for clusters.
func (r *Clusters) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended = true
}

// The pause between a probe of a cluster and one that a change in that cluster triggers is
// leastPause at first. If another trigger comes within the pause, the pause doubles, up to
// mostPause: somebody who changes storage classes there constantly must not make home
// probe, write and decide more often.
const (
	leastPause = time.Second
	mostPause  = 15 * time.Second
)

// signals trigger a probe of a cluster: now, which only home uses, or soon, after the
// pause.
type signals struct {
	now, soon chan struct{}
}

func newSignals() signals {
	return signals{now: make(chan struct{}, 1), soon: make(chan struct{}, 1)}
}

// CheckNow triggers a probe at once.
func (s signals) CheckNow() { signal(s.now) }

// CheckSoon triggers a probe after the pause, for example after a failed request or a
// change in the cluster.
func (s signals) CheckSoon() { signal(s.soon) }

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// run probes the cluster at once, then in intervals and when triggered, until its
// RemoteCluster is gone or ctx ends.
func (c *Cluster) run(ctx context.Context) {
	logger := klog.FromContext(ctx).WithValues("cluster", c.id)
	ctx = klog.NewContext(ctx, logger)
	defer c.disconnect()
	defer c.ended(ctx)
	c.repeat(ctx, func() (time.Duration, bool) {
		next := wait.Jitter(c.clusters.interval, 0.1)
		remote := c.clusters.Object(c.id)
		if remote == nil {
			return 0, false
		}
		again := c.probe(ctx, remote)
		if err := c.clusters.report(ctx, c, remote); err != nil {
			logger.V(2).Info("Status will be written again", "err", err)
			again = 200 * time.Millisecond
		} else if c.changed {
			// By now the extender can have read the status, too.
			c.changed = false
			c.clusters.listeners.clusterChanged(c.id, c.usable() && !c.leaving())
		}
		if again != 0 {
			next = again
		}
		return next, true
	})
}

// ended notes that the work for the cluster has ended with the program, for Release.
func (c *Cluster) ended(ctx context.Context) {
	connection := c.current()
	if ctx.Err() == nil || connection == nil {
		return
	}
	c.mu.Lock()
	ended := endedCluster{cluster: c, connection: connection, found: c.verdict.finding}
	c.mu.Unlock()
	c.clusters.mu.Lock()
	defer c.clusters.mu.Unlock()
	c.clusters.endedClusters = append(c.clusters.endedClusters, ended)
}

// repeat calls probe at once, then each time after the duration it returned, or earlier:
// for CheckNow at once, for CheckSoon when the pause is over. It returns when probe returns
// false or ctx ends.
func (s signals) repeat(ctx context.Context, probe func() (next time.Duration, on bool)) {
	timer, quiet := time.NewTimer(0), time.NewTimer(leastPause)
	defer timer.Stop()
	defer quiet.Stop()
	pause := leastPause
	var soon <-chan struct{} // s.soon; nil during a pause
	for {
		asked := false
		select {
		case <-ctx.Done():
			return
		case <-quiet.C:
			select {
			case <-s.soon:
				pause, asked = min(2*pause, mostPause), true
			default:
				pause, soon = leastPause, s.soon
				continue
			}
		case <-soon:
			asked = true
		case <-timer.C:
		case <-s.now:
		}
		next, on := probe()
		if !on {
			return
		}
		timer.Reset(next)
		if asked || soon != nil {
			quiet.Reset(pause)
			soon = nil
		}
	}
}

// changedByHome says whether a RemoteCluster changed apart from its status, which changes
// with every report of the remote cluster, and from its labels and annotations.
func changedByHome(before, after *v1alpha1.RemoteCluster) bool {
	return before == nil || after == nil || before.UID != after.UID || before.Generation != after.Generation ||
		(before.DeletionTimestamp == nil) != (after.DeletionTimestamp == nil) || len(before.Finalizers) != len(after.Finalizers)
}

// checkUsers has the clusters probed whose kubeconfig is in this Secret.
func (r *Clusters) checkUsers(secret string) {
	for _, remote := range controller.All[v1alpha1.RemoteCluster](r.objects) {
		if remote.Spec.KubeconfigSecretRef.Name == secret {
			if c := r.Get(remote.Name); c != nil {
				c.CheckNow()
			}
		}
	}
}

// CheckAll has all clusters probed at once.
func (r *Clusters) CheckAll() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.clusters {
		c.CheckNow()
	}
}

// namespaceControllers returns the namespace controllers of all connected clusters.
func (r *Clusters) namespaceControllers() []*namespaceController {
	var controllers []*namespaceController
	for _, id := range r.IDs() {
		c := r.Get(id)
		if c == nil {
			continue
		}
		if connection := c.current(); connection != nil && connection.namespaces != nil {
			controllers = append(controllers, connection.namespaces)
		}
	}
	return controllers
}

// Get returns the cluster with the given ID, nil if there is none.
func (r *Clusters) Get(id string) *Cluster {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.clusters[id]
}

// IDs returns the IDs of all clusters.
func (r *Clusters) IDs() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Collect(maps.Keys(r.clusters))
}

// Object returns the RemoteCluster of this name from the cache, nil if there is none. The
// caller must not change it.
func (r *Clusters) Object(id string) *v1alpha1.RemoteCluster {
	return controller.Get[v1alpha1.RemoteCluster](r.objects, id)
}

// Gone asks the API server whether there is no RemoteCluster of this name.
func (r *Clusters) Gone(ctx context.Context, id string) (bool, error) {
	_, err := r.remotes.Get(ctx, id, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return true, nil
	case err != nil:
		return false, fmt.Errorf("look at RemoteCluster %s: %w", id, err)
	}
	return false, nil
}

// Same asks whether a client leads to the cluster that has the volumes of a RemoteCluster. marked is
// the UID of that cluster as the volume or snapshot in question carries it; empty: it carries none,
// and what the RemoteCluster says counts. It returns false if nothing says which cluster it should be.
func Same(ctx context.Context, client kubernetes.Interface, remote *v1alpha1.RemoteCluster, marked string) (bool, error) {
	system, err := client.CoreV1().Namespaces().Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
	if err != nil {
		return false, fmt.Errorf("look at namespace %s: %w", metav1.NamespaceSystem, err)
	}
	uid := string(system.UID)
	switch {
	case remote == nil, uid == "":
		return false, nil
	case marked != "":
		return marked == uid, nil
	}
	made := remote.Annotations[keys.ClusterUID]
	return remote.Status.ClusterUID == uid && (made == "" || made == uid), nil
}

func (r *Clusters) event(remote *v1alpha1.RemoteCluster, kind, reason, message string) {
	r.recorder.Event(&corev1.ObjectReference{
		APIVersion: v1alpha1.GroupVersion.String(), Kind: "RemoteCluster", Name: remote.Name, UID: remote.UID,
		ResourceVersion: remote.ResourceVersion,
	}, kind, reason, message)
}

var (
	expiry = prometheus.NewDesc("lodestone_provisioner_credentials_expiry_seconds",
		"Seconds until the token or certificate for a remote cluster ends; negative after its end, absent without one.", []string{"cluster"}, nil)
	ready = prometheus.NewDesc("lodestone_provisioner_remote_cluster_ready",
		"1 if a RemoteCluster is Ready, 0 if not.", []string{"cluster"}, nil)
	inForce = prometheus.NewDesc("lodestone_provisioner_home_in_force",
		"0 while this home cluster does nothing in a remote cluster because a copy of it may act there, else 1.", []string{"cluster"}, nil)
)

// Describe implements prometheus.Collector.
func (r *Clusters) Describe(descriptions chan<- *prometheus.Desc) {
	descriptions <- expiry
	descriptions <- ready
	descriptions <- inForce
}

// Collect implements prometheus.Collector.
func (r *Clusters) Collect(metrics chan<- prometheus.Metric) {
	for _, remote := range controller.All[v1alpha1.RemoteCluster](r.objects) {
		value := 0.0
		if meta.IsStatusConditionTrue(remote.Status.Conditions, v1alpha1.Ready) {
			value = 1
		}
		metrics <- prometheus.MustNewConstMetric(ready, prometheus.GaugeValue, value, remote.Name)
		value = 1
		if meta.IsStatusConditionFalse(remote.Status.Conditions, v1alpha1.HomeInForce) {
			value = 0
		}
		metrics <- prometheus.MustNewConstMetric(inForce, prometheus.GaugeValue, value, remote.Name)
	}
	for _, id := range r.IDs() {
		c := r.Get(id)
		if c == nil {
			continue
		}
		c.mu.Lock()
		until := c.credentialsEnd
		c.mu.Unlock()
		if !until.IsZero() {
			metrics <- prometheus.MustNewConstMetric(expiry, prometheus.GaugeValue, time.Until(until).Seconds(), id)
		}
	}
}
