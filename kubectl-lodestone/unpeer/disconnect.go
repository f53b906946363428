package unpeer

import (
	"context"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// disconnectTime is how long home's programs may at least take to let go of
// a cluster whose credentials are gone. One whose lease nobody renews for that
// long does not run.
const disconnectTime = 20 * time.Second

// program is one of home's programs that work in remote clusters.
type program struct {
	// name is that of its Deployment and of its leader's Lease.
	name string
	// could is what it could still do there.
	could string
	// letGo says whether it has no connection to the cluster of a RemoteCluster
	// that has no kubeconfig any more.
	letGo func(*v1alpha1.RemoteCluster) bool
}

// programs returns home's programs that work in remote clusters.
func programs() []program {
	return []program{
		{name: "lodestone-virtualnode", could: "end pods", letGo: nodeLetGo},
		{name: "lodestone-provisioner", could: "delete data", letGo: volumesLetGo},
	}
}

// nodeLetGo: the program for virtual nodes holds its finalizer as long as it may
// have a session, and says when one has ended for want of a kubeconfig.
func nodeLetGo(remote *v1alpha1.RemoteCluster) bool {
	said := meta.FindStatusCondition(remote.Status.Conditions, v1alpha1.VirtualNode)
	return !slices.Contains(remote.Finalizers, keys.VirtualNodeFinalizer) || said != nil && said.Reason == "BadKubeconfig"
}

// volumesLetGo: the provisioner reads no credentials once it has disconnected. Its
// condition Ready says so too, but not while the RemoteCluster is being deleted;
// then it takes its finalizer off when it has nothing left to do there, and says
// no more.
func volumesLetGo(remote *v1alpha1.RemoteCluster) bool {
	if remote.DeletionTimestamp != nil && !slices.Contains(remote.Finalizers, keys.VolumesFinalizer) {
		return true
	}
	said := meta.FindStatusCondition(remote.Status.Conditions, v1alpha1.CredentialsValid)
	return said == nil || said.Reason == "NotRead"
}

// connected returns the programs that may still be connected to the cluster.
func connected(remote *v1alpha1.RemoteCluster) []program {
	return slices.DeleteFunc(programs(), func(p program) bool { return p.letGo(remote) })
}

// disconnect takes the kubeconfig out of the Secret, and waits until home's
// programs have no connection to the cluster any more.
func (u *unpeering) disconnect(ctx context.Context, remote *v1alpha1.RemoteCluster) error {
	if remote == nil {
		return nil
	}
	if err := u.takeKubeconfig(ctx, remote.Spec.KubeconfigSecretRef); err != nil {
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
			return fmt.Errorf("home's program %s runs but has not let go of %q within %v, so it could still %s there, and nothing but the credentials was removed: see its log, or stop it (kubectl scale deployment %s -n %s --replicas=0), then run the same command again",
				p.name, u.name, enough, p.could, p.name, u.Namespace)
		}
		u.Say("home's program %s does not run, so it does nothing there", p.name)
	}
	return nil
}
