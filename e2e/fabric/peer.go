package fabric

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/lodestone-storage/lodestone/e2e/testbed"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// Identity of the home cluster in a remote one, as deploy/remote-volumes makes it.
const (
	remoteNamespace = "lodestone-volumes"
	remoteAccount   = "lodestone-home"
	claimsRole      = "lodestone-home-claims"
)

// WestUser is the user name of home's identity in west.
const WestUser = "system:serviceaccount:" + remoteNamespace + ":" + remoteAccount

// Peer makes home know west: the kubeconfig Secret and the RemoteCluster, with
// the rights that deploy/remote-volumes gives.
func (f *Fabric) Peer(ctx context.Context) error {
	kubeconfig, err := f.WestKubeconfig(ctx)
	if err != nil {
		return err
	}
	return f.Register(ctx, "west", kubeconfig)
}

// WestKubeconfig returns home's kubeconfig of west.
func (f *Fabric) WestKubeconfig(ctx context.Context) ([]byte, error) {
	kubeconfig, err := f.West.ServiceAccountKubeconfig(ctx, remoteNamespace, remoteAccount)
	if err != nil {
		return nil, fmt.Errorf("get home's kubeconfig of west: %w", err)
	}
	return kubeconfig, nil
}

// Register makes the Secret and the RemoteCluster of a cluster.
func (f *Fabric) Register(ctx context.Context, id string, kubeconfig []byte) error {
	_, err := f.Home.Client().CoreV1().Secrets(System).Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: System, Name: id},
		Data:       map[string][]byte{"kubeconfig": kubeconfig},
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("make Secret of %s: %w", id, err)
	}
	_, err = f.Remotes.Create(ctx, &v1alpha1.RemoteCluster{
		ObjectMeta: metav1.ObjectMeta{Name: id},
		Spec:       v1alpha1.RemoteClusterSpec{KubeconfigSecretRef: v1alpha1.SecretKeyRef{Namespace: System, Name: id}},
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("make RemoteCluster %s: %w", id, err)
	}
	return nil
}

// AwaitReady waits until the condition Ready of a RemoteCluster has a status.
func (f *Fabric) AwaitReady(ctx context.Context, id string, status metav1.ConditionStatus) error {
	var last *metav1.Condition
	err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		remote, err := f.Remotes.Get(ctx, id, metav1.GetOptions{})
		if err != nil {
			return false, nil //nolint:nilerr // the API server may be away for a moment
		}
		last = meta.FindStatusCondition(remote.Status.Conditions, v1alpha1.Ready)
		return last != nil && last.Status == status, nil
	})
	if err != nil {
		return fmt.Errorf("wait until RemoteCluster %s has Ready=%s (now %+v): %w", id, status, last, err)
	}
	return nil
}

// Open makes a namespace in both clusters that home may use in west.
func (f *Fabric) Open(ctx context.Context, namespace string) error {
	for _, cluster := range []*testbed.Cluster{f.Home, f.West} {
		if err := cluster.MakeNamespace(ctx, namespace); err != nil {
			return err
		}
	}
	return f.Bind(ctx, namespace)
}

// Bind lets an existing namespace of home use its namesake in west.
func (f *Fabric) Bind(ctx context.Context, namespace string) error {
	if _, err := f.Home.Kubectl(ctx, "", "label", "namespace", namespace, keys.Offload+"="+keys.OffloadEnabled, "--overwrite"); err != nil {
		return err
	}
	return f.BindRole(ctx, namespace)
}

// BindRole gives home its rights in a namespace of west.
func (f *Fabric) BindRole(ctx context.Context, namespace string) error {
	_, err := f.West.Client().RbacV1().RoleBindings(namespace).Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: claimsRole},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: claimsRole},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: remoteNamespace, Name: remoteAccount}},
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("bind home's role in namespace %s of west: %w", namespace, err)
	}
	return nil
}
