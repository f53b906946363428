package route_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/provisioner/route"
)

func TestSourcesThatAreUnderstood(t *testing.T) {
	const kind = "PersistentVolumeClaim"
	local := func(kind, name string) corev1.PersistentVolumeClaimSpec {
		return corev1.PersistentVolumeClaimSpec{DataSource: &corev1.TypedLocalObjectReference{Kind: kind, Name: name}}
	}
	ref := func(r corev1.TypedObjectReference) corev1.PersistentVolumeClaimSpec {
		return corev1.PersistentVolumeClaimSpec{DataSourceRef: &r}
	}
	for name, test := range map[string]struct {
		spec corev1.PersistentVolumeClaimSpec
		want string
		// snapshot is the snapshot that the claim is to be made from.
		snapshot, says string
	}{
		"an empty claim":                       {},
		"a copy of a claim":                    {spec: local(kind, "source"), want: "source"},
		"a copy of a claim, by reference":      {spec: ref(corev1.TypedObjectReference{Kind: kind, Name: "source"}), want: "source"},
		"an empty group is none":               {spec: ref(corev1.TypedObjectReference{APIGroup: ptr.To(""), Kind: kind, Name: "source"}), want: "source"},
		"its own namespace, named":             {spec: ref(corev1.TypedObjectReference{Kind: kind, Name: "source", Namespace: ptr.To("shop")}), want: "source"},
		"a claim of another namespace":         {spec: ref(corev1.TypedObjectReference{Kind: kind, Name: "source", Namespace: ptr.To("bank")}), says: `namespace "bank"`},
		"a source without a name":              {spec: local(kind, ""), says: "worse than none"},
		"a snapshot":                           {spec: ref(corev1.TypedObjectReference{APIGroup: ptr.To("snapshot.storage.k8s.io"), Kind: "VolumeSnapshot", Name: "friday"}), snapshot: "friday"},
		"a snapshot, by the older field":       {spec: corev1.PersistentVolumeClaimSpec{DataSource: &corev1.TypedLocalObjectReference{APIGroup: ptr.To("snapshot.storage.k8s.io"), Kind: "VolumeSnapshot", Name: "friday"}}, snapshot: "friday"},
		"a snapshot of another namespace":      {spec: ref(corev1.TypedObjectReference{APIGroup: ptr.To("snapshot.storage.k8s.io"), Kind: "VolumeSnapshot", Name: "friday", Namespace: ptr.To("bank")}), says: `namespace "bank"`},
		"a snapshot of no API group":           {spec: local("VolumeSnapshot", "friday"), says: `VolumeSnapshot "friday"`},
		"another kind that is called the same": {spec: ref(corev1.TypedObjectReference{APIGroup: ptr.To("example.com"), Kind: kind, Name: "source"}), says: "a claim or a VolumeSnapshot only"},
	} {
		t.Run(name, func(t *testing.T) {
			c := claim(nil)
			c.Spec = test.spec
			got, err := route.CopyOf(c)
			assert.Equal(t, test.want, got)
			assert.Equal(t, test.snapshot, route.SnapshotOf(c))
			if test.says == "" {
				require.NoError(t, err)
				return
			}
			var invalid *route.Invalid
			require.ErrorAs(t, err, &invalid)
			assert.Contains(t, invalid.Message, test.says)
		})
	}
}
