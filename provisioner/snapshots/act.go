package snapshots

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/volumesnapshot"
)

// act takes a step. It need not know whether a failed request took effect: the next
// observation shows it.
func (m *Controller) act(ctx context.Context, o Observation, step Step) error {
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
func (m *Controller) take(ctx context.Context, o Observation) error {
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
	if shadow.UID != Source(o).UID {
		return fmt.Errorf("real claim %s is another: %w", o.Ref, errChanged)
	}
	why, err := create(ctx, client, Wanted(o, class))
	if why != nil {
		err = m.refused(ctx, o.Content, fail(o, "cluster %s refuses it: %v", o.Ref.Cluster, why), why)
	}
	if err != nil {
		return fmt.Errorf("take snapshot %s in %s: %w", Name(o.Content), o.Ref.Cluster, err)
	}
	return nil
}

// Wanted returns the VolumeSnapshot to create for a content, with this class of the remote
// cluster; empty means its default class.
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
func (m *Controller) release(ctx context.Context, o Observation, step Step) error {
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
			m.Clusters.Object(o.Ref.Cluster), at.Name, o.isTaken); err != nil {
			return err
		}
	}
	return m.letGo(ctx, o.Content)
}

// isTaken says whether what has the name of a content's snapshot is that.
func (o Observation) isTaken(found *unstructured.Unstructured) bool {
	if given(o.Content) {
		return found.GetUID() == o.Ref.UID
	}
	return found.GetLabels()[keys.ContentUID] == string(o.Content.UID)
}
