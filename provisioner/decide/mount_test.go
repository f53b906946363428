package decide_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/decide"
)

func options(options ...string) func(*corev1.PersistentVolume) {
	return func(v *corev1.PersistentVolume) { v.Spec.MountOptions, v.Spec.StorageClassName = options, "lodestone" }
}

func TestMountOptionsThatChangeNothingAreToldOnce(t *testing.T) {
	const told = "MountOptionsIgnored"
	full := func(b *decide.Backing) { pvcBound(b); published(b) }
	hasNoatime := func(b *decide.Backing) { options("noatime")(b.Volume) }
	block := func(v *corev1.PersistentVolume) { v.Spec.VolumeMode = ptr.To(corev1.PersistentVolumeBlock) }
	both := options("noatime", "sync")
	check(t, map[string]row{
		"of a volume that has just been made":         {given: []change{volume("west", both), have("west", pvcBound, hasNoatime)}, verb: decide.Mark, cluster: "west", tell: told},
		"not if the real volume has them":             {given: []change{volume("west", options("noatime")), have("west", pvcBound, hasNoatime)}, verb: decide.Mark, cluster: "west"},
		"not at home, where they are mounted with":    {given: []change{volume(keys.Home, both), have(keys.Home, pvcBound)}, verb: decide.Mark, cluster: keys.Home},
		"not of a block volume, which has none":       {given: []change{volume("west", both, block), have("west", pvcBound)}, verb: decide.Mark, cluster: "west"},
		"not before the real volume is there":         {given: []change{volume("west", both, nameless), have("west")}, verb: decide.Mark, cluster: "west"},
		"… nor where its name is written next":        {given: []change{volume("west", both, nameless), have("west", pvcBound)}, verb: decide.Mark, cluster: "west"},
		"… but when its name is written":              {given: []change{volume("west", both, nameless), have("west", full)}, verb: decide.Update, cluster: keys.Home, tell: told},
		"… and not again when its size is":            {given: []change{volume("west", both, small), have("west", full)}, verb: decide.Update, cluster: keys.Home},
		"not of a volume about which all was written": {given: []change{volume("west", both), have("west", full)}, verb: decide.Idle},
	})
	step := decide.Next(observe(volume("west", both), have("west", pvcBound, hasNoatime, of("fast"))))
	require.NotNil(t, step.Tell)
	assert.True(t, step.Tell.Warning)
	assert.Equal(t, `mount options "sync" of storage class "lodestone" have no effect in cluster west, where pods mount the real volume with options of its own: `+
		`for new volumes let its administrator set them in real storage class "fast", or name another class of that cluster`, step.Tell.Text)
}
