package plugin

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
)

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
