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

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/outcome"
	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/namespaces"
	"github.com/lodestone-storage/lodestone/pkg/virtualvolume"
)

// fromRemote imports a claim of a remote cluster, or goes on with that.
func (i *importing) fromRemote(ctx context.Context, what found) error {
	if i.remote == nil {
		return outcome.Misuse("the data is in cluster %q: give the kubeconfig context of that cluster with --remote-context", what.cluster)
	}
	there, err := i.place(ctx, what.cluster)
	if err != nil {
		return err
	}
	at := types.NamespacedName{Namespace: there, Name: what.name}
	a, err := i.observeAway(ctx, what.cluster, at)
	if err != nil {
		return err
	}
	if what.backing != "" && a.Shadow.UID != what.backing {
		return outcome.Refuse("claim %s in cluster %q does not have the data of that volume: say with -n which namespace at home belongs to it", at, what.cluster)
	}
	if i.Undo {
		return i.undoAway(ctx, a)
	}
	if !a.Begun() {
		if err := a.Judge(); err != nil {
			return err
		}
		if err := i.try(ctx, i.claimFor(a), nil); err != nil {
			return err
		}
		goes := fmt.Sprintf("Claim %s in cluster %q, which has it now, stays and goes with the virtual claim; nothing is copied.", at, what.cluster)
		if err := i.ask(a.Target, a.Real, a.Target, goes); err != nil {
			return err
		}
	}
	err = i.Await(ctx, "claim "+at.String()+" to be imported", func(ctx context.Context) (string, bool, error) {
		for {
			a, err := i.observeAway(ctx, what.cluster, at)
			if err != nil {
				return "", false, err
			}
			step, what, err := a.Next()
			if err != nil || step == Wait || step == Done {
				return what, step == Done, err
			}
			if err := i.actAway(ctx, a, step); err != nil {
				if changed(err) {
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

// place returns the namespace of a remote cluster that belongs to the namespace of
// home, once it is certain that it is that cluster and may be used.
func (i *importing) place(ctx context.Context, cluster string) (string, error) {
	remote, err := i.home.Remotes.Get(ctx, cluster, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return "", fmt.Errorf("there is no RemoteCluster %q at home: kubectl lodestone status lists them", cluster)
	case err != nil:
		return "", i.home.Explain("get RemoteCluster "+cluster, err)
	case remote.DeletionTimestamp != nil:
		return "", outcome.Refuse("RemoteCluster %q is being deleted and takes no new volumes", cluster)
	case !i.Undo && !i.class.Allows(cluster):
		return "", outcome.Refuse("storage class %q keeps its volumes out of cluster %q: choose a class whose parameter %s lists it", i.Class, cluster, keys.Clusters)
	}
	uid, err := i.remote.UID(ctx)
	if err != nil {
		return "", err
	}
	if remote.Status.ClusterUID != uid {
		return "", outcome.Refuse("context %q is not that of cluster %q: choose the right one with --remote-context", i.remote.Context, cluster)
	}
	home, err := i.home.Client.CoreV1().Namespaces().Get(ctx, i.namespace, metav1.GetOptions{})
	if err != nil {
		return "", i.home.Explain("get namespace "+i.namespace, err)
	}
	if !namespaces.MayUse(home, cluster) {
		return "", outcome.Refuse("namespace %q may not use cluster %q: label it %s=%s, and see its annotation %s", i.namespace, cluster, keys.Offload, keys.OffloadEnabled, keys.OffloadClusters)
	}
	there := namespaces.Remote(remote.Spec.Namespaces.Strategy, i.namespace, i.homeID)
	agent, err := i.remote.Serves(remotev1alpha1.GroupVersion.String(), "homeclusters")
	if err != nil || !agent {
		return there, err
	}
	given, err := i.remote.Client.CoreV1().Namespaces().Get(ctx, there, metav1.GetOptions{})
	if err != nil {
		return "", i.remote.Explain("get namespace "+there, err)
	}
	if given.Labels[keys.HomeID] != i.homeID {
		return "", outcome.Refuse("namespace %q of cluster %q was not given to this home, which could not delete the data there: copy it to a claim in a namespace that was", there, cluster)
	}
	return there, nil
}

// observeAway reads what both clusters hold of an import.
func (i *importing) observeAway(ctx context.Context, cluster string, at types.NamespacedName) (Away, error) {
	a := Away{Cluster: cluster, HomeID: i.homeID, Target: types.NamespacedName{Namespace: i.namespace, Name: at.Name}}
	var err error
	if a.Shadow, err = claimOf(ctx, i.remote, at); err != nil || a.Shadow == nil {
		if err == nil {
			err = a.Judge()
		}
		return a, err
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
	if a.Old, err = standsFor(ctx, i.home, cluster, a.Shadow.UID); err != nil {
		return a, err
	}
	if a.Old != nil && a.Virtual != nil && a.Old.UID == a.Virtual.UID {
		a.Old = nil
	}
	return a, nil
}

// claimFor returns the virtual claim to make. Nothing that a remote cluster says of
// a claim is copied but its form.
func (i *importing) claimFor(a Away) *corev1.PersistentVolumeClaim {
	like := &corev1.PersistentVolumeClaim{Spec: a.Shadow.Spec}
	return virtualClaim(a.Target, i.Class, remoteID(a.Cluster, a.Shadow), like, a.Real)
}

// actAway takes one step: one write.
func (i *importing) actAway(ctx context.Context, a Away, step Step) error {
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
		return i.make(ctx, i.claimFor(a))
	case Own:
		return i.patchShadow(ctx, a.Shadow, map[string]any{"labels": map[string]any{keys.ClaimUID: string(a.Claim.UID)}})
	case Publish:
		return i.publish(ctx, virtualvolume.Input{Claim: a.Claim, Cluster: a.Cluster, Backing: a.Shadow, Real: a.Real})
	case Clear:
		return i.clear(ctx, a.Claim)
	case End:
		return i.patchShadow(ctx, a.Shadow, map[string]any{"annotations": map[string]any{keys.Import: nil}})
	default:
		return fmt.Errorf("take step %q: there is none of that name in a remote cluster", step)
	}
}

// patchShadow changes a claim of a remote cluster if it is still as it was seen.
func (i *importing) patchShadow(ctx context.Context, shadow *corev1.PersistentVolumeClaim, metadata map[string]any) error {
	metadata["uid"], metadata["resourceVersion"] = shadow.UID, shadow.ResourceVersion
	patch, err := json.Marshal(map[string]any{"metadata": metadata})
	if err != nil {
		return fmt.Errorf("write the change of claim %s: %w", shadow.Name, err)
	}
	_, err = i.remote.Client.CoreV1().PersistentVolumeClaims(shadow.Namespace).Patch(ctx, shadow.Name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: fieldManager})
	return i.remote.Explain("change claim "+shadow.Namespace+"/"+shadow.Name, err)
}
