package moves

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

	"github.com/lodestone-storage/lodestone/pkg/volumesnapshot"
	"github.com/lodestone-storage/lodestone/provisioner/copying/frozen"
	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
	"github.com/lodestone-storage/lodestone/provisioner/moves/steps"
	"github.com/lodestone-storage/lodestone/provisioner/remote"
	"github.com/lodestone-storage/lodestone/provisioner/site"
)

// inspectGroup finds out whether one snapshot can be taken of all claims of a move that are copied
// from snapshots, so that these are of one moment; nil if each gets one of its own: with one such
// claim, with volumes of several drivers, and where the cluster has no class for it or does not let
// home read those.
func (c *Controller) inspectGroup(ctx context.Context, r *record.Record) (*record.Group, error) {
	var snapped []*record.Claim
	for i := range r.Claims {
		if r.Claims[i].Snapshot != nil {
			snapped = append(snapped, &r.Claims[i])
		}
	}
	if len(snapped) < 2 || slices.ContainsFunc(snapped, func(claim *record.Claim) bool {
		return claim.Snapshot.Driver != snapped[0].Snapshot.Driver || claim.Source.Ref.Namespace != snapped[0].Source.Ref.Namespace
	}) {
		return nil, nil
	}
	at, why := c.sites.Reach(r.ClusterOf(record.Source))
	if why != "" || at.Dynamic == nil {
		return nil, nil
	}
	for _, version := range volumesnapshot.GroupVersions {
		classes, err := frozen.ListClasses(ctx, at.Dynamic.Resource(volumesnapshot.GroupClasses(version)))
		switch {
		case apierrors.IsNotFound(err):
			continue
		case apierrors.IsForbidden(err):
			return nil, nil
		case err != nil:
			return nil, fmt.Errorf("list VolumeGroupSnapshotClasses in %s: %w", r.ClusterOf(record.Source), err)
		}
		if by := frozen.ClassFor(classes, snapped[0].Snapshot.Driver, volumesnapshot.DefaultGroupClass); by != "" {
			return &record.Group{By: by, Version: version.Version}, nil
		}
		return nil, nil
	}
	return nil, nil
}

// groups is the client for the VolumeGroupSnapshot of a move.
func groups(at site.Site, r *record.Record) dynamic.ResourceInterface {
	version := schema.GroupVersion{Group: volumesnapshot.GroupGroup, Version: r.Group.Version}
	return at.Dynamic.Resource(volumesnapshot.GroupSnapshots(version)).Namespace(r.SourceNamespace())
}

// makeGroup labels the sources and creates the snapshot of all that have the label.
func (c *Controller) makeGroup(ctx context.Context, r *record.Record) error {
	at, err := c.sites.At(r.ClusterOf(record.Source))
	if err != nil {
		return err
	}
	if err := labelSources(ctx, at.Client.CoreV1().PersistentVolumeClaims(r.SourceNamespace()), r); err != nil {
		return err
	}
	version := schema.GroupVersion{Group: volumesnapshot.GroupGroup, Version: r.Group.Version}
	encoded, err := volumesnapshot.Write(&volumesnapshot.GroupSnapshot{
		TypeMeta:   metav1.TypeMeta{APIVersion: version.String(), Kind: volumesnapshot.GroupKind},
		ObjectMeta: metav1.ObjectMeta{Namespace: r.SourceNamespace(), Name: r.GroupName(), Labels: c.snapshotLabels(r)},
		Spec: volumesnapshot.GroupSnapshotSpec{ClassName: &r.Group.By, Source: volumesnapshot.GroupSnapshotSource{
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{r.GroupLabel(): "true"}}}},
	})
	if err != nil {
		return err
	}
	if _, err = groups(at, r).Create(ctx, encoded, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("take VolumeGroupSnapshot %s/%s: %w", r.SourceNamespace(), r.GroupName(), err)
	}
	return nil
}

// labelSources gives the sources the label by which the snapshot controller finds them. If others
// have it too, that is an error: the snapshot would be of these as well.
func labelSources(ctx context.Context, claims corev1client.PersistentVolumeClaimInterface, r *record.Record) error {
	wanted := map[types.UID]bool{}
	for _, known := range r.Claims {
		if known.Snapshot == nil {
			continue
		}
		if err := setLabel(ctx, claims, known.Source.Ref.Name, known.Source.Ref.UID, r.GroupLabel(), "true"); err != nil {
			return fmt.Errorf("label real claim %s for a snapshot: %w", known.Source.Ref.Key(), err)
		}
		wanted[known.Source.Ref.UID] = true
	}
	found, err := claims.List(ctx, metav1.ListOptions{LabelSelector: r.GroupLabel(), Limit: site.PageSize})
	if err != nil {
		return fmt.Errorf("look for real claims with label %s: %w", r.GroupLabel(), err)
	}
	for i := range found.Items {
		if !wanted[found.Items[i].UID] {
			return apierrors.NewBadRequest(fmt.Sprintf("claim %s has label %s too, which is for this move alone: remove the label there",
				plain(found.Items[i].Name), r.GroupLabel()))
		}
	}
	return nil
}

// setLabel sets a label of the claim with this UID; nil takes it off. Another claim that has the name
// by now is not changed.
func setLabel(ctx context.Context, claims corev1client.PersistentVolumeClaimInterface, name string, uid types.UID, key string,
	value any) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": uid, "labels": map[string]any{key: value}}})
	if err != nil {
		return fmt.Errorf("encode patch: %w", err)
	}
	_, err = claims.Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
	return err //nolint:wrapcheck // the caller says what for
}

// unlabelSource takes the label off a source.
func (c *Controller) unlabelSource(ctx context.Context, r *record.Record, i int) error {
	ref := r.Claims[i].Source.Ref
	at, err := c.sites.At(ref.Cluster)
	if err != nil {
		return err
	}
	err = setLabel(ctx, at.Client.CoreV1().PersistentVolumeClaims(ref.Namespace), ref.Name, ref.UID, r.GroupLabel(), nil)
	return site.IgnoreGone(err, "take label "+r.GroupLabel()+" off real claim "+ref.Key().String())
}

// dropGroup deletes the snapshot of several sources; the snapshot controller deletes those that belong
// to it.
func (c *Controller) dropGroup(ctx context.Context, r *record.Record, seen steps.Group) error {
	at, err := c.sites.At(r.ClusterOf(record.Source))
	if err != nil {
		return err
	}
	return site.IgnoreGone(groups(at, r).Delete(ctx, r.GroupName(), only(seen.UID)), "delete VolumeGroupSnapshot "+r.GroupName())
}

// observeGroup reads the snapshot of several sources.
func (c *Controller) observeGroup(ctx context.Context, w *activeMove, o *steps.Observation) error {
	cluster := o.Record.ClusterOf(record.Source)
	at, why := c.sites.Reach(cluster)
	if why != "" {
		o.Source.Unusable = why
		return nil
	}
	found, err := c.readGroup(ctx, at, o.Record)
	switch {
	case err != nil && at.Home:
		return err
	case err != nil:
		c.sites.Recheck(cluster)
		o.Source.Unusable = fmt.Sprintf("cluster %s cannot be asked now: %v", cluster, err)
		return nil
	}
	if w.refusedGroup != "" && !found.Refused {
		found.Problem, found.Refused = w.refusedGroup, true
	}
	o.Group = found
	return nil
}

func (c *Controller) readGroup(ctx context.Context, at site.Site, r *record.Record) (seen steps.Group, err error) {
	ctx, cancel := at.WithTimeout(ctx)
	defer cancel()
	object, err := groups(at, r).Get(ctx, r.GroupName(), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return seen, nil
	}
	name := r.SourceNamespace() + "/" + r.GroupName()
	if err != nil {
		return seen, fmt.Errorf("look at VolumeGroupSnapshot %s: %w", name, err)
	}
	taken, err := volumesnapshot.Read[volumesnapshot.GroupSnapshot](object)
	if err != nil {
		return seen, err
	}
	if !at.Home {
		remote.TrustedGroup(taken)
	}
	if !c.isOurs(taken, r) {
		seen.Problem, seen.Refused = fmt.Sprintf("a VolumeGroupSnapshot %s is there already and is not this move's: remove it there", name), true
		return seen, nil
	}
	seen.Exists, seen.UID, seen.Leaving = true, taken.UID, taken.DeletionTimestamp != nil
	seen.Ready = ptr.Deref(taken.Status.ReadyToUse, false)
	if failed := taken.Status.Error; failed != nil && !seen.Ready {
		seen.Problem = plain(ptr.Deref(failed.Message, "it failed"))
	}
	if seen.Ready && r.Group.UID == "" {
		seen.Members, seen.Problem, err = readMembers(ctx, at, r, taken.UID)
	}
	return seen, err
}

// readMembers returns the names of the VolumeSnapshots that belong to a group, by the index of their
// claim; why says what is wrong with them.
func readMembers(ctx context.Context, at site.Site, r *record.Record, group types.UID) (members map[int]string, why string, err error) {
	var found []*volumesnapshot.Snapshot
	list := at.Dynamic.Resource(volumesnapshot.Snapshots).Namespace(r.SourceNamespace()).List
	err = site.EachPage(ctx, metav1.ListOptions{}, list, func(page *unstructured.UnstructuredList) {
		for i := range page.Items {
			s, err := volumesnapshot.Read[volumesnapshot.Snapshot](&page.Items[i])
			if err != nil {
				continue
			}
			if !at.Home {
				remote.TrustedSnapshot(s)
			}
			if isMember(s, group) && s.Status.ContentName != nil && len(found) <= len(r.Claims) {
				found = append(found, s)
			}
		}
	})
	if err != nil {
		return nil, "", fmt.Errorf("list VolumeSnapshots of namespace %s: %w", r.SourceNamespace(), err)
	}
	members = map[int]string{}
	for _, s := range found {
		content, problem, _, err := frozen.Content(ctx, at, *s.Status.ContentName)
		if err != nil || problem != "" {
			return nil, problem, err
		}
		// What a snapshot says of its claim does not count: users may write that, and for a volume of home, which two
		// PersistentVolumes lead to, the snapshot controller does not say it.
		of := slices.IndexFunc(r.Claims, func(known record.Claim) bool {
			return known.Snapshot != nil && volumesnapshot.BelongTo(s, content) && frozen.IsOf(volumeOf(known.Snapshot), content)
		})
		switch {
		case of < 0:
		case members[of] != "":
			return nil, fmt.Sprintf("several VolumeSnapshots of claim %s belong to it", r.Claims[of].Source.Ref.Key()), nil
		default:
			members[of] = s.Name
		}
	}
	for i, known := range r.Claims {
		if known.Snapshot != nil && members[i] == "" {
			return members, fmt.Sprintf("no VolumeSnapshot of claim %s belongs to it", known.Source.Ref.Key()), nil
		}
	}
	return members, "", nil
}

// isMember says whether a VolumeSnapshot says that it belongs to the VolumeGroupSnapshot with this UID.
func isMember(s *volumesnapshot.Snapshot, group types.UID) bool {
	return group != "" && volumesnapshot.GroupOf(s) == string(group)
}
