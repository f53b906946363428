package kind

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// cluster is one of the two, with all rights on it.
type cluster struct {
	name   string
	node   string // of the Node and of its container
	client kubernetes.Interface
	config *rest.Config
}

func connect(name string) (*cluster, error) {
	rules := &clientcmd.ClientConfigLoadingRules{ExplicitPath: kubeconfig()}
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: "kind-" + name}).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("read the kubeconfig of %s: %w", name, err)
	}
	config.QPS, config.Burst, config.Timeout = 100, 200, 30*time.Second
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make a client of %s: %w", name, err)
	}
	if _, err := client.Discovery().ServerVersion(); err != nil {
		return nil, fmt.Errorf("ask %s for its version: %w", name, err)
	}
	return &cluster{name: name, node: name + "-control-plane", client: client, config: config}, nil
}

func kubeconfig() string { return filepath.Join(cache(), "kubeconfig") }

func program(name string) string { return filepath.Join(cache(), "bin", name) }

// environment is that of the programs that the tests call: those of the cache come
// first, and the engine that was started for the clusters is found.
func environment() []string {
	variables := append(os.Environ(), "KUBECONFIG="+kubeconfig(), "PATH="+filepath.Join(cache(), "bin")+":"+os.Getenv("PATH"))
	if socket := filepath.Join(cache(), "engine", "docker.sock"); exists(socket) {
		variables = append(variables, "DOCKER_HOST=unix://"+socket)
	}
	return variables
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// run runs a program and returns what it printed; what it said goes into the error.
func run(ctx context.Context, stdin, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env, cmd.Stdin = environment(), strings.NewReader(stdin)
	var said strings.Builder
	cmd.Stderr = &said
	output, err := cmd.Output()
	if err != nil {
		return string(output), fmt.Errorf("%s %s: %w: %s", filepath.Base(name), strings.Join(args, " "), err, strings.TrimSpace(said.String()))
	}
	return string(output), nil
}

// try runs kubectl with a standard input.
func (c *cluster) try(ctx context.Context, stdin string, args ...string) (string, error) {
	return run(ctx, stdin, program("kubectl"), append([]string{"--context", "kind-" + c.name}, args...)...)
}

// kubectl runs kubectl, which must succeed.
func (c *cluster) kubectl(t *testing.T, args ...string) string {
	t.Helper()
	output, err := c.try(t.Context(), "", args...)
	require.NoError(t, err)
	return output
}

// apply applies manifests.
func (c *cluster) apply(t *testing.T, manifests string) {
	t.Helper()
	_, err := c.try(t.Context(), manifests, "apply", "--validate=strict", "-f", "-")
	require.NoError(t, err)
}

// inNode runs a command in the node's container, in its own file system.
func (c *cluster) inNode(ctx context.Context, args ...string) (string, error) {
	return run(ctx, "", "docker", append([]string{"exec", c.node}, args...)...)
}

// hasFile tells whether there is a file or directory in the node.
func (c *cluster) hasFile(ctx context.Context, path string) (bool, error) {
	_, err := c.inNode(ctx, "test", "-e", path)
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == 1 {
		return false, nil
	}
	return err == nil, err
}

// container does something to the node's container: pause, unpause.
func (c *cluster) container(ctx context.Context, verb string) error {
	_, err := run(ctx, "", "docker", verb, c.node)
	return err
}
