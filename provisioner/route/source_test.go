package route_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/provisioner/route"
)

func TestCopyOf(t *testing.T) {
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
		says string
	}{
		"an empty claim":                       {},
		"a copy of a claim":                    {spec: local(kind, "source"), want: "source"},
		"a copy of a claim, by reference":      {spec: ref(corev1.TypedObjectReference{Kind: kind, Name: "source"}), want: "source"},
		"an empty group is none":               {spec: ref(corev1.TypedObjectReference{APIGroup: ptr.To(""), Kind: kind, Name: "source"}), want: "source"},
		"its own namespace, named":             {spec: ref(corev1.TypedObjectReference{Kind: kind, Name: "source", Namespace: ptr.To("shop")}), want: "source"},
		"a claim of another namespace":         {spec: ref(corev1.TypedObjectReference{Kind: kind, Name: "source", Namespace: ptr.To("bank")}), says: `namespace "bank"`},
		"a source without a name":              {spec: local(kind, ""), says: "worse than none"},
		"a snapshot":                           {spec: local("VolumeSnapshot", "friday"), says: `VolumeSnapshot "friday"`},
		"another kind that is called the same": {spec: ref(corev1.TypedObjectReference{APIGroup: ptr.To("example.com"), Kind: kind, Name: "source"}), says: "copy of a claim only"},
	} {
		t.Run(name, func(t *testing.T) {
			c := claim(nil)
			c.Spec = test.spec
			got, err := route.CopyOf(c)
			assert.Equal(t, test.want, got)
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
