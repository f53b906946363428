package mirror

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/volumesnapshot"
	"github.com/lodestone-storage/lodestone/provisioner/backing"
	"github.com/lodestone-storage/lodestone/provisioner/clusters"
	"github.com/lodestone-storage/lodestone/provisioner/snapshots"
)

const (
	workers = 8
	// stepTimeout bounds all requests of one step.
	stepTimeout = 30 * time.Second
)

// Config is what a Mirror needs.
type Config struct {
	Home     *snapshots.Home
	Clusters interface {
		Get(id string) *clusters.Cluster
		Object(id string) *v1alpha1.RemoteCluster
	}
	// Volume returns the virtual volume with a handle, nil if there is none.
	Volume func(handle backing.Ref) *corev1.PersistentVolume
	HomeID string
}

// Mirror takes the snapshots of contents of driver lodestone.dev. It is safe for
// concurrent use.
type Mirror struct {
	Config
	queue   workqueue.TypedRateLimitingInterface[item]
	reports reports
}

// item is a content by its name or, where Left is set, a snapshot in a remote
// cluster whose content is not seen.
type item struct {
	Content string
	Cluster string
	Left    types.NamespacedName
}

// New returns a Mirror that does nothing until it is run.
func New(config Config) *Mirror {
	return &Mirror{Config: config, queue: workqueue.NewTypedRateLimitingQueueWithConfig(
		workqueue.NewTypedItemExponentialFailureRateLimiter[item](50*time.Millisecond, 20*time.Second),
		workqueue.TypedRateLimitingQueueConfig[item]{Name: "snapshots"})}
}

// ContentChanged is called when a content of the home cluster changed or went.
func (m *Mirror) ContentChanged(c *volumesnapshot.Content) {
	if c.Spec.Driver == keys.Driver {
		m.queue.Add(item{Content: c.Name})
	}
}

// SnapshotChanged is called when a snapshot of ours in a remote cluster changed.
func (m *Mirror) SnapshotChanged(cluster string, s *volumesnapshot.Snapshot) {
	name := s.Annotations[keys.Content]
	if content := m.Home.Content(name); content != nil && string(content.UID) == s.Labels[keys.ContentUID] {
		m.queue.Add(item{Content: name})
		return
	}
	// One made beforehand is named by no label.
	for _, content := range m.Home.Contents() {
		if ref, err := backing.ParseRef(handleOf(content)); err == nil && given(content) && ref.UID == s.UID {
			m.queue.Add(item{Content: content.Name})
		}
	}
	if name != "" {
		m.queue.Add(item{Cluster: cluster, Left: types.NamespacedName{Namespace: s.Namespace, Name: s.Name}})
	}
}

// ShadowChanged is called when a backing claim in a remote cluster, or its volume,
// changed: a snapshot of it may wait for its volume, and the removal of one for what
// is made from it.
func (m *Mirror) ShadowChanged(b *corev1.PersistentVolumeClaim) {
	for _, content := range m.Home.ContentsOf(types.NamespacedName{Namespace: b.Namespace, Name: b.Name}) {
		m.ContentChanged(content)
	}
	if b.Spec.DataSource == nil || b.Spec.DataSource.Kind != volumesnapshot.Kind {
		return
	}
	for _, content := range m.Home.Contents() {
		if content.DeletionTimestamp != nil {
			m.ContentChanged(content)
		}
	}
}

// ClusterChanged is called when what is known of a remote cluster changed: contents
// with their data there are looked at again.
func (m *Mirror) ClusterChanged(cluster string) {
	for _, content := range m.Home.Contents() {
		if ref, err := backing.ParseRef(handleOf(content)); err == nil && ref.Cluster == cluster {
			m.ContentChanged(content)
		}
	}
}

// Uses says whether snapshots have, or may have, their data in a namespace of a
// cluster.
func (m *Mirror) Uses(cluster, namespace string) bool {
	for _, content := range m.Home.Contents() {
		ref, err := backing.ParseRef(handleOf(content))
		if err == nil && content.Spec.Driver == keys.Driver && ref.Cluster == cluster && ref.Namespace == namespace {
			return true
		}
	}
	return false
}

// In returns how many snapshots have, or may have, their data in a cluster; false while
// that is not known.
func (m *Mirror) In(cluster string) (int, bool) {
	n := 0
	for _, content := range m.Home.Contents() {
		if ref, err := backing.ParseRef(handleOf(content)); err == nil && ref.Cluster == cluster {
			n++
		}
	}
	return n, m.Home.State() != snapshots.Unknown
}

func handleOf(c *volumesnapshot.Content) string {
	if c.Spec.Driver != keys.Driver {
		return ""
	}
	if given(c) {
		return *c.Spec.Source.SnapshotHandle
	}
	return ptr.Deref(c.Spec.Source.VolumeHandle, "")
}

// Run works until ctx ends, and returns when every step that was begun is done.
func (m *Mirror) Run(ctx context.Context) {
	work := context.WithoutCancel(ctx)
	var running sync.WaitGroup
	for range workers {
		running.Go(func() {
			for m.next(work) {
			}
		})
	}
	<-ctx.Done()
	m.queue.ShutDown()
	running.Wait()
}

func (m *Mirror) next(ctx context.Context) bool {
	it, shutdown := m.queue.Get()
	if shutdown {
		return false
	}
	defer m.queue.Done(it)
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	after, err := m.work(ctx, it)
	if err != nil {
		klog.FromContext(ctx).V(2).Info("Snapshot will be tried again", "content", it.Content, "cluster", it.Cluster, "snapshot", it.Left, "err", err)
		m.queue.AddRateLimited(it)
		return true
	}
	m.queue.Forget(it)
	if after > 0 {
		m.queue.AddAfter(it, after)
	}
	return true
}

func (m *Mirror) work(ctx context.Context, it item) (time.Duration, error) {
	if it.Content == "" {
		return 0, m.sweep(ctx, it)
	}
	content := m.Home.Content(it.Content)
	if content == nil || content.Spec.Driver != keys.Driver {
		m.reports.forget(it.Content)
		return 0, nil
	}
	o := m.observe(content)
	step := Next(o)
	if step.Verb == Report && !m.reports.may(content.Name) {
		return reportPause, nil
	}
	return step.After, m.act(ctx, o, step)
}

// observe gathers what is known of a content, from caches alone.
func (m *Mirror) observe(content *volumesnapshot.Content) Observation {
	o := Observation{Content: content, HomeID: m.HomeID}
	ref, err := backing.ParseRef(handleOf(content))
	if err != nil || ref.Cluster == keys.Home {
		return o
	}
	o.Ref = ref
	if !given(content) {
		o.Virtual = m.Volume(ref)
	}
	remote, cluster := m.Clusters.Object(ref.Cluster), m.Clusters.Get(ref.Cluster)
	if o.Known = remote != nil; remote == nil || cluster == nil {
		return o
	}
	view := cluster.View(remote, ref.Namespace)
	o.Usable, o.Message = view.Usable, view.Message
	if !o.Usable {
		return o
	}
	o.Seen, o.Problem = cluster.SnapshotsSeen(ref.Namespace)
	at := m.at(o)
	o.There = cluster.Snapshot(at)
	o.Shadow, o.Real = cluster.Backing(ref.Key())
	for _, claim := range cluster.MadeFrom(at) {
		o.Waiting = claim.Name
	}
	return o
}

// at is where the snapshot of a content is in its cluster.
func (m *Mirror) at(o Observation) types.NamespacedName {
	if given(o.Content) {
		return o.Ref.Key()
	}
	return types.NamespacedName{Namespace: o.Ref.Namespace, Name: Name(o.Content)}
}
