package choose

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/cli"
	"github.com/lodestone-storage/lodestone/pkg/backing"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

func TestAChoiceIsMadeByTheUIDOfARealClaim(t *testing.T) {
	older := backing.Ref{Cluster: "home", Namespace: "lodestone-storage", Name: "pvc-u", UID: "old"}
	newer := backing.Ref{Cluster: "west", Namespace: "shop", Name: "data", UID: "new"}
	for name, row := range map[string]struct {
		uid    types.UID
		change func(*corev1.PersistentVolumeClaim, *corev1.PersistentVolume)
		want   Choice
		code   cli.ExitCode
		says   string
	}{
		"the newer one": {uid: "new", want: Choice{Has: newer, Other: older, Newer: true}},
		"the older one": {uid: "old", want: Choice{Has: older, Other: newer}},
		"none is named": {code: cli.Usage, says: "newer: real claim shop/data in cluster west, --uid new; older: real claim"},
		"another one":   {uid: "other", code: cli.Refused, says: "claim shop/data cannot have a real claim with UID other: give one of these"},
		"the claim is not locked": {uid: "new", code: cli.Refused, says: "is not locked",
			change: func(c *corev1.PersistentVolumeClaim, _ *corev1.PersistentVolume) { c.Labels = nil }},
		"its volume says nothing": {uid: "old", code: cli.Refused, says: "does not say which",
			change: func(_ *corev1.PersistentVolumeClaim, v *corev1.PersistentVolume) { v.Annotations = nil }},
		"the newer one is not known, and the older one is chosen": {uid: "old", want: Choice{Has: older},
			change: func(c *corev1.PersistentVolumeClaim, _ *corev1.PersistentVolume) { delete(c.Annotations, keys.Newer) }},
		"the newer one is not known, and none is named": {code: cli.Usage, says: "shop/data gets: older: real claim",
			change: func(c *corev1.PersistentVolumeClaim, _ *corev1.PersistentVolume) { delete(c.Annotations, keys.Newer) }},
	} {
		claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "data",
			Labels:      map[string]string{keys.Moving: keys.MovingNow},
			Annotations: map[string]string{keys.Move: keys.NoMove, keys.Newer: newer.String()}}}
		volume := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pvc-u",
			Annotations: map[string]string{keys.Backing: older.String()}}}
		if row.change != nil {
			row.change(claim, volume)
		}
		choice, err := Judge(claim, volume, row.uid)
		if row.says == "" {
			require.NoError(t, err, name)
			assert.Equal(t, row.want, choice, name)
			continue
		}
		require.ErrorContains(t, err, row.says, name)
		assert.Equal(t, row.code, cli.ExitCodeOf(err), name)
	}
}
