package kind

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// raw is a claim for a device, and raw pods that use it.
const (
	raw = `apiVersion: v1
kind: PersistentVolumeClaim
metadata: {namespace: %s, name: device}
spec:
  storageClassName: e2e-disk
  volumeMode: Block
  accessModes: [ReadWriteOnce]
  resources: {requests: {storage: 16Mi}}
`
	rawPod = `apiVersion: v1
kind: Pod
metadata: {namespace: %[1]s, name: %[2]s}
spec:
%[4]s  terminationGracePeriodSeconds: 0
  containers:
  - {name: main, image: "%[3]s", command: [sleep, "36000"], volumeDevices: [{name: device, devicePath: /dev/disk}]}
  volumes: [{name: device, persistentVolumeClaim: {claimName: device}}]
`
)

func TestADeviceIsWrittenByOnePodAndReadByTheNext(t *testing.T) {
	t.Parallel()
	for where, side := range sides {
		t.Run(where, func(t *testing.T) {
			t.Parallel()
			shop := namespace(t)
			home.apply(t, fmt.Sprintf(raw, shop))
			side = strings.TrimPrefix(side, "    ")
			home.apply(t, fmt.Sprintf(rawPod, shop, "writer", image, side))
			writer := readyPod(t, shop, "writer")
			shell(t, shop, "writer", "test -b /dev/disk && echo precious | dd of=/dev/disk bs=512 seek=2048 conv=notrunc && sync")
			data := volumeOf(t, shop, "device")
			deletePod(t, writer)

			home.apply(t, fmt.Sprintf(rawPod, shop, "reader", image, ""))
			readyPod(t, shop, "reader")
			assert.Equal(t, "precious\n", shell(t, shop, "reader", "dd if=/dev/disk bs=512 skip=2048 count=1 2>/dev/null | head -n 1"))
			assert.Equal(t, data, volumeOf(t, shop, "device"))
		})
	}
}

func TestReadWriteOncePodKeepsASecondPodOut(t *testing.T) {
	t.Parallel()
	for where, side := range sides {
		t.Run(where, func(t *testing.T) {
			t.Parallel()
			shop := namespace(t)
			db := keepers{namespace: shop, name: "db", class: diskClass, size: "512Mi", replicas: 1, access: "ReadWriteOncePod", spec: side}
			home.apply(t, db.manifest())
			first := db.ready(t, 1)[0]
			sum := shell(t, shop, first.Name, "sha256sum /data/blob")

			home.apply(t, fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {namespace: %s, name: second}
spec:
  terminationGracePeriodSeconds: 0
  containers:
  - {name: main, image: "%s", command: [sleep, "36000"], volumeMounts: [{name: data, mountPath: /data}]}
  volumes: [{name: data, persistentVolumeClaim: {claimName: %s}}]
`, shop, image, db.claim(0)))
			eventually(t, "the scheduler says why the second pod waits", func(c *assert.CollectT) {
				events, err := home.client.CoreV1().Events(shop).List(t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.name=second,reason=FailedScheduling"})
				require.NoError(c, err)
				require.NotEmpty(c, events.Items)
				assert.Contains(c, events.Items[len(events.Items)-1].Message, "ReadWriteOncePod")
			})
			second, err := home.client.CoreV1().Pods(shop).Get(t.Context(), "second", metav1.GetOptions{})
			require.NoError(t, err)
			assert.Equal(t, corev1.PodPending, second.Status.Phase)

			t.Log("Once the first is gone, it has the files.")
			db.scale(t, 0)
			readyPod(t, shop, "second")
			assert.Equal(t, sum, shell(t, shop, "second", "sha256sum /data/blob"))
		})
	}
}
