package snapshots

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/controller"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/volumesnapshot"
	"github.com/lodestone-storage/lodestone/provisioner/home"
	"github.com/lodestone-storage/lodestone/provisioner/snapshots/decide"
)

// Groups takes the snapshots for contents of driver lodestone.dev of several volumes. It is safe for
// concurrent use.
type Groups struct {
	GroupConfig
	*served[*volumesnapshot.GroupContent, decide.GroupObservation, volumesnapshot.GroupContentStatus]
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
	g.served = newServed(kind[*volumesnapshot.GroupContent, decide.GroupObservation, volumesnapshot.GroupContentStatus]{
		name: "groupsnapshots", content: "group content", snapshot: "group snapshot", finalizer: volumesnapshot.GroupContentFinalizer,
		find: func(name string) (*volumesnapshot.GroupContent, bool) {
			content := g.Contents.Content(name)
			return content, content != nil && content.Spec.Driver == keys.Driver
		},
		all:    func() []*volumesnapshot.GroupContent { return g.Contents.Contents() },
		driver: func(c *volumesnapshot.GroupContent) string { return c.Spec.Driver },
		in: func(c *volumesnapshot.GroupContent) string {
			if refs := decide.RefsOf(c); len(refs) > 0 {
				return refs[0].Cluster
			}
			return ""
		},
		contents: func() dynamic.ResourceInterface {
			contents, _ := g.Contents.Resources()
			return contents
		},
		observe: g.observe, next: decide.NextOfGroup, act: g.act, other: g.other,
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
	why := decide.InSeveralPlaces(s, g.Claims(key.Namespace), g.VolumeNamed)
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
func (g *Groups) observe(content *volumesnapshot.GroupContent) decide.GroupObservation {
	o := decide.GroupObservation{Content: content, HomeID: g.HomeID}
	refs, why := decide.Place(content)
	if why != "" {
		return o
	}
	o.Cluster, o.Namespace = refs[0].Cluster, refs[0].Namespace
	for _, ref := range refs {
		o.Members = append(o.Members, decide.GroupMember{Ref: ref, Virtual: g.Volume(ref)})
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
func (g *Groups) key(o decide.GroupObservation) types.NamespacedName {
	return types.NamespacedName{Namespace: o.Namespace, Name: decide.GroupName(o.Content)}
}

// act takes a step. It need not know whether a failed request took effect: the next
// observation shows it.
func (g *Groups) act(ctx context.Context, o decide.GroupObservation, step decide.GroupStep) error {
	switch step.Verb {
	case decide.Idle:
		return nil
	case decide.Report:
		if step.Taken {
			if err := g.unlabel(ctx, o); err != nil {
				return err
			}
		}
		return g.report(ctx, o.Content, step.Status)
	case decide.Take:
		return g.take(ctx, o)
	case decide.Release:
		return g.release(ctx, o, step)
	case decide.Mark, decide.Delete:
	}
	_, client, _ := g.remote(o)
	if client == nil {
		return errNoClient
	}
	return g.change(ctx, client, step.Verb, o.There, o.Cluster)
}

// remote returns clients of a content's cluster, for claims and for group snapshots of its namespace in
// the version that the cluster serves; nil where there are none.
func (g *Groups) remote(o decide.GroupObservation) (kubernetes.Interface, dynamic.ResourceInterface, schema.GroupVersion) {
	cluster := g.Clusters.Get(o.Cluster)
	if cluster == nil {
		return nil, nil, schema.GroupVersion{}
	}
	typed, client := cluster.Clients()
	if typed == nil || client == nil {
		return nil, nil, schema.GroupVersion{}
	}
	_, version := cluster.Group(g.key(o))
	return typed, client.Resource(volumesnapshot.GroupSnapshots(version)).Namespace(o.Namespace), version
}

// take labels the backing claims of a content and creates the VolumeGroupSnapshot of all that have
// the label. If the cluster refuses it, the reason is written to the content's status.
func (g *Groups) take(ctx context.Context, o decide.GroupObservation) error {
	_, classes := g.Contents.Resources()
	class, err := classIn(ctx, classes, o.Content.Spec.ClassName, o.Cluster)
	if err != nil {
		return err
	}
	typed, client, version := g.remote(o)
	if client == nil {
		return errNoClient
	}
	others, err := g.label(ctx, typed, o)
	if err != nil {
		return err
	}
	text, because := others, fmt.Errorf("%s: %w", others, errChanged)
	if others == "" {
		why, err := create(ctx, client, decide.WantedGroup(o, version, class))
		switch {
		case err != nil:
			return fmt.Errorf("take group snapshot %s in %s: %w", decide.GroupName(o.Content), o.Cluster, err)
		case why == nil:
			return nil
		}
		text, because = fmt.Sprintf("cluster %s refuses it: %v", o.Cluster, why), why
	}
	return fmt.Errorf("take group snapshot %s in %s: %w", decide.GroupName(o.Content), o.Cluster,
		g.refused(ctx, o.Content, decide.FailGroup(o, text), because))
}

// label gives each backing claim of a content the label by which the snapshot controller finds it.
// It returns a sentence if others have it, too: the snapshot would be of these as well.
func (g *Groups) label(ctx context.Context, typed kubernetes.Interface, o decide.GroupObservation) (others string, err error) {
	claims := typed.CoreV1().PersistentVolumeClaims(o.Namespace)
	label := decide.GroupLabel(o.Content)
	wanted := map[types.UID]bool{}
	for _, m := range o.Members {
		// The patch names the UID: a claim that was made anew under the name is not labelled.
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": m.Source().UID, "labels": map[string]any{label: "true"}}})
		if err != nil {
			return "", fmt.Errorf("encode patch: %w", err)
		}
		if _, err := claims.Patch(ctx, m.Ref.Name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			return "", fmt.Errorf("label real claim %s in %s for a group snapshot: %w", m.Ref.Key(), o.Cluster, err)
		}
		wanted[m.Source().UID] = true
	}
	found, err := claims.List(ctx, metav1.ListOptions{LabelSelector: label})
	if err != nil {
		return "", fmt.Errorf("look for real claims with label %s in %s: %w", label, o.Cluster, err)
	}
	seen := 0
	for i := range found.Items {
		if !wanted[found.Items[i].UID] {
			return fmt.Sprintf("claim %s/%.253s in cluster %s has label %s too, which is for this group snapshot alone: remove the label there",
				o.Namespace, found.Items[i].Name, o.Cluster, label), nil
		}
		seen++
	}
	if seen != len(wanted) {
		return "", fmt.Errorf("%d of %d real claims have label %s: %w", seen, len(wanted), label, errChanged)
	}
	return "", nil
}

// unlabel takes the label off again.
func (g *Groups) unlabel(ctx context.Context, o decide.GroupObservation) error {
	typed, _, _ := g.remote(o)
	if typed == nil {
		return errNoClient
	}
	claims, label := typed.CoreV1().PersistentVolumeClaims(o.Namespace), decide.GroupLabel(o.Content)
	found, err := claims.List(ctx, metav1.ListOptions{LabelSelector: label + "," + keys.HomeID + "=" + o.HomeID})
	if err != nil {
		return fmt.Errorf("look for real claims with label %s in %s: %w", label, o.Cluster, err)
	}
	for i := range found.Items {
		claim := &found.Items[i]
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": claim.UID, "labels": map[string]any{label: nil}}})
		if err != nil {
			return fmt.Errorf("encode patch: %w", err)
		}
		if _, err := claims.Patch(ctx, claim.Name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("take label %s off real claim %s/%s in %s: %w", label, o.Namespace, claim.Name, o.Cluster, err)
		}
	}
	return nil
}

// removeLeft deletes a group snapshot in a remote cluster whose content is gone and of which home never
// knew.
func (g *Groups) removeLeft(ctx context.Context, it item) error {
	cluster := g.Clusters.Get(it.Cluster)
	if cluster == nil {
		return nil
	}
	left, version := cluster.Group(it.Left)
	if left == nil {
		return nil
	}
	var client dynamic.ResourceInterface
	if dynamic := cluster.Dynamic(); dynamic != nil {
		client = dynamic.Resource(volumesnapshot.GroupSnapshots(version)).Namespace(left.Namespace)
	}
	return g.removeOrphan(ctx, g.HomeID, it.Cluster, left, client)
}

// release removes our finalizer from a content, if step.Gone only after the remote API server has
// confirmed that the snapshot is gone. Claims that were labelled for it lose the label; where the
// cluster does not answer, and nothing there is to be deleted, they keep it: it means nothing to anybody.
func (g *Groups) release(ctx context.Context, o decide.GroupObservation, step decide.GroupStep) error {
	if step.Gone {
		typed, client, _ := g.remote(o)
		if client == nil {
			return errNoClient
		}
		if err := proveGone(ctx, typed, client, o.Cluster, g.Clusters.Object(o.Cluster), decide.GroupName(o.Content),
			func(found *unstructured.Unstructured) bool {
				return found.GetLabels()[keys.ContentUID] == string(o.Content.UID)
			}); err != nil {
			return err
		}
	}
	if o.Cluster != "" && o.Known && o.Usable {
		if err := g.unlabel(ctx, o); err != nil && step.Gone {
			return err
		}
	}
	return g.letGo(ctx, o.Content)
}
