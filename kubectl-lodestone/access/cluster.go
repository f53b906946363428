// Package access reaches clusters with the user's own rights.
package access

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/outcome"
	"github.com/lodestone-storage/lodestone/pkg/remoteapi"
	"github.com/lodestone-storage/lodestone/pkg/remoteclusters"
	"github.com/lodestone-storage/lodestone/pkg/volumemoves"
)

// requestTimeout bounds each request, so that a cluster that hangs ends in
// a sentence.
const requestTimeout = 15 * time.Second

// Cluster is a cluster as the user reaches it.
type Cluster struct {
	// Context is the name of its kubeconfig context; messages call it so.
	Context string
	Config  *rest.Config
	Client  kubernetes.Interface
	Remotes *remoteclusters.Client
	Remote  *remoteapi.Client
	Moves   *volumemoves.Client
}

// Home returns the cluster that kubectl's own flags name.
func Home(flags *genericclioptions.ConfigFlags) (*Cluster, error) {
	loader := flags.ToRawKubeConfigLoader()
	name := ""
	if raw, err := loader.RawConfig(); err == nil {
		name = raw.CurrentContext
	}
	if flags.Context != nil && *flags.Context != "" {
		name = *flags.Context
	}
	config, err := loader.ClientConfig()
	if err != nil {
		return nil, outcome.Misuse("the home cluster cannot be found: %w; choose it with --context or --kubeconfig", err)
	}
	return newCluster(name, config)
}

// Remote returns the cluster of a context of a kubeconfig file; empty: of the
// one that kubectl uses. It asks for nothing yet.
func Remote(flags *genericclioptions.ConfigFlags, kubeconfig, name string) (*Cluster, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = kubeconfig
	if kubeconfig == "" && flags.KubeConfig != nil {
		rules.ExplicitPath = *flags.KubeConfig
	}
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: name})
	raw, err := loader.RawConfig()
	if err != nil {
		return nil, outcome.Misuse("the kubeconfig of the remote cluster cannot be read: %w; correct --remote-kubeconfig", err)
	}
	if name == "" {
		name = raw.CurrentContext
	}
	if raw.Contexts[name] == nil {
		return nil, outcome.Misuse("the kubeconfig has no context %q: choose --remote-context among those that kubectl config get-contexts lists", name)
	}
	config, err := loader.ClientConfig()
	if err != nil {
		return nil, outcome.Misuse("context %q cannot be used: %w; correct the kubeconfig", name, err)
	}
	return newCluster(name, config)
}

func newCluster(name string, config *rest.Config) (*Cluster, error) {
	if name == "" {
		name = config.Host
	}
	config = rest.CopyConfig(config)
	config.UserAgent = "kubectl-lodestone"
	if config.Timeout == 0 {
		config.Timeout = requestTimeout
	}
	config.QPS, config.Burst = 50, 100
	// Warnings of an API server are for those who write manifests.
	config.WarningHandler = rest.NoWarnings{}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, outcome.Misuse("context %q cannot be used: %w; correct the kubeconfig", name, err)
	}
	remotes, err := remoteclusters.NewClient(config)
	if err != nil {
		return nil, err
	}
	remote, err := remoteapi.NewClient(config)
	if err != nil {
		return nil, err
	}
	moves, err := volumemoves.NewClient(config)
	if err != nil {
		return nil, err
	}
	return &Cluster{Context: name, Config: config, Client: client, Remotes: remotes, Remote: remote, Moves: moves}, nil
}

// UID returns what tells the cluster from all others: the UID of its namespace
// kube-system.
func (c *Cluster) UID(ctx context.Context) (string, error) {
	system, err := c.Client.CoreV1().Namespaces().Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
	if err != nil {
		return "", c.Explain("get namespace kube-system", err)
	}
	return string(system.UID), nil
}

// Serves reports whether the API server serves a resource of a group and
// version.
func (c *Cluster) Serves(groupVersion, resource string) (bool, error) {
	list, err := c.Client.Discovery().ServerResourcesForGroupVersion(groupVersion)
	switch {
	case apierrors.IsNotFound(err):
		return false, nil
	case err != nil:
		return false, c.Explain("ask what its API server serves", err)
	}
	for _, r := range list.APIResources {
		if r.Name == resource {
			return true, nil
		}
	}
	return false, nil
}

// Explain makes the error of a request one sentence that says what to do. doing
// is what the request does, such as "list nodes". API errors are kept inside.
func (c *Cluster) Explain(doing string, err error) error {
	var status apierrors.APIStatus
	switch {
	case err == nil:
		return nil
	case errors.Is(err, context.Canceled):
		return fmt.Errorf("stopped before it could %s in the cluster of context %q; run the same command again to go on: %w", doing, c.Context, err)
	case apierrors.IsUnauthorized(err):
		return fmt.Errorf("the cluster of context %q does not accept your credentials (%w): log in again or correct the kubeconfig", c.Context, err)
	case apierrors.IsForbidden(err):
		return fmt.Errorf("you may not %s in the cluster of context %q: ask its administrator for that right (%w)", doing, c.Context, err)
	case errors.As(err, &status):
		return fmt.Errorf("%s in the cluster of context %q: %w", doing, c.Context, err)
	}
	return fmt.Errorf("the cluster of context %q does not answer (%s: %w): check its address in the kubeconfig and the network", c.Context, doing, err)
}
