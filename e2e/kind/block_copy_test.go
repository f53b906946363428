package kind

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestACopyOfABlockVolumeFollowsIt: a device of 512 MiB at home, of which 80 places of 64 KiB are changed, about 1 %. The next version
// is made of these alone, and a pod in west reads from it what the device has.
func TestACopyOfABlockVolumeFollowsIt(t *testing.T) {
	if !thorough() {
		t.Skip("whole devices are read many times: set E2E_LONG")
	}
	const size, filled, changed = 512 << 20, 64 << 20, 80 * 64 << 10
	shop := namespace(t)
	home.apply(t, fmt.Sprintf(diskClaim, shop, "device", diskClass, "  volumeMode: Block\n"))
	home.apply(t, fmt.Sprintf(rawPod, shop, "writer", image, strings.TrimPrefix(atHome, "    ")))
	readyPod(t, shop, "writer")
	require.Equal(t, home, volumeOf(t, shop, "device").in)
	write := func(command string) {
		shell(t, shop, "writer", "set -e; test -b /dev/disk; "+command+"; sync")
	}
	write("dd if=/dev/urandom of=/dev/disk bs=1M count=64 conv=notrunc 2>/dev/null")
	succeed(t, "replicate", "device", "-n", shop, "--to", "west", "--rpo", "30s", "--keep", "2", "--wait")
	before := awaitPaused(t, shop, "device-west").Versions[0].Name

	write("for i in $(seq 0 79); do dd if=/dev/urandom of=/dev/disk bs=64k count=1 seek=$((i*100)) conv=notrunc 2>/dev/null; done")
	succeed(t, "replicate", "resume", "device-west", "-n", shop)
	var sent int64
	eventually(t, "the next version is sealed", func(c *assert.CollectT) {
		standby := replicaOf(t, c, shop, "device-west").Status.Standbys[0]
		require.NotEmpty(c, standby.Versions)
		require.NotEqual(c, before, standby.Versions[0].Name)
		sent = standby.Sent
	})
	t.Logf("of %d bytes %d were changed, and %d sent", size, changed, sent)
	assert.GreaterOrEqual(t, sent, int64(changed))
	assert.Less(t, sent, int64(filled)/4)

	succeed(t, "failover", "device", "-n", shop, "--test", "--name", "drill")
	home.apply(t, strings.Replace(fmt.Sprintf(rawPod, shop, "reader", image, ""), "claimName: device", "claimName: drill", 1))
	require.Equal(t, virtualNode, readyPod(t, shop, "reader").Spec.NodeName)
	sum := fmt.Sprintf("head -c %d /dev/disk | sha256sum", size)
	assert.Equal(t, shell(t, shop, "writer", sum), shell(t, shop, "reader", sum))
	home.kubectl(t, "delete", "pod", "reader", "writer", "-n", shop)
	home.kubectl(t, "delete", "pvc", "drill", "-n", shop)
	succeed(t, "replicate", "delete", "device-west", "-n", shop, "--yes")
}
