package provisioning

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
)

// TestWaitingClaimFollowsItsClassThatIsMadeAnew deletes the class while the backing
// claim waits for its volume, and makes it anew with another real class, which
// makes volumes, and with the policy Retain.
func TestWaitingClaimFollowsItsClassThatIsMadeAnew(t *testing.T) {
	t.Parallel()
	for _, route := range routes {
		t.Run(route.name, func(t *testing.T) {
			t.Parallel()
			namespace := space(t)
			stuck, good := "stuck-"+namespace, "good-"+namespace
			parameters := realClass(t, route, stuck, true)
			goodParameters := realClass(t, route, good, false)
			class := newClass(t, parameters)
			claim := createClaim(t, fabric.NewClaim(namespace, "data", class))
			createPod(t, route.place(fabric.NewPod(namespace, "db", "data")))
			first := route.backingIs(t, claim, stuck)

			removeClass(t, bed.Home, class)
			consistently(t, func() bool {
				b := claimOf(t, route.cluster(), first.Namespace, first.Name)
				return b != nil && b.UID == first.UID && b.DeletionTimestamp == nil
			}, "the class may come back: what waits must stay")
			makeAnew(t, class, func(c *storagev1.StorageClass) { goodParameters(c); retain(c) })

			second := route.backingIs(t, claim, good)
			assert.NotEqual(t, first.UID, second.UID)
			runs(t, namespace, "db")
			_, virtual := bound(t, bed.Home, namespace, "data")
			removeAfter(t, route.cluster(), second.Namespace, second.Name)
			t.Cleanup(func() {
				_ = bed.Home.Client().CoreV1().PersistentVolumes().Delete(context.Background(), virtual.Name, metav1.DeleteOptions{})
			})
			assert.Equal(t, corev1.PersistentVolumeReclaimRetain, virtual.Spec.PersistentVolumeReclaimPolicy)
			assert.Equal(t, second.UID, backingOf(t, virtual).UID)
		})
	}
}

// TestClassThatBindsAtOnceIsRefusedUntilItIsMended makes a class anew with binding
// mode Immediate while a claim of it waits.
func TestClassThatBindsAtOnceIsRefusedUntilItIsMended(t *testing.T) {
	t.Parallel()
	for _, route := range routes {
		t.Run(route.name, func(t *testing.T) {
			t.Parallel()
			namespace := space(t)
			stuck := "stuck-" + namespace
			parameters := realClass(t, route, stuck, true)
			class := newClass(t, parameters)
			claim := createClaim(t, fabric.NewClaim(namespace, "data", class))
			createPod(t, route.place(fabric.NewPod(namespace, "db", "data")))
			b := route.backingIs(t, claim, stuck)
			removeClass(t, bed.Home, class)
			makeAnew(t, class, func(c *storagev1.StorageClass) {
				parameters(c)
				c.VolumeBindingMode = ptr.To(storagev1.VolumeBindingImmediate)
			})
			assert.Contains(t, await.Event(t, bed.Home.Client(), namespace, "data", "InvalidClaim"), "volumeBindingMode Immediate")
			assert.Nil(t, volumeOf(t, bed.Home, twinOf(claim)))

			removeClass(t, bed.Home, class)
			makeAnew(t, class, parameters)
			route.storage().ResetClass(stuck)
			runs(t, namespace, "db")
			_, virtual := bound(t, bed.Home, namespace, "data")
			assert.Equal(t, b.UID, backingOf(t, virtual).UID, "what waited is used")
		})
	}
}

// TestWaitingClaimThatIsDeletedLeavesNothing deletes what a claim that waits for its
// real volume depends on, and then the claim.
func TestWaitingClaimThatIsDeletedLeavesNothing(t *testing.T) {
	t.Parallel()
	for _, route := range routes {
		for _, row := range []struct {
			name   string
			remove func(t *testing.T, namespace, class, real string)
		}{
			{name: "after its class", remove: func(t *testing.T, namespace, class, _ string) {
				t.Helper()
				removeClass(t, bed.Home, class)
				deletePod(t, namespace, "db")
				deleteClaim(t, bed.Home, namespace, "data")
			}},
			{name: "after its real class", remove: func(t *testing.T, namespace, _, real string) {
				t.Helper()
				removeClass(t, route.cluster(), real)
				deletePod(t, namespace, "db")
				deleteClaim(t, bed.Home, namespace, "data")
			}},
			{name: "with its namespace", remove: func(t *testing.T, namespace, _, _ string) {
				t.Helper()
				deleteNamespace(t, bed.Home, namespace)
				namespaceGone(t, bed.Home, namespace)
			}},
		} {
			t.Run(route.name+", "+row.name, func(t *testing.T) {
				t.Parallel()
				namespace := space(t)
				stuck := "stuck-" + namespace
				class := newClass(t, realClass(t, route, stuck, true))
				claim := createClaim(t, fabric.NewClaim(namespace, "data", class))
				createPod(t, route.place(fabric.NewPod(namespace, "db", "data")))
				b := route.backingIs(t, claim, stuck)
				row.remove(t, namespace, class, stuck)

				absent(t, "claim", func() *corev1.PersistentVolumeClaim { return claimOf(t, bed.Home, namespace, "data") })
				absent(t, "backing claim", func() *corev1.PersistentVolumeClaim { return claimOf(t, route.cluster(), b.Namespace, b.Name) })
				assert.Nil(t, volumeOf(t, bed.Home, twinOf(claim)))
			})
		}
	}
}
