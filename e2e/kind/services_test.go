package kind

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// exported is a ServiceExport.
const exported = `apiVersion: multicluster.x-k8s.io/v1beta1
kind: ServiceExport
metadata: {namespace: %s, name: %s}
`

// ofItsOwn is a pod that west's owner has in a namespace of home, and its Service.
const ofItsOwn = `apiVersion: v1
kind: Pod
metadata: {namespace: %[1]s, name: own, labels: {app: web}}
spec:
  terminationGracePeriodSeconds: 0
  containers:
  - name: main
    image: %[2]s
    command: [redis-server, --protected-mode, "no", --save, "", --dir, /tmp]
    readinessProbe: {tcpSocket: {port: 6379}, periodSeconds: 1}
---
apiVersion: v1
kind: Service
metadata: {namespace: %[1]s, name: web}
spec:
  selector: {app: web}
  ports: [{port: 6379}]
`

// TestServicesAreSharedUnderOneName has both clusters export Services, and pods of both ask for them by name: with real kubelets,
// kube-proxy and CoreDNS.
func TestServicesAreSharedUnderOneName(t *testing.T) {
	shop := namespace(t)
	home.apply(t, fmt.Sprintf(answering, shop, "db-0", side(atHome), image)+"---\n"+fmt.Sprintf(answering, shop, "db-1", side(inWest), image))
	readyPod(t, shop, "db-0")
	readyPod(t, shop, "db-1")
	west.apply(t, fmt.Sprintf(ofItsOwn, shop, image))
	// A namespace in which west's owner has something stays when home's goes.
	t.Cleanup(func() {
		_, err := west.try(context.Background(), "", "delete", "pod/own", "service/web", "serviceexport/web", "-n", shop, "--ignore-not-found")
		assert.NoError(t, err)
	})
	west.kubectl(t, "wait", "--for=condition=Ready", "pod/own", "-n", shop, "--timeout=120s")
	asking := []struct {
		in  *cluster
		pod string
	}{{home, "db-0"}, {west, "db-1"}, {west, "own"}}
	for _, pod := range asking {
		_, err := pod.in.says(t.Context(), shop, pod.pod, "redis-cli SET name "+pod.pod)
		require.NoError(t, err)
	}

	west.apply(t, fmt.Sprintf(exported, shop, "web"))
	home.apply(t, fmt.Sprintf(exported, shop, "any")+"---\n"+fmt.Sprintf(exported, shop, "db"))
	homeID := home.kubectl(t, "get", "namespace", "kube-system", "-o", "jsonpath={.metadata.uid}")[:8]
	below := "." + shop + ".svc.clusterset.local"
	for _, pod := range asking {
		for name, want := range map[string][]string{
			"web" + below:                    {"own"},
			"any" + below:                    {"db-0", "db-1"},
			"db-0." + homeID + ".db" + below: {"db-0"},
			"db-1." + homeID + ".db" + below: {"db-1"},
		} {
			eventually(t, fmt.Sprintf("%s of %s reaches %s", pod.pod, pod.in.name, name), func(c *assert.CollectT) {
				found := map[string]bool{}
				for range 10 * len(want) {
					name, err := pod.in.says(t.Context(), shop, pod.pod, "redis-cli -h "+name+" GET name")
					require.NoError(c, err)
					found[name] = true
				}
				for _, name := range want {
					assert.Contains(c, found, name)
				}
				assert.Len(c, found, len(want))
			})
		}
	}

	t.Log("A Service that is not exported any more has no name in the other cluster, and the own one stays.")
	west.kubectl(t, "delete", "serviceexport", "web", "-n", shop)
	eventually(t, "home has no name for it", func(c *assert.CollectT) {
		said, err := home.says(t.Context(), shop, "db-0", "redis-cli -h web"+below+" PING 2>&1; true")
		require.NoError(c, err)
		assert.Contains(c, said, "Name or service not known")
	})
	said, err := west.says(t.Context(), shop, "own", "redis-cli -h web PING")
	require.NoError(t, err)
	assert.Equal(t, "PONG", said)
	assert.NotEmpty(t, home.kubectl(t, "get", "serviceimports", "-n", shop, "-l", keys.ServiceImport, "-o", "name"), "the others stay")
}
