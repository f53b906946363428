package moves

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/pkg/volumesnapshot"
	"github.com/lodestone-storage/lodestone/provisioner/backing"
	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
)

// inspectSnapshot finds out how a source is copied that nothing can read beside its pod.
// why says why no snapshot of it can be.
func (c *Controller) inspectSnapshot(ctx context.Context, r *record.Record, source *record.Copy) (s *record.Snapshot, why string, err error) {
	cluster := source.Ref.Cluster
	at, unusable := c.reach(cluster)
	switch {
	case unusable != "":
		return nil, unusable, nil
	case r.Passes == 0:
		return nil, "spec.passes is 0", nil
	case at.Dynamic == nil:
		return nil, "cluster " + cluster + " has no VolumeSnapshots", nil
	case source.Class == "":
		return nil, "its real claim has no storage class, which the claim made of a snapshot needs", nil
	}
	real, err := volumeAt(ctx, at, source.Real)
	if err != nil {
		return nil, "", err
	}
	if real == nil || real.Spec.CSI == nil {
		return nil, "its volume has no CSI driver, and only those take snapshots", nil
	}
	driver := real.Spec.CSI.Driver
	list, err := at.Dynamic.Resource(volumesnapshot.Classes).List(ctx, metav1.ListOptions{Limit: 500})
	switch {
	case apierrors.IsNotFound(err):
		return nil, "cluster " + cluster + " has no VolumeSnapshots", nil
	case apierrors.IsForbidden(err) && at.home:
		return nil, "the provisioner may not read VolumeSnapshotClasses: apply deploy of this version", nil
	case apierrors.IsForbidden(err):
		return nil, fmt.Sprintf("cluster %s does not let this one read VolumeSnapshotClasses: apply deploy/remote of this version in it", cluster), nil
	case err != nil:
		return nil, "", fmt.Errorf("list VolumeSnapshotClasses in %s: %w", cluster, err)
	}
	var classes []volumesnapshot.Class
	for i := range list.Items {
		if class, err := volumesnapshot.Read[volumesnapshot.Class](&list.Items[i]); err == nil {
			classes = append(classes, *class)
		}
	}
	by := classFor(classes, driver)
	if by == "" {
		return nil, fmt.Sprintf("cluster %s has no VolumeSnapshotClass of driver %s with deletionPolicy Delete", cluster, driver), nil
	}
	name := r.MoverName(len(r.Claims), record.Snapped)
	return &record.Snapshot{
		Copy: record.Copy{Ref: backing.Ref{Cluster: cluster, Namespace: source.Ref.Namespace, Name: name}, Class: source.Class},
		By:   by, Driver: driver, Handle: real.Spec.CSI.VolumeHandle,
	}, "", nil
}

// classFor chooses a class for the snapshot of a volume of a driver: the default one, else
// the first by name. Of one that keeps what was deleted something would stay.
func classFor(classes []volumesnapshot.Class, driver string) string {
	classes = slices.DeleteFunc(slices.Clone(classes), func(class volumesnapshot.Class) bool {
		return class.Driver != driver || class.DeletionPolicy != volumesnapshot.Delete || class.DeletionTimestamp != nil ||
			len(validation.NameIsDNSSubdomain(class.Name, false)) > 0
	})
	if len(classes) == 0 {
		return ""
	}
	rank := func(class volumesnapshot.Class) int {
		if class.Annotations[volumesnapshot.DefaultClass] == "true" {
			return 0
		}
		return 1
	}
	return slices.MinFunc(classes, func(a, b volumesnapshot.Class) int {
		return cmp.Or(rank(a)-rank(b), cmp.Compare(a.Name, b.Name))
	}).Name
}

// onlyOne says whether a claim may be used by one pod at a time.
func onlyOne(claim *corev1.PersistentVolumeClaim) bool {
	return slices.Contains(claim.Spec.AccessModes, corev1.ReadWriteOncePod)
}
