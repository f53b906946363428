package kind

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

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
