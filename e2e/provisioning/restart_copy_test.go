package provisioning

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// The provisioner is stopped on the way of a copy, and what is carried changes
// meanwhile on both sides: the next one finds out by itself.
func TestNextProvisionerGoesOnWithCopiesAndWhatIsCarried(t *testing.T) {
	for _, route := range routes {
		t.Run(route.name, func(t *testing.T) {
			namespace := space(t)
			class := newClass(t, with(keys.Carry, "*"))
			source := claimAndPod(t, namespace, class, route.place)
			_, virtual := bound(t, bed.Home, namespace, "data")
			claim := createClaim(t, copyOf(fabric.NewClaim(namespace, "copy", class), "data"))
			in, name := namespace, "copy"
			if route.cluster() == bed.Home {
				in, name = fabric.Storage, twinOf(claim)
			}
			route.storage().SetClaim(in, name, never)
			createPod(t, fabric.NewPod(namespace, "reader", "copy"))
			eventually(t, func() bool { return claimOf(t, route.cluster(), in, name) != nil }, func() string { return "the copy is not on its way" })

			stopProvisioner(t)
			change(t, bed.Home, source, annotations(map[string]any{"note": "new"}))
			change(t, route.cluster(), backingOf(t, virtual), annotations(map[string]any{"drift": "theirs", keys.Carried: `{"annotations":["drift"]}`}))
			route.storage().ResetClaim(in, name)
			startProvisioner(t)

			runs(t, namespace, "reader")
			isCopy(t, namespace, "copy", "data", route.storage())
			eventually(t, func() bool {
				b := backingOf(t, virtual)
				_, drift := b.Annotations["drift"]
				return b.Annotations["note"] == "new" && !drift
			}, func() string { return "what is carried is not in step" })
			require.Equal(t, string(source.UID), backingOf(t, virtual).Labels[keys.ClaimUID])
		})
	}
}
