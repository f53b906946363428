// Package kind is the suite on two real clusters, home and west, each of one node
// with a real kubelet: pods run, and files are read and written. The shell scripts
// beside it bring the clusters up and install Lodestone; `make e2e` does all.
//
// What a test looks at is where the truth is: the files of a volume are read in the
// node's own file system, a remote pod is asked for at west's API server.
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

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

const (
	// long is how long a state may take to come about: images are there, so this
	// is no matter of seconds only on a machine that does much else.
	long = 5 * time.Minute
	// steady is how long something must stay as it is.
	steady = 15 * time.Second
	poll   = 500 * time.Millisecond

	system  = "lodestone-system"
	storage = "lodestone-storage"
	// image is that of all pods here: busybox, Redis, PostgreSQL and restic.
	image = "docker.io/lodestone-e2e/workload:2"
	// virtualNode is the node that stands for west.
	virtualNode = "west"
)

// The clusters; nil unless LODESTONE_KIND is set, and east also where there is no third one.
var home, west, east *cluster

// every returns the clusters that there are.
func every() []*cluster {
	if east != nil {
		return []*cluster{home, west, east}
	}
	return []*cluster{home, west}
}

func TestMain(m *testing.M) {
	if os.Getenv("LODESTONE_KIND") == "" {
		os.Exit(m.Run())
	}
	var err error
	if home, err = connect("home"); err == nil {
		west, err = connect("west")
	}
	if err == nil && three() {
		east, err = connect("east")
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "The clusters of the suite do not answer; run `make e2e-up`: %v\n", err)
		os.Exit(1)
	}
	clearNamespaces(context.Background())
	code := m.Run()
	// What explains a failure is left, until the next run.
	if code == 0 {
		for _, what := range leftovers(context.Background()) {
			fmt.Fprintf(os.Stderr, "left behind: %s\n", what)
			code = 1
		}
	}
	os.Exit(code)
}

// cache is where the scripts keep what they make.
func cache() string {
	if directory := os.Getenv("KIND_CACHE"); directory != "" {
		return directory
	}
	directory, err := os.UserCacheDir()
	if err != nil {
		panic(err) // no home directory: nothing can have been brought up
	}
	return filepath.Join(directory, "lodestone", "kind")
}

// needsClusters skips a test unless the clusters are there, and keeps what explains
// its failure.
func needsClusters(t *testing.T) {
	t.Helper()
	if home == nil {
		t.Skip("needs two kind clusters: run make e2e")
	}
	t.Cleanup(func() {
		if t.Failed() {
			keepEvidence(t)
		}
	})
}

// configured is a pod in west with a ConfigMap and a Secret.
const configured = `apiVersion: v1
kind: ConfigMap
metadata: {namespace: %[1]s, name: settings}
data: {greeting: before}
---
apiVersion: v1
kind: Secret
metadata: {namespace: %[1]s, name: login}
stringData: {password: before}
---
apiVersion: v1
kind: Pod
metadata: {namespace: %[1]s, name: reader}
spec:
  nodeSelector: {lodestone.dev/cluster: west}
  terminationGracePeriodSeconds: 0
  containers:
  - name: reader
    image: %[2]s
    command: [sleep, "36000"]
    env: [{name: GREETING, valueFrom: {configMapKeyRef: {name: settings, key: greeting}}}]
    volumeMounts: [{name: settings, mountPath: /settings}, {name: login, mountPath: /login}]
  volumes:
  - {name: settings, configMap: {name: settings}}
  - {name: login, secret: {secretName: login}}
`

func TestPodInWestSeesItsConfigMapAndSecretChange(t *testing.T) {
	t.Parallel()
	shop := namespace(t)
	home.apply(t, fmt.Sprintf(configured, shop, image))
	readyPod(t, shop, "reader")
	read := func(file string) string {
		output, err := west.try(t.Context(), "", "exec", "reader", "-n", shop, "--", "cat", file)
		require.NoError(t, err)
		return output
	}
	require.Equal(t, "before", read("/settings/greeting"))
	require.Equal(t, "before", read("/login/password"))
	assert.Equal(t, "before\n", west.kubectl(t, "exec", "reader", "-n", shop, "--", "sh", "-c", "echo $GREETING"))

	home.kubectl(t, "patch", "configmap", "settings", "-n", shop, "-p", `{"data": {"greeting": "after"}}`)
	home.kubectl(t, "patch", "secret", "login", "-n", shop, "-p", `{"stringData": {"password": "after"}}`)

	// The kubelet of west looks for changes about once a minute.
	eventually(t, "the files change", func(c *assert.CollectT) {
		for _, file := range []string{"/settings/greeting", "/login/password"} {
			output, err := west.try(t.Context(), "", "exec", "reader", "-n", shop, "--", "cat", file)
			require.NoError(c, err)
			assert.Equal(c, "after", output, file)
		}
	})
	for _, kind := range []string{"configmap/settings", "secret/login"} {
		home.kubectl(t, "delete", "pod", "reader", "-n", shop, "--ignore-not-found")
		eventually(t, kind+" is removed in west once no pod uses it", func(c *assert.CollectT) {
			output, err := west.try(t.Context(), "", "get", kind, "-n", shop, "--ignore-not-found", "-o", "name")
			require.NoError(c, err)
			assert.Empty(c, strings.TrimSpace(output))
		})
	}
}

// cluster is one of the two, with all rights on it.
type cluster struct {
	name   string
	node   string // of the Node and of its container
	client kubernetes.Interface
	config *rest.Config
}

func connect(name string) (*cluster, error) {
	rules := &clientcmd.ClientConfigLoadingRules{ExplicitPath: kubeconfig()}
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules,
		&clientcmd.ConfigOverrides{CurrentContext: "kind-" + name}).ClientConfig()
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

// container does something to the node's container: pause, unpause, kill, start.
func (c *cluster) container(ctx context.Context, verb string) error {
	_, err := run(ctx, "", "docker", verb, c.node)
	return err
}
