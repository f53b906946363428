package instant

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// SnapshotSource returns the handle of the volume that a VolumeSnapshot was taken of.
type SnapshotSource func(ctx context.Context, namespace, name string) (handle string, err error)

// SetSnapshots has claims made from VolumeSnapshots too, which are played by others.
func (p *Provisioner) SetSnapshots(of SnapshotSource) { p.snapshots.Store(&of) }

// sourceOf returns the handle of the volume that a claim is to be a copy of, empty
// for none. Like a real provisioner it refuses what it cannot copy.
func (p *Provisioner) sourceOf(ctx context.Context, claim *corev1.PersistentVolumeClaim) (string, error) {
	ref := claim.Spec.DataSourceRef
	if ref == nil {
		return "", nil
	}
	if of := p.snapshots.Load(); of != nil && ref.Kind == "VolumeSnapshot" {
		return (*of)(ctx, claim.Namespace, ref.Name)
	}
	if ref.Kind != "PersistentVolumeClaim" {
		return "", fmt.Errorf("%s %s is no claim, and only claims are copied", ref.Kind, ref.Name)
	}
	source, err := p.client.CoreV1().PersistentVolumeClaims(claim.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
	if err != nil {
		return "", fmt.Errorf("get the claim to copy: %w", err)
	}
	if source.Status.Phase != corev1.ClaimBound || source.DeletionTimestamp != nil {
		return "", fmt.Errorf("claim %s, which is to be copied, is not bound or is being deleted", source.Name)
	}
	volume, err := p.client.CoreV1().PersistentVolumes().Get(ctx, source.Spec.VolumeName, metav1.GetOptions{})
	if err != nil {
		return "", fmt.Errorf("get the volume to copy: %w", err)
	}
	if volume.Spec.CSI == nil || volume.Spec.CSI.Driver != p.name {
		return "", fmt.Errorf("volume %s, which is to be copied, is not one of driver %s", volume.Name, p.name)
	}
	return volume.Spec.CSI.VolumeHandle, nil
}
