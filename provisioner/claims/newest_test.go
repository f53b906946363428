package claims

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/lodestone-storage/lodestone/pkg/backing"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/claims/steps"
)

// TestAClaimIsLockedOnlyIfTheAPIServersConfirmThatItsVolumeIsBehind is about caches that lag: the volume's behind those of claims.
func TestAClaimIsLockedOnlyIfTheAPIServersConfirmThatItsVolumeIsBehind(t *testing.T) {
	const uid types.UID = "0b5c7a52-6f0e-4b2e-9a53-3f1f5c0d9e11"
	place := backing.Place{HomeID: "h1", StorageNamespace: "lodestone-storage"}
	twin := func(name, generation string) *corev1.PersistentVolumeClaim {
		return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "lodestone-storage", Name: name,
			UID:         types.UID("b-" + name),
			Labels:      map[string]string{keys.ClaimUID: string(uid), keys.HomeID: "h1"},
			Annotations: map[string]string{keys.Claim: "shop/data", keys.Generation: generation}}}
	}
	for name, row := range map[string]struct {
		change func(volume *corev1.PersistentVolume, newer, claim *corev1.PersistentVolumeClaim)
		moving bool
		locked bool
	}{
		"it is behind":    {locked: true},
		"a move holds it": {moving: true},
		"its volume stands for the newer one by now": {change: func(v *corev1.PersistentVolume, newer, _ *corev1.PersistentVolumeClaim) {
			v.Annotations = map[string]string{keys.Backing: backing.RefTo(keys.Home, newer).String(), keys.Generation: "1"}
		}},
		"the older one was chosen since": {change: func(v *corev1.PersistentVolume, _, _ *corev1.PersistentVolumeClaim) {
			v.Annotations[keys.Generation] = "2"
		}},
		"the newer one was replaced since": {change: func(_ *corev1.PersistentVolume, newer, _ *corev1.PersistentVolumeClaim) {
			newer.Labels[keys.MoveOf] = "m2"
		}},
		"the newer one is gone": {change: func(_ *corev1.PersistentVolume, newer, _ *corev1.PersistentVolumeClaim) { newer.Name = "other" }},
		"its volume is another one": {change: func(v *corev1.PersistentVolume, _, _ *corev1.PersistentVolumeClaim) {
			v.UID = "v2"
		}},
	} {
		older, newer := twin("pvc-"+string(uid), ""), twin("pvc-"+string(uid)+"-1", "1")
		volume := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pvc-" + string(uid), UID: "v1",
			Annotations: map[string]string{keys.Backing: backing.RefTo(keys.Home, older).String()}}}
		claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "data", UID: uid}}
		o := steps.Observation{UID: uid, Claim: claim.DeepCopy(), Volume: volume.DeepCopy()}
		o.Standing = place.Compare(o.Volume, types.NamespacedName{Namespace: "shop", Name: "data"}, uid,
			[]backing.Copy{{Cluster: keys.Home, Claim: older.DeepCopy()}, {Cluster: keys.Home, Claim: newer.DeepCopy()}})
		require.True(t, o.Standing.Behind(), name)
		if row.change != nil {
			row.change(volume, newer, claim)
		}
		client := fake.NewClientset(older, newer, volume, claim)
		f := New(Config{Client: client, Place: place, Held: func(types.UID) bool { return row.moving }})
		err := f.lockClaim(t.Context(), o)
		have, lookErr := client.CoreV1().PersistentVolumeClaims("shop").Get(t.Context(), "data", metav1.GetOptions{})
		require.NoError(t, lookErr)
		if row.locked {
			require.NoError(t, err, name)
			assert.Equal(t, keys.MovingNow, have.Labels[keys.Moving], name)
			assert.Equal(t, map[string]string{keys.Move: keys.NoMove, keys.Newer: backing.RefTo(keys.Home, newer).String()}, have.Annotations, name)
			continue
		}
		require.ErrorIs(t, err, errChanged, name)
		assert.Empty(t, have.Labels, name)
	}
}
