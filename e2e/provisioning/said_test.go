package provisioning

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/instant"
)

// TestClaimSaysWhatTheRealStorageSays has the real storage refuse to make volumes.
func TestClaimSaysWhatTheRealStorageSays(t *testing.T) {
	t.Parallel()
	const refusal = "the pool \"fast\" is full"
	for _, row := range []struct {
		name   string
		route  route
		mode   storagev1.VolumeBindingMode
		reason string
	}{
		{name: "at home", route: routes[0], mode: storagev1.VolumeBindingWaitForFirstConsumer, reason: "WaitingForBacking"},
		{name: "in the remote cluster, at once", route: routes[1], mode: storagev1.VolumeBindingImmediate, reason: "WaitingForBacking"},
		{name: "in the remote cluster, once its pod is there", route: routes[1], mode: storagev1.VolumeBindingWaitForFirstConsumer, reason: "BackingPending"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			namespace := space(t)
			real := "full-" + namespace
			row.route.storage().SetClass(real, instant.Behavior{Refuse: refusal})
			t.Cleanup(func() { row.route.storage().ResetClass(real) })
			makeClass(t, row.route.cluster(), row.route.storage().Class(real, row.mode))
			createClaim(t, fabric.NewClaim(namespace, "data", newClass(t, row.route.named(real))))
			createPod(t, row.route.place(fabric.NewPod(namespace, "db", "data")))

			told := ""
			eventually(t, func() bool {
				for _, line := range warnings(t, namespace) {
					if strings.HasPrefix(line, "Warning PersistentVolumeClaim/data "+row.reason) {
						told = line
					}
				}
				return told != ""
			}, func() string { return "the claim does not say why it waits" })
			assert.Contains(t, told, "ProvisioningFailed says ")
			assert.Contains(t, told, `the pool \"fast\" is full`)
		})
	}
}
