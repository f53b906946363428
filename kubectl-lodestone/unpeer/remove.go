package unpeer

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/outcome"
	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// just makes a deletion that of the object that was looked at.
func just(uid types.UID) metav1.DeleteOptions {
	return metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(uid))}
}

// gone says whether the error of a get or a delete means that the object that
// was looked at is not there.
func gone(err error) bool { return apierrors.IsNotFound(err) || apierrors.IsConflict(err) }

// removeRemoteCluster deletes the RemoteCluster and waits until the programs of
// home have let it go.
func (u *unpeering) removeRemoteCluster(ctx context.Context, remote *v1alpha1.RemoteCluster) error {
	if remote.DeletionTimestamp == nil {
		if err := u.home.Remotes.Delete(ctx, remote.Name, just(remote.UID)); err != nil && !gone(err) {
			return u.home.Explain("delete RemoteCluster "+remote.Name, err)
		}
		u.Say("deleting RemoteCluster %q", remote.Name)
	}
	return u.Await(ctx, fmt.Sprintf("RemoteCluster %q to be gone", remote.Name), func(ctx context.Context) (string, bool, error) {
		now, err := u.home.Remotes.Get(ctx, remote.Name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err), err == nil && now.UID != remote.UID:
			return "", true, nil
		case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
			return "", false, u.home.Explain("get RemoteCluster "+remote.Name, err)
		case err != nil:
			return u.home.Explain("get RemoteCluster "+remote.Name, err).Error(), false, nil
		}
		return leaving(now), false, nil
	})
}

// leaving says what keeps a RemoteCluster.
func leaving(remote *v1alpha1.RemoteCluster) string {
	ready := meta.FindStatusCondition(remote.Status.Conditions, v1alpha1.Ready)
	node := meta.FindStatusCondition(remote.Status.Conditions, v1alpha1.VirtualNode)
	switch {
	case node != nil && slices.Contains(remote.Finalizers, keys.VirtualNodeFinalizer):
		return node.Message
	case ready != nil && ready.Reason == "Leaving":
		return ready.Message
	}
	return "it is held by " + strings.Join(remote.Finalizers, ", ") + "; if this lasts, see whether Lodestone runs at home (kubectl get pods -n lodestone-system)"
}

func (u *unpeering) removeSecret(ctx context.Context, secret *corev1.Secret) error {
	err := u.home.Client.CoreV1().Secrets(secret.Namespace).Delete(ctx, secret.Name, just(secret.UID))
	if err != nil && !gone(err) {
		return u.home.Explain("delete Secret "+secret.Namespace+"/"+secret.Name, err)
	}
	u.Say("deleted Secret %s/%s", secret.Namespace, secret.Name)
	return nil
}

// removeHomeCluster takes home's rights back in the remote cluster, or says how
// its owner does.
func (u *unpeering) removeHomeCluster(ctx context.Context) error {
	if u.remote == nil {
		id, err := u.home.HomeID(ctx, u.Namespace)
		if err != nil {
			return err
		}
		u.Say("home keeps its rights in the remote cluster until its owner takes them back there: kubectl delete homecluster %s", id)
		return nil
	}
	uid, err := u.home.UID(ctx)
	if err != nil {
		return err
	}
	homes := u.remote.Remote.HomeClusters()
	list, err := homes.List(ctx, metav1.ListOptions{})
	if apierrors.IsNotFound(err) {
		return nil // no agent, so no HomeClusters
	}
	if err != nil {
		return u.remote.Explain("list HomeClusters", err)
	}
	for _, found := range list.Items {
		if found.Spec.ClusterUID != uid {
			continue
		}
		if found.Status.Pods > 0 {
			return outcome.Refuse("HomeCluster %q in the cluster of context %q still has %d pods of home, which deleting it would end: wait until they have ended, then run the same command again", found.Name, u.remote.Context, found.Status.Pods)
		}
		if err := homes.Delete(ctx, found.Name, just(found.UID)); err != nil && !gone(err) {
			return u.remote.Explain("delete HomeCluster "+found.Name, err)
		}
		u.Say("deleting HomeCluster %q in the cluster of context %q", found.Name, u.remote.Context)
		if err := u.awaitGone(ctx, found); err != nil {
			return err
		}
	}
	return nil
}

// leftTime is how long is waited for what the remote agent removes there. What
// it leaves, for it holds data, is its owner's: home has no rights there any more.
const leftTime = 20 * time.Second

func (u *unpeering) awaitGone(ctx context.Context, home remotev1alpha1.HomeCluster) error {
	left := ""
	short, cancel := context.WithTimeout(ctx, leftTime)
	defer cancel()
	what := fmt.Sprintf("HomeCluster %q in the cluster of context %q to be gone", home.Name, u.remote.Context)
	err := u.Await(short, what, func(ctx context.Context) (string, bool, error) {
		now, err := u.remote.Remote.HomeClusters().Get(ctx, home.Name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err), err == nil && now.UID != home.UID:
			return "", true, nil
		case err != nil:
			return u.remote.Explain("get HomeCluster "+home.Name, err).Error(), false, nil
		}
		if ready := meta.FindStatusCondition(now.Status.Conditions, remotev1alpha1.Ready); ready != nil && ready.Reason == "Removing" {
			left = ready.Message
		}
		return left, false, nil
	})
	if err != nil && ctx.Err() == nil && left != "" {
		u.Say("HomeCluster %q stays in the cluster of context %q until its owner has dealt with what is left there: %s", home.Name, u.remote.Context, left)
		return nil
	}
	return err
}
