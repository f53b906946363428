// Package plugin tests the kubectl plugin as users run it: a process of its own,
// with a kubeconfig of several contexts, on real control planes.
package plugin

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/must"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	provisioner "github.com/lodestone-storage/lodestone/provisioner/app"
)

var (
	// bed is shared by the tests of this package; each one peers as it needs and
	// unpeers after. Without control planes it is empty, so that tests get as far
	// as to skip.
	bed = &fabric.Fabric{}
	// program is the path of the plugin, kubeconfig that of a file with the
	// contexts home and west, home-again and west-again, with all rights, and
	// home-guest, home-reader and so on, users with the rights that a test gives.
	program, kubeconfig string
)

func TestMain(m *testing.M) {
	testbed.Main(m, func(ctx context.Context) (err error) {
		if bed, err = fabric.Start(ctx, fabric.Options{ControllerManagerQPS: 500, Agent: true, VirtualNode: true}); err != nil {
			return err
		}
		if program, err = bed.BuildPlugin(ctx); err != nil {
			return err
		}
		if err := writeContexts(); err != nil {
			return err
		}
		if _, err := bed.StartProvisioner(ctx, func(c *provisioner.Config) { c.ClusterProfilesNamespace = inventory }); err != nil {
			return err
		}
		if _, err := bed.StartExtender(ctx); err != nil {
			return err
		}
		if _, err := bed.StartVirtualNode(ctx); err != nil {
			return err
		}
		_, err = bed.StartAgent(ctx)
		return err
	})
}

// writeContexts writes the kubeconfig of the tests.
func writeContexts() error {
	path, err := bed.Contexts()
	if err != nil {
		return err
	}
	all, err := clientcmd.LoadFromFile(path)
	if err != nil {
		return fmt.Errorf("read the kubeconfig of both clusters: %w", err)
	}
	for _, name := range []string{"home", "west"} {
		all.Contexts[name+"-again"] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
		for _, who := range []string{"guest", "reader"} {
			user := all.AuthInfos[name].DeepCopy()
			user.Impersonate, user.ImpersonateGroups = who, []string{"system:authenticated"}
			all.AuthInfos[name+"-"+who] = user
			all.Contexts[name+"-"+who] = &clientcmdapi.Context{Cluster: name, AuthInfo: name + "-" + who}
		}
	}
	content, err := clientcmd.Write(*all)
	if err != nil {
		return fmt.Errorf("write the kubeconfig of the tests: %w", err)
	}
	kubeconfig, err = bed.Home.WriteFile("plugin.kubeconfig", content)
	return err
}

// The exit codes that the plugin promises.
const (
	done    = 0
	failed  = 1
	usage   = 2
	refused = 3
)

// result is how a run of the plugin ended.
type result struct {
	code        int
	out, stderr string
}

// lodestone runs the plugin with the kubeconfig of the tests, home being the
// current context.
func lodestone(t *testing.T, args ...string) result {
	t.Helper()
	return withInput(t, "", args...)
}

func withInput(t *testing.T, stdin string, args ...string) result {
	t.Helper()
	testbed.Require(t)
	ctx, cancel := context.WithTimeout(t.Context(), 2*await.Long)
	defer cancel()
	return finish(t, command(ctx, stdin, args...))
}

func command(ctx context.Context, stdin string, args ...string) *exec.Cmd {
	c := exec.CommandContext(ctx, program, args...)
	c.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig)
	c.Stdin = strings.NewReader(stdin)
	return c
}

func finish(t *testing.T, c *exec.Cmd) result {
	t.Helper()
	var out, stderr bytes.Buffer
	c.Stdout, c.Stderr = &out, &stderr
	err := c.Run()
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		require.NoError(t, err)
	}
	return result{code: c.ProcessState.ExitCode(), out: out.String(), stderr: stderr.String()}
}

// ends checks the exit code and, when it is not 0, that the error is one line.
func (r result) ends(t *testing.T, code int) result {
	t.Helper()
	require.Equal(t, code, r.code, "stdout: %s\nstderr: %s", r.out, r.stderr)
	if code != done {
		require.Equal(t, 1, strings.Count(r.stderr, "error: "), r.stderr)
	}
	return r
}

// peered peers home with west and unpeers after the test.
func peered(t *testing.T, args ...string) result {
	t.Helper()
	testbed.Require(t)
	t.Cleanup(func() { unpeered(t) })
	if !slices.Contains(args, "--namespaces") {
		// The same names in both clusters.
		args = append(args, "--namespaces", "*")
	}
	return lodestone(t, append([]string{"peer", "--remote-context", "west", "--timeout", "60s"}, args...)...).ends(t, done)
}

// unpeered removes all that a peering of the tests leaves.
func unpeered(t *testing.T) {
	t.Helper()
	ctx := context.Background()
	remotes, err := bed.Remotes.List(ctx, metav1.ListOptions{})
	require.NoError(t, err)
	for _, remote := range remotes.Items {
		deleted(t, bed.Remotes.Delete(ctx, remote.Name, metav1.DeleteOptions{}))
	}
	await.Until(t, "no RemoteCluster is left", func() bool {
		remotes, err := bed.Remotes.List(ctx, metav1.ListOptions{})
		return err == nil && len(remotes.Items) == 0
	})
	deleted(t, bed.Home.Client().CoreV1().Secrets(fabric.System).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}))
	homes, err := bed.Agents.HomeClusters().List(ctx, metav1.ListOptions{})
	require.NoError(t, err)
	for _, home := range homes.Items {
		deleted(t, bed.Agents.HomeClusters().Delete(ctx, home.Name, metav1.DeleteOptions{}))
	}
	await.Until(t, "no HomeCluster is left", func() bool {
		homes, err := bed.Agents.HomeClusters().List(ctx, metav1.ListOptions{})
		return err == nil && len(homes.Items) == 0
	})
}

func deleted(t *testing.T, err error) {
	t.Helper()
	if !apierrors.IsNotFound(err) {
		require.NoError(t, err)
	}
}

// openNamespace makes a namespace at home that is open to remote clusters, and
// waits until west has its own of that name.
func openNamespace(t *testing.T) string {
	t.Helper()
	namespace := testbed.Namespace(t, bed.Home)
	must.Kubectl(t, bed.Home, "", "label", "namespace", namespace, keys.Offload+"="+keys.OffloadEnabled)
	await.Until(t, "west has namespace "+namespace, func() bool {
		_, err := bed.West.Client().CoreV1().ServiceAccounts(namespace).Get(t.Context(), "default", metav1.GetOptions{})
		return err == nil
	})
	return namespace
}

// podInWest makes a pod that runs in west and waits until it does.
func podInWest(t *testing.T, namespace, name string, claims ...string) {
	t.Helper()
	must.Create(t, bed.Home.Client().CoreV1().Pods(namespace), fabric.InWest(fabric.NewPod(namespace, name, claims...)))
	await.Until(t, "pod "+name+" runs", func() bool { return podOf(t, namespace, name).Status.Phase == corev1.PodRunning })
}

// podOf returns a pod, nil if it is gone.
func podOf(t *testing.T, namespace, name string) *corev1.Pod {
	t.Helper()
	return await.Pod(t, bed.Home.Client(), namespace, name)
}

// endPod deletes a pod and waits until it is gone.
func endPod(t *testing.T, namespace, name string) {
	t.Helper()
	must.Delete(t, bed.Home.Client().CoreV1().Pods(namespace), name)
	await.Until(t, "pod "+name+" is gone", func() bool { return podOf(t, namespace, name) == nil })
}

// volumeInWest makes a claim whose data is in west, which no pod uses any more,
// and returns its volume.
func volumeInWest(t *testing.T, namespace, name string) string {
	t.Helper()
	claims := bed.Home.Client().CoreV1().PersistentVolumeClaims(namespace)
	must.Create(t, claims, fabric.NewClaim(namespace, name, fabric.Class))
	podInWest(t, namespace, "writer", name)
	claim := must.Get(t, claims, name)
	endPod(t, namespace, "writer")
	return claim.Spec.VolumeName
}
