package claims

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/volumesnapshot"
	"github.com/lodestone-storage/lodestone/provisioner/claims/steps"
)

// makeStandIn creates what is missing of a stand-in, the content first: the snapshot
// controller reports a snapshot without a content to users.
func (f *Controller) makeStandIn(ctx context.Context, o steps.Observation, a steps.MakeStandIn) error {
	of := o.Source.Snapshot.Content
	if of.Spec.ClassName != nil {
		// With a class that no longer exists nobody could check the snapshot.
		_, err := f.Snapshots.Client().Resource(volumesnapshot.Classes).Get(ctx, *of.Spec.ClassName, metav1.GetOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("look at VolumeSnapshotClass %s: %w", *of.Spec.ClassName, err)
		}
		if err != nil {
			without := *of
			without.Spec.ClassName = nil
			of = &without
		}
	}
	snapshot, content := volumesnapshot.StandIn(of, o.Source.Snapshot.At, o.UID, f.Place.HomeID)
	if a.StandIn.Content == nil {
		made, err := makeOnce[volumesnapshot.Content](ctx, f.Snapshots.Client().Resource(volumesnapshot.Contents), content)
		if err != nil {
			return err
		}
		if !volumesnapshot.Ours(made, o.UID, f.Place.HomeID) || !volumesnapshot.StandsFor(made, of) {
			return fmt.Errorf("VolumeSnapshotContent %s names other data: %w", made.Name, errChanged)
		}
	}
	if a.StandIn.Object == nil {
		made, err := makeOnce[volumesnapshot.Snapshot](ctx, f.Snapshots.Client().Resource(volumesnapshot.Snapshots).Namespace(snapshot.Namespace),
			snapshot)
		if err != nil {
			return err
		}
		if !volumesnapshot.Ours(made, o.UID, f.Place.HomeID) || ptr.Deref(made.Spec.Source.ContentName, "") != content.Name {
			return fmt.Errorf("VolumeSnapshot %s/%s is another's: %w", made.Namespace, made.Name, errChanged)
		}
	}
	return nil
}

// makeOnce creates an object and returns it, or the existing one of that name.
func makeOnce[T any](ctx context.Context, client dynamic.ResourceInterface, object metav1.Object) (*T, error) {
	encoded, err := volumesnapshot.Write(object)
	if err != nil {
		return nil, err
	}
	made, err := client.Create(ctx, encoded, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		made, err = client.Get(ctx, object.GetName(), metav1.GetOptions{})
	}
	if err != nil {
		return nil, fmt.Errorf("make %s %s: %w", encoded.GetKind(), object.GetName(), err)
	}
	return volumesnapshot.Read[T](made)
}

// removeStandIn deletes a stand-in, the snapshot first: deleting it requires its content.
// The content must have policy Retain: the data belongs to the user's own snapshot.
func (f *Controller) removeStandIn(ctx context.Context, a steps.RemoveStandIn) error {
	if s := a.StandIn.Object; s != nil {
		return f.deleteSnapshot(ctx, volumesnapshot.Snapshots, s)
	}
	c := a.StandIn.Content
	if c.Spec.DeletionPolicy != volumesnapshot.Retain {
		return fmt.Errorf("VolumeSnapshotContent %s would take the snapshot with it, for somebody set its deletionPolicy to %s: set it to %s: %w",
			c.Name, c.Spec.DeletionPolicy, volumesnapshot.Retain, errChanged)
	}
	return f.deleteSnapshot(ctx, volumesnapshot.Contents, c)
}

// deleteSnapshot deletes an object of the snapshot API with the observed UID and resource
// version only.
func (f *Controller) deleteSnapshot(ctx context.Context, resource schema.GroupVersionResource, object metav1.Object) error {
	uid, version := object.GetUID(), object.GetResourceVersion()
	err := f.Snapshots.Client().Resource(resource).Namespace(object.GetNamespace()).Delete(ctx, object.GetName(),
		metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: ptr.To[types.UID](uid), ResourceVersion: ptr.To(version)}})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete %s %s: %w", resource.Resource, object.GetName(), err)
	}
	return nil
}
