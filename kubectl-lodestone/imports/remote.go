package imports

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/cli"
	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/backing"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/remotecluster"
)

// fromRemote imports a claim of a remote cluster, or continues an import of it.
func (i *importing) fromRemote(ctx context.Context, what source) error {
	if i.remote == nil {
		return cli.Misuse("the data is in cluster %q: give the kubeconfig context of that cluster with --remote-context", what.cluster)
	}
	there, err := i.remoteNamespace(ctx, what.cluster)
	if err != nil {
		return err
	}
	at := types.NamespacedName{Namespace: there, Name: what.name}
	a, err := i.observeRemote(ctx, what.cluster, at)
	if err != nil {
		return err
	}
	if what.backing != "" && a.Shadow.UID != what.backing {
		return cli.Refuse("claim %s in cluster %q does not have the data of that volume: say with -n which namespace at home belongs to it", at,
			what.cluster)
	}
	if i.Undo {
		return i.undoRemote(ctx, a)
	}
	if !a.Begun() {
		if err := a.Check(); err != nil {
			return err
		}
		if err := i.dryRunClaim(ctx, i.claimFor(a), nil); err != nil {
			return err
		}
		goes := fmt.Sprintf("Claim %s in cluster %q, which has it now, stays and goes with the virtual claim; nothing is copied.", at,
			what.cluster)
		if err := i.confirm(ctx, a.Target, a.Real, a.Target, goes); err != nil {
			return err
		}
	}
	err = i.Await(ctx, "claim "+at.String()+" to be imported", func(ctx context.Context) (string, bool, error) {
		for {
			a, err := i.observeRemote(ctx, what.cluster, at)
			if err != nil {
				return "", false, err
			}
			step, what, err := a.Next()
			if err != nil || step == Wait || step == Done {
				return what, step == Done, err
			}
			if err := i.actRemote(ctx, a, step); err != nil {
				if isStale(err) {
					return err.Error(), false, nil
				}
				return "", false, err
			}
		}
	})
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(i.streams.Out, "persistentvolumeclaim/%s imported\n", what.as)
	return err
}

// remoteNamespace returns the namespace of a remote cluster that belongs to the namespace of home,
// after a check that it is the right cluster and that the namespace may be used.
func (i *importing) remoteNamespace(ctx context.Context, cluster string) (string, error) {
	remote, err := i.home.Remotes.Get(ctx, cluster, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return "", i.home.Missing(ctx, cli.RemoteCluster, "", cluster)
	case err != nil:
		return "", i.home.Explain("get RemoteCluster "+cluster, err)
	case remote.DeletionTimestamp != nil:
		return "", cli.Refuse("RemoteCluster %q is being deleted and takes no new volumes", cluster)
	case !i.Undo && !i.class.Allows(cluster):
		return "", cli.Refuse("storage class %q keeps its volumes out of cluster %q: choose a class whose parameter %s lists it", i.Class,
			cluster, keys.Clusters)
	}
	uid, err := i.remote.UID(ctx)
	if err != nil {
		return "", err
	}
	if remote.Status.ClusterUID != uid {
		return "", cli.Refuse("context %q is not that of cluster %q: choose the right one with --remote-context", i.remote.Context, cluster)
	}
	home, err := i.home.Client.CoreV1().Namespaces().Get(ctx, i.namespace, metav1.GetOptions{})
	if err != nil {
		return "", i.home.Explain("get namespace "+i.namespace, err)
	}
	if !remotecluster.MayUse(home, cluster) {
		return "", cli.Refuse("namespace %q may not use cluster %q: label it %s=%s, and see its annotation %s", i.namespace, cluster,
			keys.Offload, keys.OffloadEnabled, keys.OffloadClusters)
	}
	there := remotecluster.Namespace(remote.Spec.Namespaces.Strategy, i.namespace, i.homeID)
	agent, err := i.remote.Serves(remotev1alpha1.GroupVersion.String(), "homeclusters")
	if err != nil || !agent {
		return there, err
	}
	given, err := i.remote.Client.CoreV1().Namespaces().Get(ctx, there, metav1.GetOptions{})
	if err != nil {
		return "", i.remote.Explain("get namespace "+there, err)
	}
	if given.Labels[keys.HomeID] != i.homeID {
		return "", cli.Refuse("namespace %q of cluster %q was not given to this home, which could not delete the data there: copy it to a "+
			"claim in a namespace that was", there, cluster)
	}
	return there, nil
}

// observeRemote reads the state of an import in both clusters.
func (i *importing) observeRemote(ctx context.Context, cluster string, at types.NamespacedName) (Remote, error) {
	a := Remote{Cluster: cluster, HomeID: i.homeID, Target: types.NamespacedName{Namespace: i.namespace, Name: at.Name}}
	var err error
	if a.ClusterUID, err = i.remote.UID(ctx); err != nil {
		return a, err
	}
	a.Shadow, err = claimOf(ctx, i.remote, at)
	switch {
	case err != nil:
		return a, err
	case a.Shadow == nil:
		return a, fmt.Errorf("in cluster %q %w", cluster, i.remote.Missing(ctx, cli.Claim, at.Namespace, at.Name))
	}
	if a.Shadow.Spec.VolumeName != "" {
		if a.Real, err = volumeOf(ctx, i.remote, a.Shadow.Spec.VolumeName); err != nil {
			return a, err
		}
	}
	if a.Users, err = usersOf(ctx, i.remote, at); err != nil {
		return a, err
	}
	if a.Claim, err = claimOf(ctx, i.home, a.Target); err != nil {
		return a, err
	}
	if a.Claim != nil {
		if a.Virtual, err = volumeOf(ctx, i.home, "pvc-"+string(a.Claim.UID)); err != nil {
			return a, err
		}
	}
	if a.Owner, err = ownerOf(ctx, i.home, a.Shadow); err != nil {
		return a, err
	}
	if a.Old, err = virtualVolumeOf(ctx, i.home, cluster, a.Shadow.UID); err != nil {
		return a, err
	}
	if a.Old != nil && a.Virtual != nil && a.Old.UID == a.Virtual.UID {
		a.Old = nil
	}
	return a, nil
}

// claimFor returns the virtual claim to make. Of the claim in the remote cluster it copies only the
// spec that gives it its form, such as size and access modes; its labels and annotations are not
// trusted.
func (i *importing) claimFor(a Remote) *corev1.PersistentVolumeClaim {
	like := &corev1.PersistentVolumeClaim{Spec: a.Shadow.Spec}
	return virtualClaim(a.Target, i.Class, remoteID(a.Cluster, a.Shadow), like, a.Real)
}

// actRemote takes one step: one write.
func (i *importing) actRemote(ctx context.Context, a Remote, step Step) error {
	switch step {
	case Mark:
		kept := a.Shadow.Finalizers
		if !slices.Contains(kept, keys.BackingFinalizer) {
			kept = append(slices.Clone(kept), keys.BackingFinalizer)
		}
		i.Say("claim %s/%s in cluster %q is kept from now on", a.Shadow.Namespace, a.Shadow.Name, a.Cluster)
		annotations := map[string]any{keys.Claim: a.Target.String(), keys.Unpublished: nil}
		if a.Shadow.Labels[keys.HomeID] == "" {
			annotations[keys.Import] = a.HomeID
		}
		return i.patchShadow(ctx, a.Shadow, map[string]any{
			"finalizers": kept, "labels": map[string]any{keys.HomeID: a.HomeID}, "annotations": annotations,
		})
	case DropOld:
		i.Say("deleting volume %s, which stood for the data before", a.Old.Name)
		return dropOld(ctx, i.home, a.Old)
	case Make:
		return i.createClaim(ctx, i.claimFor(a))
	case Own:
		return i.patchShadow(ctx, a.Shadow, map[string]any{"labels": map[string]any{keys.ClaimUID: string(a.Claim.UID)}})
	case Publish:
		return i.publish(ctx, backing.VolumeInput{Claim: a.Claim, Cluster: a.Cluster, ClusterUID: a.ClusterUID, Backing: a.Shadow, Real: a.Real})
	case Clear:
		return i.removeRecord(ctx, a.Claim)
	case End:
		return i.patchShadow(ctx, a.Shadow, map[string]any{"annotations": map[string]any{keys.Import: nil}})
	default:
		return fmt.Errorf("take step %q: there is none of that name in a remote cluster", step)
	}
}

// patchShadow changes a claim of a remote cluster if it has not changed since it was read.
func (i *importing) patchShadow(ctx context.Context, shadow *corev1.PersistentVolumeClaim, metadata map[string]any) error {
	metadata["uid"], metadata["resourceVersion"] = shadow.UID, shadow.ResourceVersion
	patch, err := json.Marshal(map[string]any{"metadata": metadata})
	if err != nil {
		return fmt.Errorf("write the change of claim %s: %w", shadow.Name, err)
	}
	_, err = i.remote.Client.CoreV1().PersistentVolumeClaims(shadow.Namespace).Patch(ctx, shadow.Name, types.MergePatchType, patch,
		metav1.PatchOptions{FieldManager: fieldManager})
	return i.remote.Explain("change claim "+shadow.Namespace+"/"+shadow.Name, err)
}

// The steps that undo an import from a remote cluster.
const (
	// Unmark removes our marks from the claim there.
	Unmark Step = "Unmark"
	// Unmake deletes the virtual claim, which has no volume.
	Unmake Step = "Unmake"
)

// NextUndo returns the next step of undoing an import, which is possible until there is a virtual
// volume. First the claim there is unmarked: while it is marked as that of the virtual claim, that
// one must not be deleted. It is pure.
func (a Remote) NextUndo() (Step, error) {
	name := a.Shadow.Namespace + "/" + a.Shadow.Name
	made := a.Claim != nil && a.ours()
	switch home := a.Shadow.Labels[keys.HomeID]; {
	case home != "" && home != a.HomeID:
		return "", cli.Refuse("claim %s in cluster %q belongs to home cluster %q: no import of this home is to undo", name, a.Cluster, home)
	case made && a.Virtual != nil:
		return "", cli.Refuse("claim %s has its volume, so the import can only go on: run the same command without --undo; to have the data no "+
			"longer at home, delete the virtual claim, with policy Retain", a.Target)
	case a.Owner != nil && !made:
		return "", cli.Refuse("claim %s in cluster %q is that of virtual claim %s: there is nothing to undo", name, a.Cluster, a.Target)
	case a.Shadow.DeletionTimestamp != nil:
		return "", cli.Refuse("claim %s in cluster %q is being deleted, and its data would go if the import let go of it: copy the data, or "+
			"have its volume kept with policy Retain and take the finalizer %s off", name, a.Cluster, keys.BackingFinalizer)
	case a.Shadow.Annotations[keys.Import] == a.HomeID:
		return Unmark, nil
	case made && home == a.HomeID:
		return "", cli.Refuse("claim %s in cluster %q was kept there for this home before, so the import can only go on: run the same command "+
			"without --undo", name, a.Cluster)
	case made && a.Claim.DeletionTimestamp == nil:
		return Unmake, nil
	}
	return Done, nil
}

func (i *importing) undoRemote(ctx context.Context, a Remote) error {
	at := a.Shadow.Namespace + "/" + a.Shadow.Name
	for began := false; ; began = true {
		step, err := a.NextUndo()
		switch {
		case err != nil:
			return err
		case step == Done && !began:
			return fmt.Errorf("no import of claim %s in cluster %q is under way that could be undone", at, a.Cluster)
		case step == Done:
			_, err := fmt.Fprintf(i.streams.Out, "the import of persistentvolumeclaim/%s is undone\n", a.Shadow.Name)
			return err
		case step == Unmark:
			kept := slices.DeleteFunc(slices.Clone(a.Shadow.Finalizers), func(f string) bool { return f == keys.BackingFinalizer })
			err = i.patchShadow(ctx, a.Shadow, map[string]any{
				"finalizers": kept, "labels": map[string]any{keys.HomeID: nil, keys.ClaimUID: nil},
				"annotations": map[string]any{keys.Claim: nil, keys.Import: nil},
			})
		case step == Unmake:
			claims := i.home.Client.CoreV1().PersistentVolumeClaims(a.Claim.Namespace)
			err = i.home.Explain("delete claim "+a.Target.String(), claims.Delete(ctx, a.Claim.Name, deleteOptions(a.Claim)))
		}
		if err != nil && !isStale(err) {
			return err
		}
		if a, err = i.observeRemote(ctx, a.Cluster, backing.RefTo(a.Cluster, a.Shadow).Key()); err != nil {
			return err
		}
	}
}
