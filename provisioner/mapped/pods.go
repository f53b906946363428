package mapped

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/namespaces"
	"github.com/lodestone-storage/lodestone/provisioner/slim"
)

// Copied reports whether a copy of a home pod may run in a cluster: home lets
// the pod go only once it has read there that none does, and needs its rights
// for that. The virtual node of a cluster has the cluster's name.
func Copied(pod *slim.Pod, cluster string) bool {
	return pod.Node == cluster && slices.Contains(pod.Finalizers, keys.RemotePodFinalizer)
}

// PodChanged has a namespace looked at when a pod begins or ends to need it. Before
// is nil for a new pod, after for one that is gone. It does not block.
func (k *Keeper) PodChanged(before, after *slim.Pod) {
	either := after
	if either == nil {
		either = before
	}
	needed, needs := before != nil && Copied(before, k.Cluster), after != nil && Copied(after, k.Cluster)
	if needed != needs {
		k.queue.Add(namespaces.Remote(k.Strategy, either.Namespace, k.HomeID))
	}
}

// VolumeGone has the namespaces looked at that a virtual volume may have held. It
// does not block.
func (k *Keeper) VolumeGone() {
	for _, name := range k.Recorded() {
		k.queue.Add(name)
	}
}

// copiesPage is how many ShadowPods are looked at before the next ones are.
const copiesPage = 50

// copies says in a sentence which copies of home pods are left in a namespace that is
// not needed; empty for none. Those whose home pod is gone it ends: the virtual node
// does so too, but lets its session go with the last home pod, which a user may have
// given up while the cluster did not answer.
func (k *Keeper) copies(ctx context.Context, namespace string) (string, error) {
	list, err := k.Remote.ShadowPods(namespace).List(ctx, metav1.ListOptions{LabelSelector: keys.HomeID + "=" + k.HomeID, Limit: copiesPage})
	if err != nil {
		return "", fmt.Errorf("look for pods in namespace %s: %w", namespace, err)
	}
	moves, ending := false, false
	for i := range list.Items {
		shadow := &list.Items[i]
		if shadow.Labels[keys.MoveOf] != "" {
			// It has no home pod; who moves the volume ends it.
			moves = true
			continue
		}
		kept, err := k.endOrphan(ctx, shadow)
		if err != nil {
			return "", err
		}
		if kept {
			return fmt.Sprintf("pods of this cluster are left there in namespace %s: delete them at home", namespace), nil
		}
		ending = true
	}
	switch {
	case ending:
		return fmt.Sprintf("pods there in namespace %s that are gone at home are being ended", namespace), nil
	case moves:
		return fmt.Sprintf("a volume is being moved there in namespace %s: wait until its VolumeMove is over, or delete that", namespace), nil
	}
	return "", nil
}

// endOrphan deletes a ShadowPod whose home pod is gone; true when that is still there.
func (k *Keeper) endOrphan(ctx context.Context, shadow *remotev1alpha1.ShadowPod) (kept bool, _ error) {
	home := shadow.Spec.Home
	uid, err := k.HomePod(ctx, home.Namespace, home.Name)
	if err != nil {
		return false, fmt.Errorf("look for the home pod of ShadowPod %s/%s: %w", shadow.Namespace, shadow.Name, err)
	}
	if uid == home.UID && uid != "" {
		return true, nil
	}
	if shadow.DeletionTimestamp != nil {
		return false, nil
	}
	err = k.Remote.ShadowPods(shadow.Namespace).Delete(ctx, shadow.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &shadow.UID}})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return false, fmt.Errorf("delete ShadowPod %s/%s: %w", shadow.Namespace, shadow.Name, err)
	}
	return false, nil
}
