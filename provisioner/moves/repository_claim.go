package moves

import (
	"context"
	"path"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/moverepository"
	"github.com/lodestone-storage/lodestone/provisioner/backing"
	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
)

// repositoryPath is where movers have the claim that the content travels through.
const repositoryPath = "/repository"

// repositoryClaims looks at the claims of a name that the movers of both ends are to mount.
// Whether they lead to the same storage the movers try.
func (c *Controller) repositoryClaims(ctx context.Context, cluster, name string, known *record.Claim) (*moverepository.Repository, error) {
	for _, end := range []record.End{record.Source, record.Target} {
		ref := known.At(end).Ref
		at, why := c.reach(ref.Cluster)
		if why != "" {
			return nil, refuse("%s: wait until it is ready, and move again", why)
		}
		claim, err := claimAt(ctx, at, ref.Namespace, name)
		if err != nil {
			return nil, err
		}
		if wrong := repositoryWrong(claim); wrong != "" {
			return nil, refuse("RemoteCluster %s has the content of moves travel through a claim (spec.moveRepository), and claim %s/%s in cluster %s %s, and move again", cluster, ref.Namespace, name, ref.Cluster, wrong)
		}
	}
	return &moverepository.Repository{Claim: name}, nil
}

// repositoryWrong says why movers cannot use a claim for the content of moves, and what to
// do, as the end of a sentence; empty if they can.
func repositoryWrong(claim *corev1.PersistentVolumeClaim) string {
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

// mountRepository has a mover mount the claim that the content travels through, if that is
// one. It sees there what moves of its own namespace have, and at the target it only reads.
func (c *Controller) mountRepository(spec *corev1.PodSpec, r *record.Record, i int, end record.End) {
	store := r.Claims[i].Store
	if store == nil || store.Ticket.Claim == "" {
		return
	}
	mover := &spec.Containers[0]
	mover.Args = append(mover.Args, "--repository="+repositoryPath)
	mover.VolumeMounts = append(mover.VolumeMounts, corev1.VolumeMount{
		Name: "repository", MountPath: repositoryPath, SubPath: path.Join("lodestone-moves", c.Place.HomeID, r.Namespace), ReadOnly: end == record.Target,
	})
	spec.Volumes = append(spec.Volumes, corev1.Volume{
		Name: "repository", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: store.Ticket.Claim}},
	})
}
