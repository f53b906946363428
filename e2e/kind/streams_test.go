package kind

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// redis is a pod of Redis without a volume, on a chosen side.
func redis(namespace, name, where string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {namespace: %[1]s, name: %[2]s, labels: {app: %[2]s}}
spec:
%[3]s
  terminationGracePeriodSeconds: 2
  containers:
  - name: redis
    image: %[4]s
    command: [redis-server, --protected-mode, "no", --save, "", --dir, /tmp]
    ports: [{containerPort: 6379}]
    readinessProbe: {tcpSocket: {port: 6379}, periodSeconds: 1}
`, namespace, name, strings.TrimPrefix(strings.TrimSuffix(where, "\n"), "    "), image)
}

func TestLogsExecAndPortForwardReachAPodInWest(t *testing.T) {
	t.Parallel()
	shop := namespace(t)
	home.apply(t, redis(shop, "cache", inWest))
	pod := readyPod(t, shop, "cache")
	require.Equal(t, virtualNode, pod.Spec.NodeName)

	assert.Contains(t, home.kubectl(t, "logs", "cache", "-n", shop), "Ready to accept connections")
	assert.Equal(t, 2, strings.Count(home.kubectl(t, "logs", "cache", "-n", shop, "--tail=2"), "\n"))

	assert.Equal(t, "PONG\n", home.kubectl(t, "exec", "cache", "-n", shop, "--", "redis-cli", "PING"))
	echoed, err := home.try(t.Context(), "what goes in comes out", "exec", "-i", "cache", "-n", shop, "--", "cat")
	require.NoError(t, err)
	assert.Equal(t, "what goes in comes out", echoed)
	_, err = home.try(t.Context(), "", "exec", "cache", "-n", shop, "--", "sh", "-c", "exit 7")
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit)
	assert.Equal(t, 7, exit.ExitCode(), "the exit code comes back")

	assert.Equal(t, "+PONG\r\n", ask(t, forward(t, shop, "cache", 6379), "PING\r\n"))
}

// ask sends a line over TCP and returns the line that answers it.
func ask(t *testing.T, address, question string) string {
	t.Helper()
	connection, err := (&net.Dialer{Timeout: 10 * time.Second}).DialContext(t.Context(), "tcp", address)
	require.NoError(t, err)
	defer connection.Close()
	require.NoError(t, connection.SetDeadline(time.Now().Add(time.Minute)))
	_, err = connection.Write([]byte(question))
	require.NoError(t, err)
	answer, err := bufio.NewReader(connection).ReadString('\n')
	require.NoError(t, err)
	return answer
}

var forwarding = regexp.MustCompile(`^Forwarding from (127\.0\.0\.1:\d+)`)

// forward runs kubectl port-forward until the test ends and returns the address at
// which it listens.
func forward(t *testing.T, namespace, pod string, port int) string {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cmd := exec.CommandContext(ctx, program("kubectl"), "--context", "kind-home", "port-forward", "-n", namespace, "pod/"+pod, fmt.Sprintf(":%d", port))
	cmd.Env = environment()
	output, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		cancel()
		if err := cmd.Wait(); err != nil && !errors.As(err, new(*exec.ExitError)) {
			t.Logf("kubectl port-forward: %v", err)
		}
	})
	line, err := bufio.NewReader(output).ReadString('\n')
	require.NoError(t, err)
	match := forwarding.FindStringSubmatch(line)
	require.NotNil(t, match, "kubectl says %q", line)
	return match[1]
}
