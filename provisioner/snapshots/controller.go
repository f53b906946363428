// Package snapshots takes snapshots of volumes whose data is in remote clusters. For each
// VolumeSnapshotContent of driver lodestone.dev that the home snapshot controller creates,
// it creates a VolumeSnapshot beside the backing claim and copies the result to the
// content's status: it does what a CSI driver's snapshotter does for other contents.
// Controller observes and acts (controller.go, act.go), Next decides without side effects
// (decide.go). Start with decide.go.
//
// Groups does the same for each VolumeGroupSnapshotContent: one VolumeGroupSnapshot of all the
// backing claims (groups.go, group_act.go, group_decide.go). What both have in common is in served.go.
package snapshots

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/backing"
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
	*served[*volumesnapshot.Content, Observation, volumesnapshot.ContentStatus]
}

// New returns a Controller that does nothing until Run.
func New(config Config) *Controller {
	m := &Controller{Config: config}
	m.served = newServed(kind[*volumesnapshot.Content, Observation, volumesnapshot.ContentStatus]{
		name: "snapshots", content: "content", snapshot: "snapshot", finalizer: volumesnapshot.ContentFinalizer,
		find: func(name string) (*volumesnapshot.Content, bool) {
			content := m.Home.Content(name)
			return content, content != nil && content.Spec.Driver == keys.Driver
		},
		all:    func() []*volumesnapshot.Content { return m.Home.Contents() },
		driver: func(c *volumesnapshot.Content) string { return c.Spec.Driver },
		in: func(c *volumesnapshot.Content) string {
			ref, _ := backing.ParseRef(handleOf(c))
			return ref.Cluster
		},
		contents: func() dynamic.ResourceInterface { return m.Home.Client().Resource(volumesnapshot.Contents) },
		observe:  m.observe, next: Next, act: m.act, other: m.removeLeft,
		status: func(s volumesnapshot.ContentStatus) map[string]any {
			return map[string]any{"snapshotHandle": s.SnapshotHandle, "creationTime": s.CreationTime, "restoreSize": s.RestoreSize,
				"readyToUse": s.ReadyToUse}
		},
		failed: func(s volumesnapshot.ContentStatus) *volumesnapshot.Failure { return s.Error },
	})
	return m
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

// BackingChanged is called when a backing claim in a remote cluster, or its volume, changed.
func (m *Controller) BackingChanged(b *corev1.PersistentVolumeClaim) {
	m.backingChanged(b, m.Home.ContentsOf(types.NamespacedName{Namespace: b.Namespace, Name: b.Name}))
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
