package story

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/instant"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/locality"
	"github.com/lodestone-storage/lodestone/provisioner/backing"
)

// volume is all that there is behind a bound virtual claim.
type volume struct {
	claim   *corev1.PersistentVolumeClaim
	virtual *corev1.PersistentVolume
	in      where
	backing *corev1.PersistentVolumeClaim
	real    *corev1.PersistentVolume
	node    string // of the pod that uses it
	pod     string
}

// storage is what really holds the data of a cluster.
func (s *story) storage(in where) *instant.Provisioner {
	if in == home {
		return s.fabric.HomeStorage
	}
	return s.fabric.WestStorage
}

// find follows a claim to its data and fails at the first link that is not as it
// should be.
func (s *story) find(ctx context.Context, namespace, name, pod string) (*volume, error) {
	client := s.fabric.Home.Client().CoreV1()
	claim, err := client.PersistentVolumeClaims(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	if claim.Status.Phase != corev1.ClaimBound {
		return nil, fmt.Errorf("claim %s is %s", name, claim.Status.Phase)
	}
	v := &volume{claim: claim, pod: pod}
	if v.virtual, err = client.PersistentVolumes().Get(ctx, claim.Spec.VolumeName, metav1.GetOptions{}); err != nil {
		return nil, err
	}
	id, ok := locality.OfVolume(v.virtual.Spec.NodeAffinity)
	if !ok || id != v.virtual.Labels[keys.Cluster] {
		return nil, fmt.Errorf("volume %s has node affinity for cluster %q and the label %q", v.virtual.Name, id, v.virtual.Labels[keys.Cluster])
	}
	v.in = where(id)
	ref, err := backing.RefOf(v.virtual)
	if err != nil {
		return nil, err
	}
	if err := s.findBacking(ctx, v, ref); err != nil {
		return nil, err
	}
	v.node, err = s.nodeOf(ctx, namespace, pod)
	return v, err
}

// findBacking finds the backing claim and the real volume of a virtual volume.
func (s *story) findBacking(ctx context.Context, v *volume, ref backing.Ref) error {
	var err error
	if v.backing, err = s.cluster(v.in).Client().CoreV1().PersistentVolumeClaims(ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{}); err != nil {
		return fmt.Errorf("backing claim of %s: %w", v.claim.Name, err)
	}
	if v.backing.UID != ref.UID || v.backing.Labels[keys.ClaimUID] != string(v.claim.UID) {
		return fmt.Errorf("backing claim %s/%s in %s is not that of claim %s", ref.Namespace, ref.Name, v.in, v.claim.Name)
	}
	if v.backing.Status.Phase != corev1.ClaimBound {
		return fmt.Errorf("backing claim %s/%s in %s is %s", ref.Namespace, ref.Name, v.in, v.backing.Status.Phase)
	}
	if v.real, err = s.cluster(v.in).Client().CoreV1().PersistentVolumes().Get(ctx, v.backing.Spec.VolumeName, metav1.GetOptions{}); err != nil {
		return fmt.Errorf("real volume of %s: %w", v.claim.Name, err)
	}
	if !s.storage(v.in).Exists(v.real.Spec.CSI.VolumeHandle) {
		return fmt.Errorf("the storage of %s has no volume %s", v.in, v.real.Spec.CSI.VolumeHandle)
	}
	return nil
}

// checkKind fails unless a volume is a twin at home, with the real volume's own
// source, or a shadow in a remote cluster, whose source no kubelet at home knows.
func (v *volume) checkKind() error {
	source := v.virtual.Spec.CSI
	if !slices.Contains(v.backing.Finalizers, keys.BackingFinalizer) {
		return fmt.Errorf("backing claim %s has no finalizer %s", v.backing.Name, keys.BackingFinalizer)
	}
	if v.in == home {
		if v.backing.Namespace != fabric.Storage || source.Driver != v.real.Spec.CSI.Driver || source.VolumeHandle != v.real.Spec.CSI.VolumeHandle {
			return fmt.Errorf("volume %s at home is not that of twin %s/%s", v.virtual.Name, v.backing.Namespace, v.backing.Name)
		}
		return nil
	}
	if v.backing.Namespace != v.claim.Namespace || v.backing.Name != v.claim.Name {
		return fmt.Errorf("shadow %s/%s has not the name of its claim %s/%s", v.backing.Namespace, v.backing.Name, v.claim.Namespace, v.claim.Name)
	}
	if source.Driver != keys.Driver {
		return fmt.Errorf("volume %s, whose data is in %s, has the driver %s, with which it could be mounted at home", v.virtual.Name, v.in, source.Driver)
	}
	return nil
}

// unchanged checks that a claim still has the very volume that it had, and its pod
// runs on the node where that volume is.
func (s *story) unchanged(volumes ...*volume) probe {
	return func(ctx context.Context) error {
		for _, was := range volumes {
			is, err := s.find(ctx, was.claim.Namespace, was.claim.Name, was.pod)
			switch {
			case err != nil:
				return err
			case is.claim.UID != was.claim.UID || is.backing.UID != was.backing.UID || is.real.UID != was.real.UID:
				return fmt.Errorf("claim %s has another volume than before", was.claim.Name)
			case is.node != was.node:
				return fmt.Errorf("pod %s is on node %s instead of %s, where its volume is", was.pod, is.node, was.node)
			}
		}
		return nil
	}
}
