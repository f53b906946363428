package moves

import (
	"context"
	"crypto/rand"
	"fmt"
	"path"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/backing"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/moverapi"
	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
)

// storeFor returns the repository through which the content of the claim at an index is
// transferred: that of the target's RemoteCluster, else that of the source's; nil if
// neither has one. Within one cluster movers reach each other directly. For a block volume
// only differences are transferred, which restic cannot do.
func (c *Controller) storeFor(ctx context.Context, r *record.Record, i int, known *record.Claim) (*record.Store, error) {
	if known.Source.Ref.Cluster == known.Target.Ref.Cluster || isBlock(known.Volume) {
		return nil, nil
	}
	for _, cluster := range []string{known.Target.Ref.Cluster, known.Source.Ref.Cluster} {
		remote := c.Clusters.Object(cluster)
		if remote == nil || remote.Spec.MoveRepository == nil {
			continue
		}
		var repository *moverapi.Repository
		var err error
		if claim := remote.Spec.MoveRepository.ClaimName; claim != "" {
			repository, err = c.repositoryOfClaim(ctx, cluster, claim, known)
		} else {
			repository, err = c.repositoryOfSecret(ctx, cluster, remote.Spec.MoveRepository.SecretName)
		}
		if err != nil {
			return nil, err
		}
		return &record.Store{Cluster: cluster, Ticket: repository.For(r.KeysOf(i), rand.Text())}, nil
	}
	return nil, nil
}

// repositoryOfSecret reads the Secret of an object store.
func (c *Controller) repositoryOfSecret(ctx context.Context, cluster, name string) (*moverapi.Repository, error) {
	secret, err := c.Client.CoreV1().Secrets(c.Namespace).Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, refuse("RemoteCluster %s has the content of moves travel through an object store (spec.moveRepository), and there is no "+
			"Secret %s/%s that says which: create it, or take the field out, and move again",
			cluster, c.Namespace, name)
	case err != nil:
		return nil, fmt.Errorf("read the Secret of the object store for moves: %w", err)
	}
	repository, err := moverapi.ParseRepository(secret.Data)
	if err != nil {
		return nil, refuse("Secret %s/%s, which RemoteCluster %s names for the content of moves (spec.moveRepository), cannot be used: %v; "+
			"mend it, and move again", c.Namespace, name, cluster, err)
	}
	return repository, nil
}

// repositoryOfClaim checks the claims of this name that the movers of both ends would
// mount. Whether they lead to the same storage is tested by the movers.
func (c *Controller) repositoryOfClaim(ctx context.Context, cluster, name string, known *record.Claim) (*moverapi.Repository, error) {
	for _, end := range []record.End{record.Source, record.Target} {
		ref := known.At(end).Ref
		at, why := c.sites.Reach(ref.Cluster)
		if why != "" {
			return nil, refuse("%s: wait until it is ready, and move again", why)
		}
		claim, err := at.Claim(ctx, ref.Namespace, name)
		if err != nil {
			return nil, err
		}
		if wrong := whyUnusableRepository(claim); wrong != "" {
			return nil, refuse("RemoteCluster %s has the content of moves travel through a claim (spec.moveRepository), and claim %s/%s in "+
				"cluster %s %s, and move again", cluster, ref.Namespace, name, ref.Cluster, wrong)
		}
	}
	return &moverapi.Repository{Claim: name}, nil
}

// whyUnusableRepository says, as the end of a sentence, why movers cannot use a claim as a
// repository and what to do; empty if they can.
func whyUnusableRepository(claim *corev1.PersistentVolumeClaim) string {
	switch {
	case claim == nil:
		return "does not exist: create it, or take the field out"
	case claim.Labels[keys.ClaimUID] != "" || claim.Labels[keys.MoveOf] != "" || backing.Protected(claim):
		return "holds the data of somebody's volume: name one that holds nothing else"
	case claim.DeletionTimestamp != nil:
		return "is being deleted: create it again once it is gone"
	case ptr.Deref(claim.Spec.VolumeMode, corev1.PersistentVolumeFilesystem) != corev1.PersistentVolumeFilesystem:
		return "is a block device: name one with a file system"
	case !slices.Contains(claim.Spec.AccessModes, corev1.ReadWriteMany):
		return "is not ReadWriteMany, so that movers on several nodes could not use it: name one that is"
	case claim.Status.Phase != corev1.ClaimBound:
		return "is not bound to a volume: see its events, wait until it is"
	}
	return ""
}

// repositoryPath is the mount path of a repository claim in movers.
const repositoryPath = "/repository"

// mountRepository mounts the repository claim in a mover, if the repository is a claim. The
// mover sees the data of moves of its own namespace only; at the target the mount is
// read-only.
func (c *Controller) mountRepository(spec *corev1.PodSpec, r *record.Record, i int, end record.End) {
	store := r.Claims[i].Store
	if store == nil || store.Ticket.Claim == "" {
		return
	}
	mover := &spec.Containers[0]
	mover.Args = append(mover.Args, "--repository="+repositoryPath)
	mover.VolumeMounts = append(mover.VolumeMounts, corev1.VolumeMount{
		Name: "repository", MountPath: repositoryPath, SubPath: path.Join("lodestone-moves", c.Place.HomeID, r.Namespace),
		ReadOnly: end == record.Target,
	})
	spec.Volumes = append(spec.Volumes, corev1.Volume{
		Name:         "repository",
		VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: store.Ticket.Claim}},
	})
}
