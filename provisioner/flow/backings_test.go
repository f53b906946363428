package flow

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/backing"
)

// What policy Retain keeps of a volume that was moved is found, though nothing names it.
func TestABackingClaimThatAMoveNamedIsFoundWhenNothingElseIsLeft(t *testing.T) {
	const uid = types.UID("5f3c0a52-6c0e-4f63-8a2e-007027119911")
	for name, test := range map[string]struct {
		alter func(*corev1.PersistentVolumeClaim)
		claim bool
		found bool
	}{
		"as it is":                       {found: true},
		"while it is a move's own":       {alter: func(b *corev1.PersistentVolumeClaim) { b.Labels[keys.MoveOf] = "m1" }},
		"not of another home":            {alter: func(b *corev1.PersistentVolumeClaim) { b.Labels[keys.HomeID] = "h2" }},
		"not while its claim is there":   {claim: true},
		"not under a name of no move":    {alter: func(b *corev1.PersistentVolumeClaim) { b.Name = "data" }},
		"not where it says nothing else": {alter: func(b *corev1.PersistentVolumeClaim) { b.Annotations = nil }},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			b := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{
				Namespace: "lodestone-storage", Name: backing.Moved(uid, 2), UID: "b",
				Labels: map[string]string{keys.ClaimUID: string(uid), keys.HomeID: "h1"}, Annotations: map[string]string{keys.Claim: "shop/data"},
			}}
			if test.alter != nil {
				test.alter(b)
			}
			require.NoError(t, s.Sources.Claims.GetStore().Add(b))
			if test.claim {
				s.claim("data", "", func(c *corev1.PersistentVolumeClaim) { c.UID = uid })
			}
			s.BackingChanged(b)
			if !test.found {
				assert.Empty(t, s.observe(uid, false).Backings)
				return
			}
			require.Len(t, s.observe(uid, false).Backings, 1)
			assert.Same(t, b, s.observe(uid, false).Backings[0].Claim)
		})
	}
}
