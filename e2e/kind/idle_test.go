package kind

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/provisioner/replicas/record"
)

// writesOnce is a pod that writes to the claim data, and ends.
const writesOnce = `apiVersion: v1
kind: Pod
metadata: {namespace: %[1]s, name: %[2]s}
spec:
  restartPolicy: Never
  nodeSelector: {kubernetes.io/hostname: home-control-plane}
  tolerations: [{operator: Exists}]
  containers:
  - name: main
    image: %[3]s
    command: [sh, -ec, "mkdir -p /data/many; for i in $(seq 2000); do echo %[2]s $i > /data/many/$i; done"]
    volumeMounts: [{name: data, mountPath: /data}]
  volumes:
  - name: data
    persistentVolumeClaim: {claimName: data}
`

// TestNothingIsReadOfAVolumeThatRests: a disk that nobody writes to for ten minutes. Its snapshots, and its copy at another mount, still
// say what they said. Once somebody writes to it all is read again.
func TestNothingIsReadOfAVolumeThatRests(t *testing.T) {
	if !thorough() {
		t.Skip("a volume has to rest for ten minutes: set E2E_LONG")
	}
	t.Parallel()
	shop := namespace(t)
	write := func(pod string) {
		home.apply(t, fmt.Sprintf(writesOnce, shop, pod, image))
		home.kubectl(t, "wait", "pod", pod, "-n", shop, "--for=jsonpath={.status.phase}=Succeeded", "--timeout=3m")
		home.kubectl(t, "delete", "pod", pod, "-n", shop)
	}
	home.apply(t, fmt.Sprintf(diskClaim, shop, "data", diskClass, ""))
	write("first")
	succeed(t, "replicate", "data", "-n", shop, "--to", "west", "--rpo", "5m", "--wait")
	made, err := objects(t).Replicas(shop).Get(t.Context(), "data-west", metav1.GetOptions{})
	require.NoError(t, err)
	// lastRead is the moment of the version whose content was read last, and sealed that of the newest one.
	lastRead := func(c require.TestingT) (read, sealed time.Time) {
		secret, err := home.client.CoreV1().Secrets("lodestone-system").Get(t.Context(), record.SecretName(made.UID), metav1.GetOptions{})
		require.NoError(c, err)
		for _, data := range secret.Data {
			r, err := record.Decode(data)
			require.NoError(c, err)
			require.Nil(c, r.Point, "between two points")
			require.Len(c, r.Known, 1)
			return r.Known[0].Cut, r.Newest().Cut
		}
		require.Fail(c, "there is no record")
		return
	}
	var rested time.Time
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		read, sealed := lastRead(c)
		require.True(c, sealed.After(read), "the newest version, of %s, was read", sealed)
		rested = sealed
	}, 35*time.Minute, poll, "a version is sealed of which nothing was read")
	t.Logf("nothing was read for the version of %s", rested)
	write("second")
	eventually(t, "what was written is in a version", func(c *assert.CollectT) {
		read, _ := lastRead(c)
		require.True(c, read.After(rested))
	})
	succeed(t, "replicate", "delete", "data-west", "-n", shop, "--yes")
}
