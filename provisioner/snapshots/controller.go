// Package snapshots takes snapshots of volumes whose data is in remote clusters. For each
// VolumeSnapshotContent of driver lodestone.dev that the home snapshot controller creates,
// it creates a VolumeSnapshot beside the backing claim and copies the result to the
// content's status: it does what a CSI driver's snapshotter does for other contents.
// Controller observes and acts (controller.go, act.go), Next decides without side effects
// (decide.go). Start with decide.go.
//
// Groups does the same for each VolumeGroupSnapshotContent: one VolumeGroupSnapshot of all the
// backing claims (groups.go, group_act.go, group_decide.go).
package snapshots

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/backing"
	"github.com/lodestone-storage/lodestone/pkg/controller"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/volumesnapshot"
	"github.com/lodestone-storage/lodestone/provisioner/home"
	"github.com/lodestone-storage/lodestone/provisioner/remote"
)

// Config is what a Controller needs.
type Config struct {
	Home     *home.Snapshots
	Clusters interface {
		Get(id string) *remote.Cluster
		Object(id string) *v1alpha1.RemoteCluster
	}
	// Volume returns the virtual volume with a handle, nil if there is none.
	Volume func(handle backing.Ref) *corev1.PersistentVolume
	HomeID string
}

// Controller takes the snapshots for contents of driver lodestone.dev. It is safe for
// concurrent use.
type Controller struct {
	Config
	queue   *controller.Queue[item]
	reports reports
}

// item is a queue key: a content by name or, where Left is set, a snapshot in a remote
// cluster whose content is not in the cache, or a snapshot that a user asked for.
type item struct {
	Content string
	Cluster string
	Left    types.NamespacedName
	Asked   types.NamespacedName
}

// New returns a Controller that does nothing until Run.
func New(config Config) *Controller {
	return &Controller{Config: config, queue: controller.NewQueue[item](controller.QueueConfig{
		Name: "snapshots", FirstRetry: 50 * time.Millisecond, LastRetry: 20 * time.Second, Timeout: stepTimeout, FinishSteps: true,
		Quiet: true,
	})}
}

// ContentChanged is called when a content of the home cluster changed or was deleted.
func (m *Controller) ContentChanged(c *volumesnapshot.Content) {
	if c.Spec.Driver == keys.Driver {
		m.queue.Add(item{Content: c.Name})
	}
}

// SnapshotChanged is called when a snapshot of ours in a remote cluster changed.
func (m *Controller) SnapshotChanged(cluster string, s *volumesnapshot.Snapshot) {
	name := s.Annotations[keys.Content]
	if content := m.Home.Content(name); content != nil && string(content.UID) == s.Labels[keys.ContentUID] {
		m.queue.Add(item{Content: name})
		return
	}
	// A pre-provisioned snapshot has no label that names its content, nor has one taken with others.
	for _, content := range m.Home.ContentsWith(s.UID) {
		m.ContentChanged(content)
	}
	if name != "" && s.Labels[keys.HomeID] == m.HomeID {
		m.queue.Add(item{Cluster: cluster, Left: types.NamespacedName{Namespace: s.Namespace, Name: s.Name}})
	}
}

// BackingChanged is called when a backing claim in a remote cluster, or its volume,
// changed: a snapshot of it may be waiting for that volume, or its deletion for a claim
// that is made from it.
func (m *Controller) BackingChanged(b *corev1.PersistentVolumeClaim) {
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

// ClusterChanged is called when the state of a remote cluster changed; it queues the
// contents with data there.
func (m *Controller) ClusterChanged(cluster string) {
	for _, content := range m.Home.Contents() {
		if ref, err := backing.ParseRef(handleOf(content)); err == nil && ref.Cluster == cluster {
			m.ContentChanged(content)
		}
	}
}

const (
	workers = 8
	// stepTimeout bounds all requests of one step.
	stepTimeout = 30 * time.Second
)

// Run works until ctx ends, and returns when every step that has begun is finished.
func (m *Controller) Run(ctx context.Context) { m.queue.Run(ctx, workers, m.sync) }

func (m *Controller) sync(ctx context.Context, it item) (time.Duration, error) {
	if it.Content == "" {
		return 0, m.removeOrphan(ctx, it)
	}
	content := m.Home.Content(it.Content)
	if content == nil || content.Spec.Driver != keys.Driver {
		m.reports.forget(it.Content)
		return 0, nil
	}
	o := m.observe(content)
	step := Next(o)
	if step.Verb == Report && !m.reports.allow(content.Name) {
		return reportPause, nil
	}
	return step.After, m.act(ctx, o, step)
}

// observe gathers the observation of a content, from caches only.
func (m *Controller) observe(content *volumesnapshot.Content) Observation {
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
	at := m.key(o)
	o.There = cluster.Snapshot(at)
	o.Shadow, o.Real, _ = cluster.Backing(ref.Key())
	for _, claim := range cluster.MadeFrom(at) {
		o.Waiting = claim.Name
	}
	return o
}

// key returns namespace and name of a content's snapshot in the remote cluster.
func (m *Controller) key(o Observation) types.NamespacedName {
	if given(o.Content) {
		return o.Ref.Key()
	}
	return types.NamespacedName{Namespace: o.Ref.Namespace, Name: Name(o.Content)}
}

// Uses says whether snapshots of the home cluster have, or may have, their data in a
// namespace of a remote cluster.
func Uses(h *home.Snapshots, g *home.Groups, cluster, namespace string) bool {
	for _, content := range h.Contents() {
		ref, err := backing.ParseRef(handleOf(content))
		if err == nil && content.Spec.Driver == keys.Driver && ref.Cluster == cluster && ref.Namespace == namespace {
			return true
		}
	}
	return slices.ContainsFunc(g.Contents(), func(content *volumesnapshot.GroupContent) bool {
		return slices.ContainsFunc(refsOf(content), func(ref backing.Ref) bool { return ref.Cluster == cluster && ref.Namespace == namespace })
	})
}

// In returns how many snapshots of the home cluster have, or may have, their data in a
// remote cluster; false while that is not known.
func In(h *home.Snapshots, g *home.Groups, cluster string) (int, bool) {
	n := 0
	for _, content := range h.Contents() {
		if ref, err := backing.ParseRef(handleOf(content)); err == nil && ref.Cluster == cluster {
			n++
		}
	}
	for _, content := range g.Contents() {
		if slices.ContainsFunc(refsOf(content), func(ref backing.Ref) bool { return ref.Cluster == cluster }) {
			n++
		}
	}
	return n, h.State() != home.Unknown && g.State() != home.Unknown
}

func handleOf(c *volumesnapshot.Content) string {
	if c.Spec.Driver != keys.Driver {
		return ""
	}
	if handle := volumesnapshot.HandleOf(c); handle != "" && given(c) {
		return handle
	}
	return ptr.Deref(c.Spec.Source.VolumeHandle, "")
}
