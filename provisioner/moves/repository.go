package moves

import (
	"context"
	"crypto/rand"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/moverepository"
	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
)

// storeFor returns the repository that the content of the claim at an index is to travel
// through: that of the target's RemoteCluster, else that of the source's; nil where neither
// names one. Within one cluster movers reach each other. Of a block volume only what
// differs travels, which restic cannot tell.
func (c *Controller) storeFor(ctx context.Context, r *record.Record, i int, known *record.Claim) (*record.Store, error) {
	if known.Source.Ref.Cluster == known.Target.Ref.Cluster || isBlock(known.Volume) {
		return nil, nil
	}
	for _, cluster := range []string{known.Target.Ref.Cluster, known.Source.Ref.Cluster} {
		remote := c.Clusters.Object(cluster)
		if remote == nil || remote.Spec.MoveRepository == nil {
			continue
		}
		var repository *moverepository.Repository
		var err error
		if claim := remote.Spec.MoveRepository.ClaimName; claim != "" {
			repository, err = c.repositoryClaims(ctx, cluster, claim, known)
		} else {
			repository, err = c.repository(ctx, cluster, remote.Spec.MoveRepository.SecretName)
		}
		if err != nil {
			return nil, err
		}
		return &record.Store{Cluster: cluster, Ticket: repository.For(r.KeysOf(i), rand.Text())}, nil
	}
	return nil, nil
}

// repository reads the Secret of an object store.
func (c *Controller) repository(ctx context.Context, cluster, name string) (*moverepository.Repository, error) {
	secret, err := c.Client.CoreV1().Secrets(c.Namespace).Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, refuse("RemoteCluster %s has the content of moves travel through an object store (spec.moveRepository), and there is no Secret %s/%s that says which: create it, or take the field out, and move again",
			cluster, c.Namespace, name)
	case err != nil:
		return nil, fmt.Errorf("read the Secret of the object store for moves: %w", err)
	}
	repository, err := moverepository.Parse(secret.Data)
	if err != nil {
		return nil, refuse("Secret %s/%s, which RemoteCluster %s names for the content of moves (spec.moveRepository), cannot be used: %v; mend it, and move again", c.Namespace, name, cluster, err)
	}
	return repository, nil
}

// isBlock says whether a volume is a block device.
func isBlock(volume *corev1.PersistentVolume) bool {
	return volume != nil && ptr.Deref(volume.Spec.VolumeMode, corev1.PersistentVolumeFilesystem) == corev1.PersistentVolumeBlock
}
