package pods

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/virtualnode/decide"
)

func claimWith(volume string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "data", UID: "c1"}, Spec: corev1.PersistentVolumeClaimSpec{VolumeName: volume}}
}

func volumeOf(claim types.UID, ref string) *corev1.PersistentVolume {
	volume := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pvc-c1"}, Spec: corev1.PersistentVolumeSpec{ClaimRef: &corev1.ObjectReference{UID: claim}}}
	if ref != "" {
		volume.Annotations = map[string]string{keys.Backing: ref}
	}
	return volume
}

func TestAPodGetsTheRealClaimThatItsVolumeNames(t *testing.T) {
	for name, test := range map[string]struct {
		home []runtime.Object
		want string
		says string
	}{
		"of the same name":                     {home: []runtime.Object{claimWith("pvc-c1"), volumeOf("c1", "west/shop/data/b1")}, want: "data"},
		"of another name":                      {home: []runtime.Object{claimWith("pvc-c1"), volumeOf("c1", "west/shop/pvc-c1-1/b1")}, want: "pvc-c1-1"},
		"without a claim at home":              {want: "data"},
		"of a claim without a volume":          {home: []runtime.Object{claimWith("")}, want: "data"},
		"of a volume that is not Lodestone's":  {home: []runtime.Object{claimWith("pvc-c1"), volumeOf("c1", "")}, want: "data"},
		"not while the volume is gone":         {home: []runtime.Object{claimWith("pvc-c1")}, says: "has lost its volume"},
		"not of the volume of another claim":   {home: []runtime.Object{claimWith("pvc-c1"), volumeOf("c2", "west/shop/data/b1")}, says: "is not, or no longer, that of claim"},
		"not where the data is at home":        {home: []runtime.Object{claimWith("pvc-c1"), volumeOf("c1", "home/lodestone-storage/pvc-c1/b1")}, says: "is not in namespace shop of cluster west"},
		"not where the data is in another one": {home: []runtime.Object{claimWith("pvc-c1"), volumeOf("c1", "east/shop/data/b1")}, says: "but in shop of east"},
		"not of a reference that says nothing": {home: []runtime.Object{claimWith("pvc-c1"), volumeOf("c1", "?")}, says: "cluster/namespace/name/uid"},
	} {
		t.Run(name, func(t *testing.T) {
			pod := homePodOn("west", "u1")
			o := decide.Observation{Pod: pod, Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Volumes: []corev1.Volume{
				{Name: "v", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}}}}}
			got, err := newRunner(t, &there{}, test.home...).withClaims(t.Context(), key{uid: "u1", namespace: "shop", name: "db-0"}, o)
			if test.says != "" {
				require.ErrorContains(t, err, test.says)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, test.want, got.Spec.Volumes[0].PersistentVolumeClaim.ClaimName)
			assert.Equal(t, "data", o.Template.Spec.Volumes[0].PersistentVolumeClaim.ClaimName, "what was observed is not changed")
		})
	}
}
