package replicas

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/must"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// TestASwitchoverEndsWellWhereverTheProvisionerDies moves a claim to its standby, and home again, while the provisioner dies at each kind
// of write. In the first and every second round after it the version that the move begins with is deleted meanwhile.
func TestASwitchoverEndsWellWhereverTheProvisionerDies(t *testing.T) {
	g := dying(t)
	namespace := space(t)
	counts(t, namespace, virtual, keys.Home)
	fill(t, folder(t, namespace))
	g.rounds(t, func(n int) {
		made := replicate(t, namespace, "west")
		sealed(t, made, time.Time{})
		version := pause(t, made).Status.Standbys[0].Versions[0].Name
		before := counted(t, folder(t, namespace))
		goes := func(cluster string, meanwhile func(*v1alpha1.VolumeMove)) *v1alpha1.VolumeMove {
			move := switchOver(t, namespace, cluster)
			meanwhile(move)
			move = inPhase(t, move, v1alpha1.MoveDone)
			before = beyond(t, namespace, before)
			must.Delete(t, objects(t).In(namespace), move.Name)
			await.Until(t, "the move is gone", func() bool { return must.Find(t, objects(t).In(namespace), move.Name) == nil })
			return move
		}
		if n%2 == 0 {
			move := goes("west", func(*v1alpha1.VolumeMove) {})
			require.LessOrEqual(t, move.Status.Claims[0].Sent, int64(16<<20/10), accepted(move))
			assert.Contains(t, accepted(move), "begins with version "+version)
		} else {
			uncordon := cordonWest(t)
			move := goes("west", func(move *v1alpha1.VolumeMove) {
				await.Until(t, "the target is to be made from the version", func() bool { return strings.HasPrefix(targetOf(t, move), version+" ") })
				must.Kubectl(t, bed.West, "", "delete", "volumesnapshots", "-n", namespace, "--all", "--wait=false")
				await.Until(t, "the target is made empty", func() bool { return isEmptyTarget(targetOf(t, move)) })
				uncordon()
			})
			assert.Contains(t, accepted(move), "does not begin with version "+version)
			must.Kubectl(t, bed.West, "", "annotate", "volumesnapshots", "-n", namespace, "--all", fmt.Sprintf("looked-at=%d", n))
		}
		goes(keys.Home, func(*v1alpha1.VolumeMove) {})
		removes(t, made)
		await.Until(t, "nothing is left in west", func() bool {
			return must.Kubectl(t, bed.West, "", "get", "pvc,volumesnapshots,pods", "-n", namespace, "-o", "name") == ""
		}, func() any { return must.Kubectl(t, bed.West, "", "get", "pvc,volumesnapshots,pods", "-n", namespace) })
		require.Len(t, must.List(t, bed.Home.Client().CoreV1().PersistentVolumeClaims(fabric.Storage)).Items, 1, "the claim's own")
	})
}
