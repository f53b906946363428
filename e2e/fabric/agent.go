package fabric

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	agent "github.com/lodestone-storage/lodestone/remoteagent/app"
)

// The remote agent's ServiceAccount, as deploy/remote makes it.
const (
	agentNamespace = "lodestone-remote"
	agentAccount   = "lodestone-remote-agent"
)

func (f *Fabric) installAgent(ctx context.Context) error {
	if _, err := f.West.Kubectl(ctx, "", "apply", "-k", filepath.Join(Root(), "deploy", "remote")); err != nil {
		return fmt.Errorf("install the remote agent in west: %w", err)
	}
	for _, name := range []string{"homeclusters", "namespacerequests", "shadowpods"} {
		if _, err := f.West.Kubectl(ctx, "", "wait", "--for=condition=Established", "crd/"+name+"."+remotev1alpha1.GroupVersion.Group, "--timeout=30s"); err != nil {
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
		Spec:       remotev1alpha1.HomeClusterSpec{ClusterUID: uid},
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
