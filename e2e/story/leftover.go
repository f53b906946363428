package story

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// gone checks that nothing is left of volumes, in any cluster.
func (s *story) gone(volumes ...*volume) probe {
	return func(ctx context.Context) error {
		for _, was := range volumes {
			cluster := s.cluster(was.in).Client().CoreV1()
			_, err := s.fabric.Home.Client().CoreV1().PersistentVolumes().Get(ctx, was.virtual.Name, metav1.GetOptions{})
			if !apierrors.IsNotFound(err) {
				return fmt.Errorf("virtual volume %s is still there (%w)", was.virtual.Name, orExists(err))
			}
			claim, err := cluster.PersistentVolumeClaims(was.backing.Namespace).Get(ctx, was.backing.Name, metav1.GetOptions{})
			if !apierrors.IsNotFound(err) && (err != nil || claim.UID == was.backing.UID) {
				return fmt.Errorf("backing claim %s in %s is still there (%w)", was.backing.Name, was.in, orExists(err))
			}
			_, err = cluster.PersistentVolumes().Get(ctx, was.real.Name, metav1.GetOptions{})
			if !apierrors.IsNotFound(err) {
				return fmt.Errorf("real volume %s in %s is still there (%w)", was.real.Name, was.in, orExists(err))
			}
			if s.storage(was.in).Exists(was.real.Spec.CSI.VolumeHandle) {
				return fmt.Errorf("the storage of %s still has volume %s", was.in, was.real.Spec.CSI.VolumeHandle)
			}
		}
		return nil
	}
}

var errExists = errors.New("it exists")

// orExists is why something is not known to be gone.
func orExists(err error) error {
	if err == nil {
		return errExists
	}
	return err
}

// kept checks that released volumes and all behind them are still there.
func (s *story) kept(volumes ...*volume) probe {
	return func(ctx context.Context) error {
		for _, was := range volumes {
			virtual, err := s.fabric.Home.Client().CoreV1().PersistentVolumes().Get(ctx, was.virtual.Name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			if virtual.Status.Phase != corev1.VolumeReleased {
				return fmt.Errorf("virtual volume %s is %s", virtual.Name, virtual.Status.Phase)
			}
			claim, err := s.cluster(was.in).Client().CoreV1().PersistentVolumeClaims(was.backing.Namespace).Get(ctx, was.backing.Name, metav1.GetOptions{})
			switch {
			case err != nil:
				return err
			case claim.UID != was.backing.UID || claim.Status.Phase != corev1.ClaimBound || claim.DeletionTimestamp != nil:
				return fmt.Errorf("backing claim %s in %s is not kept as it was", claim.Name, was.in)
			case !s.storage(was.in).Exists(was.real.Spec.CSI.VolumeHandle):
				return fmt.Errorf("the storage of %s has lost volume %s", was.in, was.real.Spec.CSI.VolumeHandle)
			}
		}
		return nil
	}
}

// balanced checks that a cluster has a backing claim and a real volume for each
// virtual volume whose data it holds, and no more.
func (s *story) balanced(in where) probe {
	return func(ctx context.Context) error {
		volumes, err := s.fabric.Home.Client().CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{LabelSelector: keys.Cluster + "=" + string(in)})
		if err != nil {
			return err
		}
		claims, err := s.cluster(in).Client().CoreV1().PersistentVolumeClaims("").List(ctx, metav1.ListOptions{LabelSelector: keys.ClaimUID})
		if err != nil {
			return err
		}
		if err := counted("backing claims in "+string(in), len(claims.Items), len(volumes.Items)); err != nil {
			return err
		}
		return counted("real volumes in "+string(in), len(s.storage(in).Volumes()), len(volumes.Items))
	}
}
