package frozen

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/backing"
	"github.com/lodestone-storage/lodestone/pkg/volumesnapshot"
	"github.com/lodestone-storage/lodestone/provisioner/remote"
	"github.com/lodestone-storage/lodestone/provisioner/site"
)

// Group is one snapshot of several real claims of a namespace, so that what it has of all of them is of one moment. The snapshot
// controller finds the claims by a label, and makes a VolumeSnapshot of each, its members.
type Group struct {
	// NamespacedName is that of the VolumeGroupSnapshot, By its class, and Version that of the API in the cluster.
	types.NamespacedName
	By, Version string
	// Label is the label of the claims, and Labels are those of the VolumeGroupSnapshot; Whose says in a sentence for whom it is.
	Label  string
	Labels map[string]string
	Whose  string
	// Of are the claims.
	Of []Frozen
}

// Frozen is a real claim that a snapshot is taken of, and its volume.
type Frozen struct {
	Ref    backing.Ref
	Volume volumesnapshot.Volume
}

// GroupState is the state of a VolumeGroupSnapshot.
type GroupState struct {
	UID                    types.UID
	Exists, Ready, Leaving bool
	// Taken says that what it has does not change any more, though it may not be ready.
	Taken bool
	// Problem says why it cannot be used, or not yet, and Wrong that it never can.
	Problem string
	Wrong   bool
	// Members are the names of its VolumeSnapshots by the UID of their real claim, if they were asked for and it is ready.
	Members map[types.UID]string
}

// ChooseGroup returns the class with which one snapshot is taken of several volumes of a driver, and the version of the API that the
// cluster serves. why says why none can be taken, in words that follow "no snapshot of all can be taken, for".
func ChooseGroup(ctx context.Context, at site.Site, cluster, driver string) (by, version, why string, err error) {
	none := "cluster " + cluster + " has no VolumeGroupSnapshots"
	if at.Dynamic == nil {
		return "", "", none, nil
	}
	for _, version := range volumesnapshot.GroupVersions {
		classes, err := ListClasses(ctx, at.Dynamic.Resource(volumesnapshot.GroupClasses(version)))
		switch {
		case apierrors.IsNotFound(err):
			continue
		case apierrors.IsForbidden(err):
			return "", "", fmt.Sprintf("the provisioner may not read VolumeGroupSnapshotClasses in cluster %s: apply deploy, or deploy/remote, "+
				"of this version in it", cluster), nil
		case err != nil:
			return "", "", "", fmt.Errorf("list VolumeGroupSnapshotClasses in %s: %w", cluster, err)
		}
		if by := ClassFor(classes, driver, volumesnapshot.DefaultGroupClass); by != "" {
			return by, version.Version, "", nil
		}
		return "", "", fmt.Sprintf("cluster %s has no VolumeGroupSnapshotClass of driver %s with deletionPolicy Delete", cluster, driver), nil
	}
	return "", "", none, nil
}

// client is the one for the VolumeGroupSnapshot.
func (g Group) client(at site.Site) dynamic.ResourceInterface {
	version := schema.GroupVersion{Group: volumesnapshot.GroupGroup, Version: g.Version}
	return at.Dynamic.Resource(volumesnapshot.GroupSnapshots(version)).Namespace(g.Namespace)
}

// Take labels the claims and creates the snapshot of all that have the label. One of its name that exists is an error.
func (g Group) Take(ctx context.Context, at site.Site) error {
	if err := g.label(ctx, at.Client.CoreV1().PersistentVolumeClaims(g.Namespace)); err != nil {
		return err
	}
	version := schema.GroupVersion{Group: volumesnapshot.GroupGroup, Version: g.Version}
	encoded, err := volumesnapshot.Write(&volumesnapshot.GroupSnapshot{
		TypeMeta:   metav1.TypeMeta{APIVersion: version.String(), Kind: volumesnapshot.GroupKind},
		ObjectMeta: metav1.ObjectMeta{Namespace: g.Namespace, Name: g.Name, Labels: g.Labels},
		Spec: volumesnapshot.GroupSnapshotSpec{ClassName: &g.By, Source: volumesnapshot.GroupSnapshotSource{
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{g.Label: "true"}}}},
	})
	if err != nil {
		return err
	}
	if _, err = g.client(at).Create(ctx, encoded, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("take VolumeGroupSnapshot %s: %w", g.NamespacedName, err)
	}
	return nil
}

// label gives the claims the label by which the snapshot controller finds them. If others have it too, that is an error: the snapshot
// would be of these as well.
func (g Group) label(ctx context.Context, claims corev1client.PersistentVolumeClaimInterface) error {
	wanted := map[types.UID]bool{}
	for _, of := range g.Of {
		if err := setLabel(ctx, claims, of.Ref, g.Label, "true"); err != nil {
			return fmt.Errorf("label real claim %s for a snapshot: %w", of.Ref.Key(), err)
		}
		wanted[of.Ref.UID] = true
	}
	found, err := claims.List(ctx, metav1.ListOptions{LabelSelector: g.Label, Limit: site.PageSize})
	if err != nil {
		return fmt.Errorf("look for real claims with label %s: %w", g.Label, err)
	}
	for i := range found.Items {
		if !wanted[found.Items[i].UID] {
			return apierrors.NewBadRequest(fmt.Sprintf("claim %s has label %s too, which is for one snapshot alone: remove the label there",
				plain(found.Items[i].Name), g.Label))
		}
	}
	return nil
}

// setLabel sets a label of a real claim; nil takes it off. Another claim that has the name by now is not changed.
func setLabel(ctx context.Context, claims corev1client.PersistentVolumeClaimInterface, of backing.Ref, key string, value any) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": of.UID, "labels": map[string]any{key: value}}})
	if err != nil {
		return fmt.Errorf("encode patch: %w", err)
	}
	_, err = claims.Patch(ctx, of.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	return err //nolint:wrapcheck // the caller says what for
}

// Unlabel takes the label of a group off a real claim.
func Unlabel(ctx context.Context, at site.Site, of backing.Ref, label string) error {
	err := setLabel(ctx, at.Client.CoreV1().PersistentVolumeClaims(of.Namespace), of, label, nil)
	return site.IgnoreGone(err, "take label "+label+" off real claim "+of.Key().String())
}

// Drop deletes the VolumeGroupSnapshot with this UID; the snapshot controller deletes its members.
func (g Group) Drop(ctx context.Context, at site.Site, uid types.UID) error {
	err := g.client(at).Delete(ctx, g.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
	return site.IgnoreGone(err, "delete VolumeGroupSnapshot "+g.NamespacedName.String())
}

// Look returns the state of the VolumeGroupSnapshot, with its members if they are asked for.
func (g Group) Look(ctx context.Context, at site.Site, members bool) (seen GroupState, err error) {
	object, err := g.client(at).Get(ctx, g.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return seen, nil
	}
	if err != nil {
		return seen, fmt.Errorf("look at VolumeGroupSnapshot %s: %w", g.NamespacedName, err)
	}
	taken, err := volumesnapshot.Read[volumesnapshot.GroupSnapshot](object)
	if err != nil {
		return seen, err
	}
	if !at.Home {
		remote.TrustedGroup(taken)
	}
	for key, value := range g.Labels {
		if taken.Labels[key] != value {
			seen.Problem, seen.Wrong = fmt.Sprintf("a VolumeGroupSnapshot %s is there already and is not %s: remove it there", g.NamespacedName,
				g.Whose), true
			return seen, nil
		}
	}
	seen.Exists, seen.UID, seen.Leaving = true, taken.UID, taken.DeletionTimestamp != nil
	seen.Ready = ptr.Deref(taken.Status.ReadyToUse, false)
	seen.Taken = seen.Ready || taken.Status.CreationTime != nil && taken.Status.ContentName != nil
	if failed := taken.Status.Error; failed != nil && !seen.Ready {
		seen.Problem = plain(ptr.Deref(failed.Message, "it failed"))
	}
	if seen.Ready && members {
		seen.Members, seen.Problem, err = g.members(ctx, at, taken.UID)
	}
	return seen, err
}

// members returns the names of the VolumeSnapshots that belong to the group, by the UID of their real claim; why says what is wrong with
// them.
func (g Group) members(ctx context.Context, at site.Site, group types.UID) (members map[types.UID]string, why string, err error) {
	var found []*volumesnapshot.Snapshot
	list := at.Dynamic.Resource(volumesnapshot.Snapshots).Namespace(g.Namespace).List
	err = site.EachPage(ctx, metav1.ListOptions{}, list, func(page *unstructured.UnstructuredList) {
		for i := range page.Items {
			s, err := volumesnapshot.Read[volumesnapshot.Snapshot](&page.Items[i])
			if err != nil {
				continue
			}
			if !at.Home {
				remote.TrustedSnapshot(s)
			}
			if IsMember(s, group) && s.Status.ContentName != nil && len(found) <= len(g.Of) {
				found = append(found, s)
			}
		}
	})
	if err != nil {
		return nil, "", fmt.Errorf("list VolumeSnapshots of namespace %s: %w", g.Namespace, err)
	}
	members = map[types.UID]string{}
	for _, s := range found {
		content, problem, _, err := Content(ctx, at, *s.Status.ContentName)
		if err != nil || problem != "" {
			return nil, problem, err
		}
		// What a snapshot says of its claim does not count: users may write that, and for a volume of home, which two
		// PersistentVolumes lead to, the snapshot controller does not say it.
		of := slices.IndexFunc(g.Of, func(known Frozen) bool {
			return volumesnapshot.BelongTo(s, content) && IsOf(known.Volume, content)
		})
		switch {
		case of < 0:
		case members[g.Of[of].Ref.UID] != "":
			return nil, fmt.Sprintf("several VolumeSnapshots of claim %s belong to it", g.Of[of].Ref.Key()), nil
		default:
			members[g.Of[of].Ref.UID] = s.Name
		}
	}
	for _, known := range g.Of {
		if members[known.Ref.UID] == "" {
			return members, fmt.Sprintf("no VolumeSnapshot of claim %s belongs to it", known.Ref.Key()), nil
		}
	}
	return members, "", nil
}

// IsMember says whether a VolumeSnapshot says that it belongs to the VolumeGroupSnapshot with this UID.
func IsMember(s *volumesnapshot.Snapshot, group types.UID) bool {
	return group != "" && volumesnapshot.GroupOf(s) == string(group)
}
