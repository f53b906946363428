package fabric

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/lodestone-storage/lodestone/e2e/testbed"
	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	agent "github.com/lodestone-storage/lodestone/remoteagent/app"
	virtualnode "github.com/lodestone-storage/lodestone/virtualnode/app"
)

// The remote agent's ServiceAccount, as deploy/remote makes it.
const (
	agentNamespace = "lodestone-remote"
	agentAccount   = "lodestone-remote-agent"
)

func (f *Fabric) installAgent(ctx context.Context, o Options) error {
	if _, err := f.West.Kubectl(ctx, "", "apply", "-k", filepath.Join(o.tree(), "deploy", "remote")); err != nil {
		return fmt.Errorf("install the remote agent in west: %w", err)
	}
	for _, name := range []string{"homeclusters", "namespacerequests", "shadowpods"} {
		if _, err := f.West.Kubectl(ctx, "", "wait", "--for=condition=Established", "crd/"+name+"."+remotev1alpha1.GroupVersion.Group,
			"--timeout=30s"); err != nil {
			return fmt.Errorf("wait for the custom resources in west: %w", err)
		}
	}
	return nil
}

// StartAgent starts a remote agent in west with the rights of its
// ServiceAccount; the Fabric must have been started with Agent. tune changes its
// flags, and its client, before the start.
func (f *Fabric) StartAgent(ctx context.Context, tune ...func(*agent.Config)) (*Program, error) {
	remote, err := f.West.ServiceAccountConfig(ctx, agentNamespace, agentAccount)
	if err != nil {
		return nil, err
	}
	options := agent.NewOptions()
	options.HTTPAddress = ""
	options.AwayAfter = 15 * time.Second
	options.SettleTime = time.Second
	// Unlike a Deployment, nothing here starts it again once it has lost its lease
	// while west's API server was stopped.
	options.LeaseDuration = 10 * time.Minute
	config := &agent.Config{Options: *options, Remote: remote}
	for _, t := range tune {
		t(config)
	}
	if err := config.Validate(); err != nil {
		return nil, err
	}
	return start(ctx, func(ctx context.Context) error { return agent.Run(ctx, config) }), nil
}

// HomeID returns the ID of the home cluster that the programs give it by default.
func (f *Fabric) HomeID(ctx context.Context) (string, error) {
	uid, err := f.homeUID(ctx)
	if err != nil {
		return "", err
	}
	return uid[:8], nil
}

func (f *Fabric) homeUID(ctx context.Context) (string, error) {
	system, err := f.Home.Client().CoreV1().Namespaces().Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
	if err != nil {
		return "", fmt.Errorf("get namespace kube-system of home: %w", err)
	}
	return string(system.UID), nil
}

// Tenant makes west serve home: it makes the HomeCluster of home's ID, which
// mutate, if not nil, changes before, waits until it is Ready, and returns the
// kubeconfig of home's identity in west. A remote agent must be running.
func (f *Fabric) Tenant(ctx context.Context, mutate func(*remotev1alpha1.HomeCluster)) (kubeconfig []byte, err error) {
	uid, err := f.homeUID(ctx)
	if err != nil {
		return nil, err
	}
	home := &remotev1alpha1.HomeCluster{
		ObjectMeta: metav1.ObjectMeta{Name: uid[:8]},
		Spec:       remotev1alpha1.HomeClusterSpec{ClusterUID: uid, Namespaces: remotev1alpha1.NamespacePolicy{Names: []string{"*"}}},
	}
	if mutate != nil {
		mutate(home)
	}
	if _, err := f.Agents.HomeClusters().Create(ctx, home, metav1.CreateOptions{}); err != nil {
		return nil, fmt.Errorf("make HomeCluster %s: %w", home.Name, err)
	}
	if err := f.AwaitTenant(ctx, home.Name); err != nil {
		return nil, err
	}
	return f.West.ServiceAccountKubeconfig(ctx, keys.TenantPrefix+home.Name, keys.HomeAccount)
}

// Admit makes west serve home, as Tenant does, and makes it known at home.
func (f *Fabric) Admit(ctx context.Context, mutate func(*remotev1alpha1.HomeCluster)) error {
	kubeconfig, err := f.Tenant(ctx, mutate)
	if err != nil {
		return err
	}
	return f.Register(ctx, "west", kubeconfig)
}

// AwaitTenant waits until a HomeCluster of west is Ready.
func (f *Fabric) AwaitTenant(ctx context.Context, id string) error {
	var last *metav1.Condition
	err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		home, err := f.Agents.HomeClusters().Get(ctx, id, metav1.GetOptions{})
		if err != nil {
			return false, nil //nolint:nilerr // the API server may be away for a moment
		}
		last = meta.FindStatusCondition(home.Status.Conditions, remotev1alpha1.Ready)
		return last != nil && last.Status == metav1.ConditionTrue, nil
	})
	if err != nil {
		return fmt.Errorf("wait until HomeCluster %s is Ready (now %+v): %w", id, last, err)
	}
	return nil
}

// Identity of the home cluster in a remote one, as deploy/remote-volumes makes it.
const (
	remoteNamespace = "lodestone-volumes"
	remoteAccount   = "lodestone-home"
	claimsRole      = "lodestone-home-claims"
)

// WestUser is the user name of home's identity in west.
const WestUser = "system:serviceaccount:" + remoteNamespace + ":" + remoteAccount

// Peer makes home know west: the kubeconfig Secret and the RemoteCluster, with
// the rights that deploy/remote-volumes gives. It waits until home can use west.
func (f *Fabric) Peer(ctx context.Context) error {
	kubeconfig, err := f.WestKubeconfig(ctx)
	if err != nil {
		return err
	}
	if err := f.Register(ctx, "west", kubeconfig); err != nil {
		return err
	}
	return f.AwaitReady(ctx, "west", metav1.ConditionTrue)
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
func (f *Fabric) Register(ctx context.Context, id string, kubeconfig []byte, tune ...func(*v1alpha1.RemoteClusterSpec)) error {
	_, err := f.Home.Client().CoreV1().Secrets(System).Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: System, Name: id},
		Data:       map[string][]byte{"kubeconfig": kubeconfig},
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("make Secret of %s: %w", id, err)
	}
	remote := &v1alpha1.RemoteCluster{
		ObjectMeta: metav1.ObjectMeta{Name: id},
		Spec:       v1alpha1.RemoteClusterSpec{KubeconfigSecretRef: v1alpha1.SecretKeyRef{Namespace: System, Name: id}},
	}
	for _, change := range tune {
		change(&remote.Spec)
	}
	_, err = f.Remotes.Create(ctx, remote, metav1.CreateOptions{})
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

// virtualNodeAccount is the virtual node program's ServiceAccount, as
// deploy/components/virtual-node makes it.
const virtualNodeAccount = "lodestone-virtualnode"

// homeManifests returns what is applied at home.
func homeManifests(o Options) string {
	manifests := filepath.Join(o.tree(), "e2e", "fabric", "manifests")
	switch {
	case o.VirtualNode && o.Webhook:
		return filepath.Join(manifests, "virtual-node-webhook")
	case o.VirtualNode:
		return filepath.Join(manifests, "virtual-node")
	case o.Webhook:
		return filepath.Join(manifests, "webhook")
	}
	return filepath.Join(o.tree(), "deploy", "base")
}

// StartVirtualNode starts the virtual node program at home with the rights of its
// ServiceAccount; the Fabric must have been started with VirtualNode. tune
// changes its flags, and its client, before the start.
func (f *Fabric) StartVirtualNode(ctx context.Context, tune ...func(*virtualnode.Config)) (*Program, error) {
	home, err := f.Home.ServiceAccountConfig(ctx, System, virtualNodeAccount)
	if err != nil {
		return nil, err
	}
	options := virtualnode.NewOptions()
	options.HTTPAddress = ""
	options.ProbeInterval = time.Second
	options.Heartbeat = time.Second
	options.NodeIP, options.KubeletAddress = "127.0.0.1", "127.0.0.1"
	options.KubeletPortsFrom = 0
	config := &virtualnode.Config{Options: *options, Home: home}
	for _, t := range tune {
		t(config)
	}
	if err := config.Validate(); err != nil {
		return nil, err
	}
	return start(ctx, func(ctx context.Context) error { return virtualnode.Run(ctx, config) }), nil
}

// RunVirtualNode runs the virtual node program built at path as a process, under
// a name of its own, with the rights of its ServiceAccount and leader election,
// and waits until it is ready. A replica that does not lead is ready too.
func (f *Fabric) RunVirtualNode(ctx context.Context, name, path string, flags ...string) (*testbed.Program, error) {
	return run(ctx, f.Home, name, path, System, virtualNodeAccount, append([]string{
		"--leader-elect=true", "--lease-duration=8s", "--probe-interval=1s", "--heartbeat-interval=1s",
		"--node-ip=127.0.0.1", "--kubelet-address=127.0.0.1", "--kubelet-ports-from=0", "--v=2"}, flags...)...)
}

// AwaitNode waits until a node of home has a status of its condition Ready and, if
// that is True, takes pods.
func (f *Fabric) AwaitNode(ctx context.Context, name string, status corev1.ConditionStatus) error {
	var last *corev1.Node
	err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		node, err := f.Home.Client().CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return false, nil //nolint:nilerr // it may not be there yet
		}
		last = node
		for _, taint := range node.Spec.Taints {
			if taint.Key == corev1.TaintNodeNotReady && status == corev1.ConditionTrue {
				return false, nil
			}
		}
		for _, condition := range node.Status.Conditions {
			if condition.Type == corev1.NodeReady {
				return condition.Status == status, nil
			}
		}
		return false, nil
	})
	if err != nil {
		return fmt.Errorf("wait until node %s has Ready=%s (now %+v): %w", name, status, last, err)
	}
	return nil
}
