package mirror

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/volumesnapshot"
)

// errChanged is the error of a step that is no longer wanted.
var errChanged = errors.New("what was seen is out of date")

// act takes a step. Whatever a request did or did not do, observing again leads on
// from there.
func (m *Mirror) act(ctx context.Context, o Observation, step Step) error {
	switch step.Verb {
	case Idle:
		return nil
	case Report:
		return m.report(ctx, o.Content, step.Status)
	case Take:
		return m.take(ctx, o)
	case Release:
		return m.release(ctx, o, step)
	case Mark, Delete:
	}
	client := m.remote(o.Ref.Cluster, o.There.Namespace)
	if client == nil {
		return errNoClient
	}
	if step.Verb == Mark {
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": o.There.UID, "annotations": map[string]any{keys.Unpublished: nil}}})
		if err != nil {
			return fmt.Errorf("encode patch: %w", err)
		}
		if _, err = client.Patch(ctx, o.There.Name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			return fmt.Errorf("mark snapshot %s/%s in %s as known at home: %w", o.There.Namespace, o.There.Name, o.Ref.Cluster, err)
		}
		return nil
	}
	err := client.Delete(ctx, o.There.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &o.There.UID}})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete snapshot %s/%s in %s: %w", o.There.Namespace, o.There.Name, o.Ref.Cluster, err)
	}
	return nil
}

// errNoClient is the error of a step in a cluster that has just gone.
var errNoClient = errors.New("the cluster has no client now")

func (m *Mirror) remote(cluster, namespace string) dynamic.ResourceInterface {
	if c := m.Clusters.Get(cluster); c != nil {
		if client := c.Dynamic(); client != nil {
			return client.Resource(volumesnapshot.Snapshots).Namespace(namespace)
		}
	}
	return nil
}

func (m *Mirror) contents() dynamic.ResourceInterface {
	return m.Home.Client().Resource(volumesnapshot.Contents)
}

// report writes the status of a content as it was seen.
func (m *Mirror) report(ctx context.Context, c *volumesnapshot.Content, status volumesnapshot.ContentStatus) error {
	if status.Error != nil && status.Error.Time == nil {
		failed := *status.Error
		failed.Time = ptr.To(metav1.Now())
		status.Error = &failed
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": c.UID, "resourceVersion": c.ResourceVersion},
		"status": map[string]any{
			"snapshotHandle": status.SnapshotHandle, "creationTime": status.CreationTime, "restoreSize": status.RestoreSize,
			"readyToUse": status.ReadyToUse, "error": status.Error,
		},
	})
	if err != nil {
		return fmt.Errorf("encode status: %w", err)
	}
	if _, err := m.contents().Patch(ctx, c.Name, types.MergePatchType, patch, metav1.PatchOptions{}, "status"); err != nil {
		return fmt.Errorf("write status of content %s: %w", c.Name, err)
	}
	return nil
}

// take makes the snapshot of a content. What its cluster says against it is said on
// the content.
func (m *Mirror) take(ctx context.Context, o Observation) error {
	class, err := m.class(ctx, o)
	if err != nil {
		return err
	}
	client, cluster := m.remote(o.Ref.Cluster, o.Ref.Namespace), m.Clusters.Get(o.Ref.Cluster)
	if client == nil || cluster == nil || cluster.Client() == nil {
		return errNoClient
	}
	// The name alone goes into the snapshot, so whose it is now must be certain.
	shadow, err := cluster.Client().CoreV1().PersistentVolumeClaims(o.Ref.Namespace).Get(ctx, o.Ref.Name, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("look at real claim %s: %w", o.Ref, err)
	}
	if shadow.UID != Source(o).UID {
		return fmt.Errorf("real claim %s is another: %w", o.Ref, errChanged)
	}
	encoded, err := volumesnapshot.Write(Wanted(o, class))
	if err != nil {
		return err
	}
	_, err = client.Create(ctx, encoded, metav1.CreateOptions{})
	switch {
	case err == nil || apierrors.IsAlreadyExists(err):
		// Whose it is shows when it is seen.
		return nil
	case apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsNotFound(err) || apierrors.IsBadRequest(err):
		if step := fail(o, "cluster %s refuses it: %v", o.Ref.Cluster, err); step.Verb == Report && m.reports.may(o.Content.Name) {
			if reported := m.act(ctx, o, step); reported != nil {
				return reported
			}
		}
	}
	return fmt.Errorf("take snapshot %s in %s: %w", encoded.GetName(), o.Ref.Cluster, err)
}

// Wanted is the snapshot that is taken for a content, with a class of its cluster;
// empty: its default.
func Wanted(o Observation, class string) *volumesnapshot.Snapshot {
	s := &volumesnapshot.Snapshot{
		TypeMeta: metav1.TypeMeta{APIVersion: volumesnapshot.GroupVersion.String(), Kind: volumesnapshot.Kind},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: o.Ref.Namespace, Name: Name(o.Content),
			Labels:      map[string]string{keys.HomeID: o.HomeID, keys.ContentUID: string(o.Content.UID)},
			Annotations: map[string]string{keys.Content: o.Content.Name, keys.MadeBy: o.Real.Spec.CSI.Driver, keys.Unpublished: "true"},
		},
		Spec: volumesnapshot.SnapshotSpec{Source: volumesnapshot.SnapshotSource{ClaimName: ptr.To(o.Ref.Name)}},
	}
	if class != "" {
		s.Spec.ClassName = &class
	}
	return s
}

// class returns the class that a snapshot is to have in its cluster, as the class of
// the content says; empty where that says nothing or is gone.
func (m *Mirror) class(ctx context.Context, o Observation) (string, error) {
	if o.Content.Spec.ClassName == nil {
		return "", nil
	}
	found, err := m.Home.Client().Resource(volumesnapshot.Classes).Get(ctx, *o.Content.Spec.ClassName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("look at VolumeSnapshotClass %s: %w", *o.Content.Spec.ClassName, err)
	}
	class, err := volumesnapshot.Read[volumesnapshot.Class](found)
	if err != nil {
		return "", err
	}
	if name := class.Parameters[keys.RemoteClass+"."+o.Ref.Cluster]; name != "" {
		return name, nil
	}
	return class.Parameters[keys.RemoteClass], nil
}

// sweep removes a snapshot in a remote cluster that was taken for a content which is
// gone, if home never knew of it. One that home knew of went with its content, or is
// to be kept.
func (m *Mirror) sweep(ctx context.Context, it item) error {
	cluster := m.Clusters.Get(it.Cluster)
	if cluster == nil {
		return nil
	}
	left := cluster.Snapshot(it.Left)
	if left == nil || left.Annotations[keys.Unpublished] == "" || left.DeletionTimestamp != nil || left.Labels[keys.HomeID] != m.HomeID {
		return nil
	}
	content, err := m.contents().Get(ctx, left.Annotations[keys.Content], metav1.GetOptions{})
	switch {
	case err == nil && string(content.GetUID()) == left.Labels[keys.ContentUID]:
		return nil
	case err != nil && !apierrors.IsNotFound(err):
		return fmt.Errorf("look for content %s: %w", left.Annotations[keys.Content], err)
	}
	client := m.remote(it.Cluster, left.Namespace)
	if client == nil {
		return errNoClient
	}
	err = client.Delete(ctx, left.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &left.UID, ResourceVersion: &left.ResourceVersion}})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete snapshot %s in %s, which nobody knows of: %w", it.Left, it.Cluster, err)
	}
	return nil
}
