package snapshots

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/controller"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/volumesnapshot"
	"github.com/lodestone-storage/lodestone/provisioner/home"
)

// Groups takes the snapshots for contents of driver lodestone.dev of several volumes. It is safe for
// concurrent use.
type Groups struct {
	GroupConfig
	*served[*volumesnapshot.GroupContent, GroupObservation, volumesnapshot.GroupContentStatus]
	refusals *controller.LastMessage[types.NamespacedName, string]
}

// GroupConfig is what Groups need.
type GroupConfig struct {
	Config
	// Contents are those of the home cluster.
	Contents *home.Groups
	// Claims returns the claims of a namespace, VolumeNamed a volume; nil if there is none.
	Claims      func(namespace string) []*corev1.PersistentVolumeClaim
	VolumeNamed func(name string) *corev1.PersistentVolume
	// Recorder writes events on the snapshots that users asked for.
	Recorder record.EventRecorder
}

// NewGroups returns Groups that do nothing until Run.
func NewGroups(config GroupConfig) *Groups {
	g := &Groups{GroupConfig: config, refusals: controller.NewLastMessage[types.NamespacedName, string](refusedAgain)}
	g.served = newServed(kind[*volumesnapshot.GroupContent, GroupObservation, volumesnapshot.GroupContentStatus]{
		name: "groupsnapshots", content: "group content", snapshot: "group snapshot", finalizer: volumesnapshot.GroupContentFinalizer,
		find: func(name string) (*volumesnapshot.GroupContent, bool) {
			content := g.Contents.Content(name)
			return content, content != nil && content.Spec.Driver == keys.Driver
		},
		all:    func() []*volumesnapshot.GroupContent { return g.Contents.Contents() },
		driver: func(c *volumesnapshot.GroupContent) string { return c.Spec.Driver },
		in: func(c *volumesnapshot.GroupContent) string {
			if refs := refsOf(c); len(refs) > 0 {
				return refs[0].Cluster
			}
			return ""
		},
		contents: func() dynamic.ResourceInterface {
			contents, _ := g.Contents.Resources()
			return contents
		},
		observe: g.observe, next: NextOfGroup, act: g.act, other: g.other,
		status: func(s volumesnapshot.GroupContentStatus) map[string]any {
			said := map[string]any{"readyToUse": s.ReadyToUse, "creationTime": s.CreationTime}
			if s.Handle != nil {
				said["volumeGroupSnapshotHandle"], said["volumeSnapshotInfoList"] = s.Handle, s.Members
			}
			return said
		},
		failed: func(s volumesnapshot.GroupContentStatus) *volumesnapshot.Failure { return s.Error },
	})
	return g
}

// refusedAgain is when the same is said again on a group snapshot.
const refusedAgain = 5 * time.Minute

// GroupAsked is called when a group snapshot of the home cluster changed. The snapshot controller makes
// no content of one whose claims are in several places, so nobody else can say what to do.
func (g *Groups) GroupAsked(s *volumesnapshot.GroupSnapshot) {
	g.queue.Add(item{Asked: types.NamespacedName{Namespace: s.Namespace, Name: s.Name}})
}

// refuse says on a group snapshot that its claims are in several places.
func (g *Groups) refuse(key types.NamespacedName) {
	s := g.Contents.Snapshot(key)
	if s == nil || s.DeletionTimestamp != nil || s.Status.ContentName != nil {
		g.refusals.Forget(key)
		return
	}
	why := InSeveralPlaces(s, g.Claims(key.Namespace), g.VolumeNamed)
	if why == "" {
		return
	}
	if _, news := g.refusals.Due(key, why, time.Now()); news {
		g.Recorder.Event(&corev1.ObjectReference{
			APIVersion: s.APIVersion, Kind: volumesnapshot.GroupKind, Namespace: s.Namespace, Name: s.Name, UID: s.UID,
			ResourceVersion: s.ResourceVersion,
		}, corev1.EventTypeWarning, "GroupInSeveralClusters", why)
	}
}

// GroupChanged is called when a group snapshot of ours in a remote cluster changed.
func (g *Groups) GroupChanged(cluster string, s *volumesnapshot.GroupSnapshot) {
	name := s.Annotations[keys.Content]
	if content := g.Contents.Content(name); content != nil && string(content.UID) == s.Labels[keys.ContentUID] {
		g.queue.Add(item{Content: name})
		return
	}
	if name != "" {
		g.queue.Add(item{Cluster: cluster, Left: types.NamespacedName{Namespace: s.Namespace, Name: s.Name}})
	}
}

// SnapshotChanged is called when a snapshot in a remote cluster changed: it may be one that was taken
// with others, which their content waits for.
func (g *Groups) SnapshotChanged(_ string, s *volumesnapshot.Snapshot) {
	if volumesnapshot.GroupOf(s) == "" || s.Spec.Source.ClaimName == nil {
		return
	}
	for _, content := range g.Contents.ContentsOf(types.NamespacedName{Namespace: s.Namespace, Name: *s.Spec.Source.ClaimName}.String()) {
		g.ContentChanged(content)
	}
}

// BackingChanged is called when a backing claim in a remote cluster, or its volume, changed.
func (g *Groups) BackingChanged(b *corev1.PersistentVolumeClaim) {
	g.backingChanged(b, g.Contents.ContentsOf(types.NamespacedName{Namespace: b.Namespace, Name: b.Name}.String()))
}

// other tells a user why a group snapshot cannot be taken, or removes one that nobody knows of.
func (g *Groups) other(ctx context.Context, it item) error {
	if it.Asked.Name != "" {
		g.refuse(it.Asked)
		return nil
	}
	return g.removeLeft(ctx, it)
}

// observe gathers the observation of a content, from caches only.
func (g *Groups) observe(content *volumesnapshot.GroupContent) GroupObservation {
	o := GroupObservation{Content: content, HomeID: g.HomeID}
	refs, why := Place(content)
	if why != "" {
		return o
	}
	o.Cluster, o.Namespace = refs[0].Cluster, refs[0].Namespace
	for _, ref := range refs {
		o.Members = append(o.Members, GroupMember{Ref: ref, Virtual: g.Volume(ref)})
	}
	remote, cluster := g.Clusters.Object(o.Cluster), g.Clusters.Get(o.Cluster)
	if o.Known = remote != nil; remote == nil || cluster == nil {
		return o
	}
	view := cluster.View(remote, o.Namespace)
	o.Usable, o.Message = view.Usable, view.Message
	if !o.Usable {
		return o
	}
	o.Seen, o.Absent, o.Problem = cluster.GroupsSeen(o.Namespace)
	o.There, _ = cluster.Group(g.key(o))
	var taken []*volumesnapshot.Snapshot
	if o.There != nil {
		taken = cluster.MembersOf(o.Namespace, o.There.UID)
	}
	for i := range o.Members {
		m := &o.Members[i]
		m.Shadow, m.Real, _ = cluster.Backing(m.Ref.Key())
		for _, s := range taken {
			if ptr.Deref(s.Spec.Source.ClaimName, "") == m.Ref.Name {
				m.Taken = append(m.Taken, s)
			}
		}
		for _, s := range m.Taken {
			for _, claim := range cluster.MadeFrom(types.NamespacedName{Namespace: s.Namespace, Name: s.Name}) {
				m.Waiting = claim.Name
			}
		}
	}
	return o
}

// key returns namespace and name of a content's snapshot in the remote cluster.
func (g *Groups) key(o GroupObservation) types.NamespacedName {
	return types.NamespacedName{Namespace: o.Namespace, Name: GroupName(o.Content)}
}
