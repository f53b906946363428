package kind

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const service = `apiVersion: v1
kind: Service
metadata: {namespace: %[1]s, name: %[2]s}
spec: {selector: {app: %[2]s}, ports: [{port: 6379}]}
`

func TestServiceReachesThePodsOfBothClustersFromEither(t *testing.T) {
	t.Parallel()
	shop := namespace(t)
	sides := map[string]string{"near": atHome, "far": inWest}
	for name, where := range sides {
		home.apply(t, fmt.Sprintf(service, shop, name)+"---\n"+redis(shop, name, where))
	}
	far := readyPod(t, shop, "far")
	near := readyPod(t, shop, "near")
	require.Equal(t, virtualNode, far.Spec.NodeName)
	assert.True(t, strings.HasPrefix(near.Status.PodIP, "10.11."), "address %s", near.Status.PodIP)
	assert.True(t, strings.HasPrefix(far.Status.PodIP, "10.12."), "address %s", far.Status.PodIP)
	home.kubectl(t, "exec", "near", "-n", shop, "--", "redis-cli", "SET", "where", "near")
	west.kubectl(t, "exec", "far", "-n", shop, "--", "redis-cli", "SET", "where", "far")

	for from, in := range map[string]*cluster{"near": home, "far": west} {
		for to := range sides {
			eventually(t, fmt.Sprintf("pod %s reaches service %s by its name", from, to), func(c *assert.CollectT) {
				output, err := in.try(t.Context(), "", "exec", from, "-n", shop, "--", "timeout", "10", "redis-cli", "-h", to, "GET", "where")
				require.NoError(c, err)
				assert.Equal(c, to, strings.TrimSpace(output))
			})
		}
	}
}
