package provisioning

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/lodestone-storage/lodestone/e2e/fabric"
)

// TestExpansionGoesOnWhenProvisionersAreKilled runs alone: it stops the
// provisioner that the others use.
func TestExpansionGoesOnWhenProvisionersAreKilled(t *testing.T) {
	namespace := space(t)
	const count = 12
	name := func(i int) string { return fmt.Sprintf("data-%d", i) }
	for i := range count {
		createClaim(t, fabric.NewClaim(namespace, name(i), fabric.Class))
		place := fabric.AtHome
		if i%3 != 0 {
			place = fabric.InWest
		}
		createPod(t, place(fabric.NewPod(namespace, name(i), name(i))))
	}
	for i := range count {
		runs(t, namespace, name(i))
	}
	stopProvisioner(t)
	t.Cleanup(func() { startProvisioner(t) })
	r := startReplicas(t)
	grown := func(size string) (n int) {
		for i := range count {
			if sizes(t, bed.Home, namespace, name(i)) == [3]string{size, size, size} {
				n++
			}
		}
		return n
	}
	for round, size := range []string{"2Gi", "3Gi", "4Gi"} {
		for i := range count {
			ask(t, bed.Home, namespace, name(i), size)
		}
		// Each round dies a little later in its work.
		time.Sleep(time.Duration(round) * 20 * time.Millisecond)
		r.kill(t)
		eventually(t, func() bool { return grown(size) == count }, func() string { return fmt.Sprintf("%d of %d claims have %s", grown(size), count, size) })
	}
	for i := range count {
		claim := claimOf(t, bed.Home, namespace, name(i))
		noConditions(t, bed.Home, namespace, name(i))
		if i%3 != 0 {
			reaches(t, bed.West, namespace, name(i), "4Gi", "4Gi", "4Gi")
			continue
		}
		reaches(t, bed.Home, fabric.Storage, twinOf(claim), "4Gi", "4Gi", "4Gi")
	}
	for _, volume := range bed.WestStorage.VolumesOf(namespace) {
		assert.Equal(t, int64(4<<30), volume.Bytes)
	}
}
