// Package snapshots takes snapshots of volumes whose data is in remote clusters. For each
// VolumeSnapshotContent of driver lodestone.dev that the home snapshot controller creates,
// it creates a VolumeSnapshot beside the backing claim and copies the result to the
// content's status: it does what a CSI driver's snapshotter does for other contents.
// Controller observes and acts (controller.go); package decide has the decisions. Start there.
//
// Groups does the same for each VolumeGroupSnapshotContent: one VolumeGroupSnapshot of all the
// backing claims (groups.go). What both have in common is in served.go.
package snapshots

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/backing"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/volumesnapshot"
	"github.com/lodestone-storage/lodestone/provisioner/home"
	"github.com/lodestone-storage/lodestone/provisioner/remote"
	"github.com/lodestone-storage/lodestone/provisioner/snapshots/decide"
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
	*served[*volumesnapshot.Content, decide.Observation, volumesnapshot.ContentStatus]
}

// New returns a Controller that does nothing until Run.
func New(config Config) *Controller {
	m := &Controller{Config: config}
	m.served = newServed(kind[*volumesnapshot.Content, decide.Observation, volumesnapshot.ContentStatus]{
		name: "snapshots", content: "content", snapshot: "snapshot", finalizer: volumesnapshot.ContentFinalizer,
		find: func(name string) (*volumesnapshot.Content, bool) {
			content := m.Home.Content(name)
			return content, content != nil && content.Spec.Driver == keys.Driver
		},
		all:    func() []*volumesnapshot.Content { return m.Home.Contents() },
		driver: func(c *volumesnapshot.Content) string { return c.Spec.Driver },
		in: func(c *volumesnapshot.Content) string {
			ref, _ := backing.ParseRef(decide.HandleOf(c))
			return ref.Cluster
		},
		contents: func() dynamic.ResourceInterface { return m.Home.Client().Resource(volumesnapshot.Contents) },
		observe:  m.observe, next: decide.Next, act: m.act, other: m.removeLeft,
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
func (m *Controller) observe(content *volumesnapshot.Content) decide.Observation {
	o := decide.Observation{Content: content, HomeID: m.HomeID}
	ref, err := backing.ParseRef(decide.HandleOf(content))
	if err != nil || ref.Cluster == keys.Home {
		return o
	}
	o.Ref = ref
	if !decide.Given(content) {
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
func (m *Controller) key(o decide.Observation) types.NamespacedName {
	if decide.Given(o.Content) {
		return o.Ref.Key()
	}
	return types.NamespacedName{Namespace: o.Ref.Namespace, Name: decide.Name(o.Content)}
}

// Uses says whether snapshots of the home cluster have, or may have, their data in a
// namespace of a remote cluster.
func Uses(h *home.Snapshots, g *home.Groups, cluster, namespace string) bool {
	for _, content := range h.Contents() {
		ref, err := backing.ParseRef(decide.HandleOf(content))
		if err == nil && content.Spec.Driver == keys.Driver && ref.Cluster == cluster && ref.Namespace == namespace {
			return true
		}
	}
	return slices.ContainsFunc(g.Contents(), func(content *volumesnapshot.GroupContent) bool {
		return slices.ContainsFunc(decide.RefsOf(content), func(ref backing.Ref) bool {
			return ref.Cluster == cluster && ref.Namespace == namespace
		})
	})
}

// In returns how many snapshots of the home cluster have, or may have, their data in a
// remote cluster; false while that is not known.
func In(h *home.Snapshots, g *home.Groups, cluster string) (int, bool) {
	n := 0
	for _, content := range h.Contents() {
		if ref, err := backing.ParseRef(decide.HandleOf(content)); err == nil && ref.Cluster == cluster {
			n++
		}
	}
	for _, content := range g.Contents() {
		if slices.ContainsFunc(decide.RefsOf(content), func(ref backing.Ref) bool { return ref.Cluster == cluster }) {
			n++
		}
	}
	return n, h.State() != home.Unknown && g.State() != home.Unknown
}

// act takes a step. It need not know whether a failed request took effect: the next
// observation shows it.
func (m *Controller) act(ctx context.Context, o decide.Observation, step decide.Step) error {
	switch step.Verb {
	case decide.Idle:
		return nil
	case decide.Report:
		return m.report(ctx, o.Content, step.Status)
	case decide.Take:
		return m.take(ctx, o)
	case decide.Release:
		return m.release(ctx, o, step)
	case decide.Mark, decide.Delete:
	}
	client := m.remote(o.Ref.Cluster, o.There.Namespace)
	if client == nil {
		return errNoClient
	}
	return m.change(ctx, client, step.Verb, o.There, o.Ref.Cluster)
}

func (m *Controller) remote(cluster, namespace string) dynamic.ResourceInterface {
	if c := m.Clusters.Get(cluster); c != nil {
		if client := c.Dynamic(); client != nil {
			return client.Resource(volumesnapshot.Snapshots).Namespace(namespace)
		}
	}
	return nil
}

// take creates the VolumeSnapshot of a content. If the cluster refuses it, the reason is
// written to the content's status.
func (m *Controller) take(ctx context.Context, o decide.Observation) error {
	class, err := classIn(ctx, m.Home.Client().Resource(volumesnapshot.Classes), o.Content.Spec.ClassName, o.Ref.Cluster)
	if err != nil {
		return err
	}
	client, cluster := m.remote(o.Ref.Cluster, o.Ref.Namespace), m.Clusters.Get(o.Ref.Cluster)
	if client == nil || cluster == nil || cluster.Client() == nil {
		return errNoClient
	}
	// The VolumeSnapshot names its claim without a UID, so check now that the claim is
	// ours.
	shadow, err := cluster.Client().CoreV1().PersistentVolumeClaims(o.Ref.Namespace).Get(ctx, o.Ref.Name, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("look at real claim %s: %w", o.Ref, err)
	}
	if shadow.UID != decide.Source(o).UID {
		return fmt.Errorf("real claim %s is another: %w", o.Ref, errChanged)
	}
	why, err := create(ctx, client, decide.Wanted(o, class))
	if why != nil {
		err = m.refused(ctx, o.Content, decide.Fail(o, "cluster %s refuses it: %v", o.Ref.Cluster, why), why)
	}
	if err != nil {
		return fmt.Errorf("take snapshot %s in %s: %w", decide.Name(o.Content), o.Ref.Cluster, err)
	}
	return nil
}

// removeLeft deletes a snapshot in a remote cluster whose content is gone and of which home never knew.
func (m *Controller) removeLeft(ctx context.Context, it item) error {
	cluster := m.Clusters.Get(it.Cluster)
	if cluster == nil {
		return nil
	}
	if left := cluster.Snapshot(it.Left); left != nil {
		return m.removeOrphan(ctx, m.HomeID, it.Cluster, left, m.remote(it.Cluster, left.Namespace))
	}
	return nil
}

// release removes our finalizer from a content, if step.Gone only after the remote API
// server has confirmed that the snapshot is gone.
func (m *Controller) release(ctx context.Context, o decide.Observation, step decide.Step) error {
	if step.Gone {
		cluster := m.Clusters.Get(o.Ref.Cluster)
		if cluster == nil {
			return errNoClient
		}
		typed, client := cluster.Clients()
		if typed == nil || client == nil {
			return errNoClient
		}
		at := m.key(o)
		if err := proveGone(ctx, typed, client.Resource(volumesnapshot.Snapshots).Namespace(at.Namespace), o.Ref.Cluster,
			m.Clusters.Object(o.Ref.Cluster), at.Name, o.IsTaken); err != nil {
			return err
		}
	}
	return m.letGo(ctx, o.Content)
}
