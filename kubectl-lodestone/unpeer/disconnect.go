package unpeer

import (
	"context"
	"fmt"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/cli"
	"github.com/lodestone-storage/lodestone/kubectl-lodestone/credentials"
	"github.com/lodestone-storage/lodestone/kubectl-lodestone/replica"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// disconnectTime is the least time that home's programs get to close their connections to a cluster
// whose credentials were removed. A program whose lease was not renewed for that long does not run.
const disconnectTime = 20 * time.Second

// program is one of home's programs that work in remote clusters.
type program struct {
	// name is that of its Deployment and of its leader's Lease.
	name string
	// could is what the program could still do there, in words.
	could string
	// disconnected reports whether the program has no connection to the cluster of a RemoteCluster
	// whose kubeconfig was removed.
	disconnected func(*v1alpha1.RemoteCluster) bool
}

// programs returns home's programs that work in remote clusters.
func programs() []program {
	return []program{
		{name: "lodestone-virtualnode", could: "end pods", disconnected: nodeDisconnected},
		{name: "lodestone-provisioner", could: "delete data", disconnected: provisionerDisconnected},
	}
}

// nodeDisconnected says so of the program for virtual nodes: it has its finalizer on the
// RemoteCluster as long as it may have a session, and sets a condition when a session has ended
// because there is no kubeconfig.
func nodeDisconnected(remote *v1alpha1.RemoteCluster) bool {
	said := meta.FindStatusCondition(remote.Status.Conditions, v1alpha1.VirtualNode)
	return !slices.Contains(remote.Finalizers, keys.VirtualNodeFinalizer) || said != nil && said.Reason == "BadKubeconfig"
}

// provisionerDisconnected says so of the provisioner: it reads no credentials once it has
// disconnected. Its condition Ready then says so, but not while the RemoteCluster is being deleted;
// in that case it removes its finalizer when it has nothing left to do there, and sets no
// condition.
func provisionerDisconnected(remote *v1alpha1.RemoteCluster) bool {
	if remote.DeletionTimestamp != nil && !slices.Contains(remote.Finalizers, keys.VolumesFinalizer) {
		return true
	}
	said := meta.FindStatusCondition(remote.Status.Conditions, v1alpha1.CredentialsValid)
	return said == nil || said.Reason == "NotRead"
}

// connected returns the programs that may still be connected to the cluster.
func connected(remote *v1alpha1.RemoteCluster) []program {
	return slices.DeleteFunc(programs(), func(p program) bool { return p.disconnected(remote) })
}

// disconnect removes the kubeconfig from the Secret, and waits until home's programs have closed
// their connections to the cluster.
func (u *unpeering) disconnect(ctx context.Context, remote *v1alpha1.RemoteCluster) error {
	if remote == nil {
		return nil
	}
	if err := u.removeKubeconfig(ctx, remote.Spec.KubeconfigSecretRef); err != nil {
		return err
	}
	before, enough := map[string]lease{}, disconnectTime
	for _, p := range programs() {
		found, err := u.lease(ctx, p.name)
		if err != nil {
			return err
		}
		before[p.name] = found
		enough = max(enough, found.duration+disconnectTime/4)
	}
	left := connected(remote)
	short, cancel := context.WithTimeout(ctx, enough)
	defer cancel()
	err := u.Await(short, "home's programs to let go of the cluster", func(ctx context.Context) (string, bool, error) {
		now, err := u.home.Remotes.Get(ctx, remote.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			left = nil
			return "", true, nil
		}
		if err != nil {
			return err.Error(), false, nil //nolint:nilerr // it may be away for a moment
		}
		left = connected(now)
		return "", len(left) == 0, nil
	})
	if err == nil || ctx.Err() != nil {
		return err
	}
	for _, p := range left {
		runs, err := u.runs(ctx, p.name, before[p.name])
		if err != nil {
			return err
		}
		if runs {
			return fmt.Errorf("home's program %s runs but has not let go of %q within %s, so it could still %s there, and nothing but the "+
				"credentials was removed: see its log, or stop it (kubectl scale deployment %s -n %s --replicas=0), then run the same command again",
				p.name, u.name, replica.Short(enough), p.could, p.name, u.Namespace)
		}
		u.Say("home's program %s does not run, so it does nothing there", p.name)
	}
	return nil
}

// keyOf returns the key of a Secret that holds the kubeconfig.
func keyOf(ref v1alpha1.SecretKeyRef) string {
	if ref.Key != "" {
		return ref.Key
	}
	return credentials.Key
}

// forgottenKey returns the key of the Secret under which a kubeconfig is stored that no program may
// use any more.
func forgottenKey(ref v1alpha1.SecretKeyRef) string { return keyOf(ref) + ".forgotten" }

// removeKubeconfig removes the kubeconfig from the Secret. One that peer did not make stays there
// under the key for forgotten ones.
func (u *unpeering) removeKubeconfig(ctx context.Context, ref v1alpha1.SecretKeyRef) error {
	secrets, taken := u.home.Client.CoreV1().Secrets(ref.Namespace), false
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		secret, err := secrets.Get(ctx, ref.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if taken = removeKey(secret, ref, u.userSecret); !taken {
			return nil
		}
		_, err = secrets.Update(ctx, secret, metav1.UpdateOptions{})
		return err
	})
	switch {
	case err != nil && !apierrors.IsNotFound(err):
		return u.home.Explain("take the credentials out of Secret "+ref.Namespace+"/"+ref.Name, err)
	case err == nil && taken:
		u.Say("took the credentials out of Secret %s/%s", ref.Namespace, ref.Name)
	}
	return nil
}

// removeKey removes the kubeconfig from a Secret, and reports whether it was there. keep stores it
// under the key for forgotten ones.
func removeKey(secret *corev1.Secret, ref v1alpha1.SecretKeyRef, keep bool) bool {
	kubeconfig, there := secret.Data[keyOf(ref)]
	if !there {
		return false // an earlier run removed it
	}
	if keep {
		secret.Data[forgottenKey(ref)] = kubeconfig
	}
	delete(secret.Data, keyOf(ref))
	return true
}

// checkNotShared returns an error if another RemoteCluster uses the same kubeconfig.
func (u *unpeering) checkNotShared(ctx context.Context, remote *v1alpha1.RemoteCluster, deletes bool) error {
	if remote == nil {
		return nil
	}
	all, err := u.home.Remotes.List(ctx, metav1.ListOptions{})
	if err != nil {
		return u.home.Explain("list RemoteClusters", err)
	}
	ref := remote.Spec.KubeconfigSecretRef
	if other := otherUser(remote, all.Items, deletes); other != "" {
		return cli.Refuse("RemoteCluster %q uses the kubeconfig in Secret %s/%s too and would lose it, so nothing was changed: give that one a "+
			"Secret of its own, then run the same command again", other, ref.Namespace, ref.Name)
	}
	return nil
}

// otherUser returns the name of another RemoteCluster that names the same key of the
// same Secret or, where the Secret is deleted, any key of it; empty if none does.
func otherUser(remote *v1alpha1.RemoteCluster, all []v1alpha1.RemoteCluster, deletes bool) string {
	ref := remote.Spec.KubeconfigSecretRef
	for _, other := range all {
		its := other.Spec.KubeconfigSecretRef
		if other.Name != remote.Name && its.Namespace == ref.Namespace && its.Name == ref.Name && (deletes || keyOf(its) == keyOf(ref)) {
			return other.Name
		}
	}
	return ""
}

// lease is what is read of the Lease of a program's leader.
type lease struct {
	exists   bool
	held     bool
	renewed  time.Time
	duration time.Duration
}

func leaseOf(found *coordinationv1.Lease) lease {
	return lease{
		exists:   true,
		held:     ptr.Deref(found.Spec.HolderIdentity, "") != "",
		renewed:  ptr.Deref(found.Spec.RenewTime, metav1.MicroTime{}).Time,
		duration: time.Duration(ptr.Deref(found.Spec.LeaseDurationSeconds, 0)) * time.Second,
	}
}

// lease reads the Lease of a program's leader.
func (u *unpeering) lease(ctx context.Context, name string) (lease, error) {
	found, err := u.home.Client.CoordinationV1().Leases(u.Namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return lease{}, nil
	}
	if err != nil {
		return lease{}, u.home.Explain("get Lease "+u.Namespace+"/"+name, err)
	}
	return leaseOf(found), nil
}

// runs reports whether a program of home runs: its Lease was renewed since before was read, or
// there is no Lease, but there are pods of it. It compares no clocks.
func (u *unpeering) runs(ctx context.Context, name string, before lease) (bool, error) {
	now, err := u.lease(ctx, name)
	if err != nil {
		return false, err
	}
	if now.exists {
		return now.held && !now.renewed.Equal(before.renewed), nil
	}
	deployment, err := u.home.Client.AppsV1().Deployments(u.Namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, u.home.Explain("get Deployment "+u.Namespace+"/"+name, err)
	}
	return deployment.Status.Replicas > 0, nil
}
