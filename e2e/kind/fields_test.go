package kind

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/e2e/testbed"
)

// plain is a pod that sleeps, with a volume at /data: the last line.
const plain = `apiVersion: v1
kind: Pod
metadata: {namespace: %[1]s, name: %[2]s}
spec:
%[4]s  terminationGracePeriodSeconds: 0
  containers:
  - {name: main, image: "%[3]s", command: [sleep, "36000"], volumeMounts: [{name: data, mountPath: /data}]}
  volumes: [%[5]s]
`

// sleeps makes such a pod on a side, and waits until it is ready.
func sleeps(t *testing.T, namespace, name, side, volume string) {
	t.Helper()
	home.apply(t, fmt.Sprintf(plain, namespace, name, image, strings.TrimPrefix(side, "    "), volume))
	readyPod(t, namespace, name)
}

func TestAnEphemeralVolumeComesAndGoesWithItsPod(t *testing.T) {
	t.Parallel()
	for where, side := range sides {
		t.Run(where, func(t *testing.T) {
			t.Parallel()
			shop := namespace(t)
			sleeps(t, shop, "worker", side, "{name: data, ephemeral: {volumeClaimTemplate: {spec: {storageClassName: e2e-disk, accessModes: "+
				"[ReadWriteOnce], resources: {requests: {storage: 512Mi}}}}}}")
			shell(t, shop, "worker", "echo scratch > /data/file && sync")
			data := volumeOf(t, shop, "worker-data")
			deletePod(t, readyPod(t, shop, "worker"))
			data.requireGone(t)
		})
	}
}

func TestAnImportedClaimHasTheFilesThatItHad(t *testing.T) {
	testbed.NotInShort(t)
	t.Parallel()
	shop := namespace(t)
	home.apply(t, fmt.Sprintf(`apiVersion: v1
kind: PersistentVolumeClaim
metadata: {namespace: %s, name: data}
spec: {storageClassName: disk, accessModes: [ReadWriteOnce], resources: {requests: {storage: 512Mi}}}
`, shop))
	const of = "{name: data, persistentVolumeClaim: {claimName: data}}"
	sleeps(t, shop, "before", atHome, of)
	shell(t, shop, "before", "echo precious > /data/file && sync")
	deletePod(t, readyPod(t, shop, "before"))
	claim := claimOf(t, shop, "data")
	real := claim.Spec.VolumeName
	eventually(t, "its volume is detached, which import does not wait for", func(c *assert.CollectT) {
		attachments, err := home.client.StorageV1().VolumeAttachments().List(t.Context(), metav1.ListOptions{})
		require.NoError(c, err)
		for _, attachment := range attachments.Items {
			assert.NotEqual(c, real, *attachment.Spec.Source.PersistentVolumeName)
		}
	})
	said, code := lodestone(t, "import", "pvc", "data", "-n", shop, "--class", diskClass, "--yes")
	require.Zero(t, code, said)
	data := volumeOf(t, shop, "data")
	assert.Equal(t, real, data.real, "nothing is copied")
	assert.NotEqual(t, claim.UID, claimOf(t, shop, "data").UID)
	sleeps(t, shop, "after", "", of)
	assert.Equal(t, "precious\n", shell(t, shop, "after", "cat /data/file"))
	deletePod(t, readyPod(t, shop, "after"))
	home.kubectl(t, "delete", "pvc", "data", "-n", shop)
	data.requireGone(t)
}
