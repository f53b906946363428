// Package frozen takes snapshots of real claims that are copied, and makes claims of them that movers read. Choose says with
// which class, Take and Clone make the two, and Look says whether a snapshot is what it should be.
package frozen

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/backing"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/sentence"
	"github.com/lodestone-storage/lodestone/pkg/volumesnapshot"
	"github.com/lodestone-storage/lodestone/provisioner/remote"
	"github.com/lodestone-storage/lodestone/provisioner/site"
)

// Choose finds out with which VolumeSnapshotClass a snapshot can be taken of a real claim that is bound to a real volume. why says
// why none can, in words that follow "no snapshot can be taken, for".
func Choose(ctx context.Context, sites site.Sites, of backing.Ref, real string) (by string, volume volumesnapshot.Volume, why string,
	err error) {
	at, unusable := sites.Reach(of.Cluster)
	switch {
	case unusable != "":
		return "", volume, unusable, nil
	case at.Dynamic == nil:
		return "", volume, "cluster " + of.Cluster + " has no VolumeSnapshots", nil
	}
	found, err := at.Volume(ctx, real)
	if err != nil {
		return "", volume, "", err
	}
	if found == nil || found.Spec.CSI == nil {
		return "", volume, "its volume has no CSI driver, and only those take snapshots", nil
	}
	volume = volumesnapshot.Volume{Driver: found.Spec.CSI.Driver, Handle: found.Spec.CSI.VolumeHandle}
	by, why, err = ClassOf(ctx, at, of.Cluster, volume.Driver)
	return by, volume, why, err
}

// ClassOf returns the VolumeSnapshotClass for volumes of a driver; why says why there is none.
func ClassOf(ctx context.Context, at site.Site, cluster, driver string) (by, why string, err error) {
	by, why, _, err = SeenClassOf(ctx, at, cluster, driver)
	return by, why, err
}

// SeenClassOf does the same; seen says that the cluster has none, and not only that it does not say.
func SeenClassOf(ctx context.Context, at site.Site, cluster, driver string) (by, why string, seen bool, err error) {
	if at.Dynamic == nil {
		return "", "cluster " + cluster + " has no VolumeSnapshots", true, nil
	}
	classes, err := ListClasses(ctx, at.Dynamic.Resource(volumesnapshot.Classes))
	switch {
	case apierrors.IsNotFound(err):
		return "", "cluster " + cluster + " has no VolumeSnapshots", true, nil
	case apierrors.IsForbidden(err) && at.Home:
		return "", "the provisioner may not read VolumeSnapshotClasses: apply deploy of this version", false, nil
	case apierrors.IsForbidden(err):
		return "", fmt.Sprintf("cluster %s does not let this one read VolumeSnapshotClasses: apply deploy/remote of this version in it",
			cluster), false, nil
	case err != nil:
		return "", "", false, fmt.Errorf("list VolumeSnapshotClasses in %s: %w", cluster, err)
	}
	if by = ClassFor(classes, driver, volumesnapshot.DefaultClass); by == "" {
		why = fmt.Sprintf("cluster %s has no VolumeSnapshotClass of driver %s with deletionPolicy Delete", cluster, driver)
	}
	return by, why, true, nil
}

// ListClasses lists the classes of snapshots.
func ListClasses(ctx context.Context, client dynamic.ResourceInterface) (classes []volumesnapshot.Class, err error) {
	list, err := client.List(ctx, metav1.ListOptions{Limit: 500})
	if err != nil {
		return nil, err //nolint:wrapcheck // the caller says where
	}
	for i := range list.Items {
		if class, err := volumesnapshot.Read[volumesnapshot.Class](&list.Items[i]); err == nil {
			classes = append(classes, *class)
		}
	}
	return classes, nil
}

// ClassFor chooses a class for the snapshot of a driver's volume: the one with the annotation of the
// default, else the first by name. It ignores classes with policy Retain, which would leave something
// behind.
func ClassFor(classes []volumesnapshot.Class, driver, byDefault string) string {
	classes = slices.DeleteFunc(slices.Clone(classes), func(class volumesnapshot.Class) bool {
		return class.Driver != driver || class.DeletionPolicy != volumesnapshot.Delete || class.DeletionTimestamp != nil ||
			len(validation.NameIsDNSSubdomain(class.Name, false)) > 0
	})
	if len(classes) == 0 {
		return ""
	}
	rank := func(class volumesnapshot.Class) int {
		if class.Annotations[byDefault] == "true" {
			return 0
		}
		return 1
	}
	return slices.MinFunc(classes, func(a, b volumesnapshot.Class) int {
		return cmp.Or(rank(a)-rank(b), cmp.Compare(a.Name, b.Name))
	}).Name
}

// Take creates a snapshot of a real claim, of this name beside it. One of that name that exists is an error.
func Take(ctx context.Context, at site.Site, of backing.Ref, name, by string, labels, annotations map[string]string) error {
	// The VolumeSnapshot names its claim without a UID, so check now that the claim is the one that is meant.
	b, err := at.Claim(ctx, of.Namespace, of.Name)
	if err != nil {
		return err
	}
	if b == nil || b.UID != of.UID {
		return fmt.Errorf("real claim %s is gone, or another", of.Key())
	}
	encoded, err := volumesnapshot.Write(&volumesnapshot.Snapshot{
		TypeMeta:   metav1.TypeMeta{APIVersion: volumesnapshot.GroupVersion.String(), Kind: volumesnapshot.Kind},
		ObjectMeta: metav1.ObjectMeta{Namespace: of.Namespace, Name: name, Labels: labels, Annotations: annotations},
		Spec:       volumesnapshot.SnapshotSpec{Source: volumesnapshot.SnapshotSource{ClaimName: &of.Name}, ClassName: &by},
	})
	if err != nil {
		return err
	}
	if _, err = at.Dynamic.Resource(volumesnapshot.Snapshots).Namespace(of.Namespace).Create(ctx, encoded,
		metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("take snapshot %s/%s: %w", of.Namespace, name, err)
	}
	return nil
}

// Clone creates a claim of this name beside a snapshot that is ready, from that, with the class and the modes of the real claim that
// the snapshot is of. It never gets a virtual volume.
func Clone(ctx context.Context, at site.Site, taken *volumesnapshot.Snapshot, source *corev1.PersistentVolumeClaim, name, class string,
	labels map[string]string) error {
	size := source.Status.Capacity[corev1.ResourceStorage]
	if asked := source.Spec.Resources.Requests[corev1.ResourceStorage]; asked.Cmp(size) > 0 {
		size = asked
	}
	if needed := taken.Status.RestoreSize; needed != nil && needed.Cmp(size) > 0 {
		size = *needed
	}
	clone := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: taken.Namespace, Name: name, Labels: labels,
			Annotations: map[string]string{keys.Unpublished: "true"}},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: source.Spec.AccessModes, VolumeMode: source.Spec.VolumeMode, StorageClassName: &class,
			Resources:  corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: size}},
			DataSource: From(taken.Name),
		},
	}
	if _, err := at.Client.CoreV1().PersistentVolumeClaims(taken.Namespace).Create(ctx, clone, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("make a claim of snapshot %s/%s: %w", taken.Namespace, taken.Name, err)
	}
	return nil
}

// From is the data source of a claim that is created from a snapshot in its namespace.
func From(name string) *corev1.TypedLocalObjectReference {
	return &corev1.TypedLocalObjectReference{APIGroup: ptr.To(volumesnapshot.Group), Kind: volumesnapshot.Kind, Name: name}
}

// Wanted says what a snapshot should be.
type Wanted struct {
	types.NamespacedName
	// Claim is the name of the claim that it should be of; empty: it is not asked for that. Volume is the volume of that claim.
	Claim  string
	Volume volumesnapshot.Volume
	// Ours says whether its labels say that it was taken for whoever asks; Whose names them in a sentence.
	Ours  func(*volumesnapshot.Snapshot) bool
	Whose string
}

// Look returns a snapshot, nil if there is none of that name. problem says why it cannot be used, or not yet, and wrong that it never
// can.
func Look(ctx context.Context, at site.Site, want Wanted) (s *volumesnapshot.Snapshot, problem string, wrong bool, err error) {
	object, err := at.Dynamic.Resource(volumesnapshot.Snapshots).Namespace(want.Namespace).Get(ctx, want.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, "", false, nil
	}
	if err != nil {
		return nil, "", false, fmt.Errorf("look at snapshot %s: %w", want.NamespacedName, err)
	}
	if s, err = volumesnapshot.Read[volumesnapshot.Snapshot](object); err != nil {
		return nil, "", false, err
	}
	if !at.Home {
		remote.TrustedSnapshot(s)
	}
	if !want.Ours(s) {
		return nil, fmt.Sprintf("a VolumeSnapshot %s is there already and is not %s: remove it there", want.NamespacedName, want.Whose), true, nil
	}
	says, its := s.Status, volumesnapshot.ContentStatus{}
	if name := ptr.Deref(says.ContentName, ""); name != "" {
		content, problem, wrong, err := Content(ctx, at, name)
		if err != nil || problem != "" {
			s.Status.CreationTime, s.Status.ReadyToUse = nil, nil
			return s, problem, wrong, err
		}
		if why := WhyForeign(want.Claim, want.Volume, s, content); why != "" {
			return s, why, true, nil
		}
		its = content.Status
	}
	// Whoever may write the status of a snapshot can write that it was taken, and is ready; only the driver writes it to its content.
	if its.CreationTime == nil {
		s.Status.CreationTime = nil
	}
	if !ptr.Deref(its.ReadyToUse, false) {
		s.Status.ReadyToUse = nil
	}
	switch failed := s.Status.Error; {
	case ptr.Deref(s.Status.ReadyToUse, false):
	case failed != nil:
		problem = plain(ptr.Deref(failed.Message, "it failed"))
	case ptr.Deref(says.ReadyToUse, false):
		problem = "it says that it is ready, and its VolumeSnapshotContent does not"
	}
	return s, problem, false, nil
}

// Content returns a VolumeSnapshotContent. problem says why it cannot be read, and wrong that it never can.
func Content(ctx context.Context, at site.Site, name string) (content *volumesnapshot.Content, problem string, wrong bool, err error) {
	object, err := at.Dynamic.Resource(volumesnapshot.Contents).Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, "its VolumeSnapshotContent is gone", false, nil
	case apierrors.IsForbidden(err):
		return nil, "home may not look at VolumeSnapshotContents there: apply deploy/remote of this version in it", true, nil
	case err != nil:
		return nil, "", false, fmt.Errorf("look at content %s: %w", name, err)
	}
	content, err = volumesnapshot.Read[volumesnapshot.Content](object)
	return content, "", false, err
}

// IsOf says whether a content is a snapshot of a volume.
func IsOf(volume volumesnapshot.Volume, content *volumesnapshot.Content) bool {
	return content.Spec.Driver == volume.Driver && ptr.Deref(content.Spec.Source.VolumeHandle, "") == volume.Handle
}

// WhyForeign says why a snapshot is not of a claim, unless that is empty, and of its volume, or cannot be deleted again; empty if it is
// and can.
func WhyForeign(claim string, volume volumesnapshot.Volume, s *volumesnapshot.Snapshot, content *volumesnapshot.Content) string {
	switch {
	case claim != "" && ptr.Deref(s.Spec.Source.ClaimName, "") != claim:
		return "it is of another claim than " + claim + ": see who made it"
	case !volumesnapshot.BelongTo(s, content):
		return fmt.Sprintf("VolumeSnapshotContent %s is not its own: see who made it", plain(content.Name))
	case !IsOf(volume, content):
		return fmt.Sprintf("VolumeSnapshotContent %s is of another volume: see who made it", plain(content.Name))
	case content.Spec.DeletionPolicy != volumesnapshot.Delete:
		return fmt.Sprintf("VolumeSnapshotContent %s stays when its snapshot is deleted (deletionPolicy %s): remove it by hand",
			plain(content.Name), plain(content.Spec.DeletionPolicy))
	}
	return ""
}

// RefusalOf returns why an API server refuses a request that it would refuse again; other errors are
// returned, except that the object is there already.
func RefusalOf(err error) (why string, other error) {
	switch {
	case err == nil || apierrors.IsAlreadyExists(err):
		return "", nil
	case apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsNotFound(err) || apierrors.IsBadRequest(err):
		return plain(err.Error()), nil
	}
	return "", err
}

// longest limits the texts of other clusters, in bytes.
const longest = 1024

// plain makes a text of another cluster one line of limited length.
func plain(text string) string { return sentence.Short(sentence.Plain(text, len(text)), longest) }
