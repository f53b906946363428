package kind

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// rawSet is an owner of a pod that uses the device of raw.
const rawSet = `apiVersion: apps/v1
kind: StatefulSet
metadata: {namespace: %[1]s, name: writer}
spec:
  replicas: 1
  serviceName: writer
  selector: {matchLabels: {app: writer}}
  template:
    metadata: {labels: {app: writer}}
    spec:
      terminationGracePeriodSeconds: 0
      containers:
      - {name: main, image: "%[2]s", command: [sleep, "36000"], volumeDevices: [{name: device, devicePath: /dev/disk}]}
      volumes: [{name: device, persistentVolumeClaim: {claimName: device}}]
`

// content returns the checksum of the 16 MiB that the claim of a device asks for.
func content(t *testing.T, namespace, pod string) string {
	t.Helper()
	return shell(t, namespace, pod, "head -c 16777216 /dev/disk | sha256sum")
}

func TestADeviceGoesToWestAndBackWhileItsPodRuns(t *testing.T) {
	t.Parallel()
	shop := namespace(t)
	home.apply(t, fmt.Sprintf(raw, shop))
	home.apply(t, fmt.Sprintf(rawPod, shop, "first", image, strings.TrimPrefix(atHome, "    ")))
	first := readyPod(t, shop, "first")
	shell(t, shop, "first", "dd if=/dev/urandom of=/dev/disk bs=64k seek=48 count=64 conv=notrunc 2>/dev/null && sync")
	before := content(t, shop, "first")
	deletePod(t, first)
	home.apply(t, fmt.Sprintf(rawSet, shop, image))
	readyPod(t, shop, "writer-0")

	for _, target := range []struct{ cluster, node string }{{"west", virtualNode}, {keys.Home, home.node}} {
		from := volumeOf(t, shop, "device")
		requireMoved(t, move(t, shop, "device", target.cluster))
		pod := readyPod(t, shop, "writer-0")
		assert.Equal(t, target.node, pod.Spec.NodeName)
		assert.NotEqual(t, from.in, volumeOf(t, shop, "device").in)
		assert.Equal(t, before, content(t, shop, "writer-0"))
		from.requireCopyGone(t)

		shell(t, shop, "writer-0", "echo written in "+target.cluster+" | dd of=/dev/disk bs=512 seek=4096 conv=notrunc 2>/dev/null && sync")
		before = content(t, shop, "writer-0")
	}
}
