package kind

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lodestone-storage/lodestone/e2e/testbed"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
)

// teller is a pod in west that writes one number after the other to its claim, and none while /hook/freeze is there: it says so by
// /hook/frozen. Its hooks note in /hook/calls how far it was.
const teller = `apiVersion: v1
kind: Pod
metadata: {namespace: %[1]s, name: teller}
spec:
  nodeSelector: {lodestone.dev/cluster: west}
  tolerations: [{key: lodestone.dev/remote, operator: Exists}]
  terminationGracePeriodSeconds: 0
  volumes:
  - {name: data, persistentVolumeClaim: {claimName: data}}
  - {name: hook, emptyDir: {}}
  containers:
  - name: app
    image: %[2]s
    volumeMounts: [{name: data, mountPath: /data}, {name: hook, mountPath: /hook}]
    command:
    - sh
    - -c
    - |
      n=0
      while :; do
        if [ -e /hook/freeze ]; then
          touch /hook/frozen
          while [ -e /hook/freeze ]; do sleep 0.02; done
          rm -f /hook/frozen
        fi
        n=$((n+1))
        echo $n >>/data/log
        sleep 0.02
      done
`

// frozenCopy is a VolumeReplica of it.
const frozenCopy = `apiVersion: lodestone.dev/v1alpha1
kind: VolumeReplica
metadata: {namespace: %[1]s, name: data-home}
spec:
  claims: [data]
  standbys: [{cluster: home}]
  rpo: 30s
  consistency: Frozen
  hooks:
    freeze:
    - sh
    - -c
    - touch /hook/freeze; until [ -e /hook/frozen ]; do sleep 0.02; done; sync; echo "freeze $(tail -n 1 /data/log)" >>/hook/calls
    thaw: [sh, -c, 'echo "thaw $(tail -n 1 /data/log)" >>/hook/calls; rm -f /hook/freeze']
`

// TestNothingIsWrittenBetweenTheFreezeAndTheSnapshot has an application in west be frozen for each point, through the API server of home
// and real kubelets, and looks into a version.
func TestNothingIsWrittenBetweenTheFreezeAndTheSnapshot(t *testing.T) {
	testbed.NotInShort(t)
	shop := namespace(t)
	home.apply(t, fmt.Sprintf(diskClaim, shop, "data", diskClass, ""))
	home.apply(t, fmt.Sprintf(teller, shop, image))
	readyPod(t, shop, "teller")
	home.kubectl(t, "create", "rolebinding", "lodestone-freeze", "-n", shop, "--clusterrole=lodestone-freeze",
		"--serviceaccount=lodestone-system:lodestone-provisioner")
	home.apply(t, fmt.Sprintf(frozenCopy, shop))
	eventually(t, "two versions are frozen", func(c *assert.CollectT) {
		var replica v1alpha1.VolumeReplica
		require.NoError(c, json.Unmarshal([]byte(home.kubectl(t, "get", "volumereplica", "data-home", "-n", shop, "-o", "json")), &replica))
		require.NotEmpty(c, replica.Status.Standbys, "%v", replica.Status.Conditions)
		versions := replica.Status.Standbys[0].Versions
		require.GreaterOrEqual(c, len(versions), 2, "%v", replica.Status.Conditions)
		for _, version := range versions {
			assert.Equal(c, v1alpha1.VersionFrozen, version.Consistency)
		}
	})
	t.Log("A drill: the version has what was written when the application was frozen.")
	succeed(t, "failover", "data", "-n", shop, "--test")
	reader := strings.NewReplacer("name: teller", "name: reader", "claimName: data", "claimName: data-drill",
		"nodeSelector: {lodestone.dev/cluster: west}", "nodeSelector: {kubernetes.io/hostname: home-control-plane}",
		"n=0\n", "sleep 100000\n").Replace(teller)
	home.apply(t, fmt.Sprintf(reader, shop, image))
	readyPod(t, shop, "reader")
	last := strings.TrimSpace(home.kubectl(t, "exec", "reader", "-n", shop, "--", "tail", "-n", "1", "/data/log"))
	frozenAt := map[string]bool{}
	calls := strings.Fields(home.kubectl(t, "exec", "teller", "-n", shop, "--", "cat", "/hook/calls"))
	require.GreaterOrEqual(t, len(calls), 8)
	for i := 0; i+3 < len(calls); i += 4 {
		require.Equal(t, []string{"freeze", "thaw"}, []string{calls[i], calls[i+2]}, "%v", calls)
		require.Equal(t, calls[i+1], calls[i+3], "nothing is written between a freeze and its thaw: %v", calls)
		frozenAt[calls[i+1]] = true
	}
	require.True(t, frozenAt[last], "the version ends with %s, and the application was frozen at %v", last, frozenAt)
	now, err := strconv.Atoi(strings.TrimSpace(home.kubectl(t, "exec", "teller", "-n", shop, "--", "tail", "-n", "1", "/data/log")))
	require.NoError(t, err)
	then, err := strconv.Atoi(last)
	require.NoError(t, err)
	require.Greater(t, now, then, "the application goes on")
}
