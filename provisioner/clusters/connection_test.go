package clusters

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"

	"github.com/lodestone-storage/lodestone/pkg/keys"
)

func TestAChangeOfARealVolumeIsToldToTheBackingClaimThatItBelongsTo(t *testing.T) {
	shadow := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{
		Namespace: "shop", Name: "data", UID: "second", Labels: map[string]string{keys.HomeID: "here"},
	}}
	for name, row := range map[string]struct {
		ref     corev1.ObjectReference
		shadow  types.UID
		backing types.UID
	}{
		"a volume of the claim that has the name":               {ref: corev1.ObjectReference{Namespace: "shop", Name: "data", UID: "second"}, shadow: "second"},
		"a volume made for the claim before the claim is bound": {ref: corev1.ObjectReference{Namespace: "shop", Name: "data"}, shadow: "second"},
		"a volume of an earlier claim of the same name":         {ref: corev1.ObjectReference{Namespace: "shop", Name: "data", UID: "first"}, backing: "first"},
		"a volume of a claim that is gone and has no successor": {ref: corev1.ObjectReference{Namespace: "shop", Name: "other", UID: "third"}, backing: "third"},
	} {
		t.Run(name, func(t *testing.T) {
			var toldShadow, toldBacking types.UID
			c := connect(t.Context(), "west", fake.NewClientset(shadow), "here", Hooks{
				Shadow:  func(*corev1.PersistentVolumeClaim) {},
				Backing: func(types.UID) {},
				Seen:    func(string, string) {},
			}, []string{"shop"}, func() {})
			require.True(t, cache.WaitForCacheSync(t.Context().Done(), c.watch("shop").HasSynced))
			told := &connection{hooks: Hooks{
				Shadow:  func(s *corev1.PersistentVolumeClaim) { toldShadow = s.UID },
				Backing: func(uid types.UID) { toldBacking = uid },
			}, shadows: c.shadows}
			told.volumeChanged(&corev1.PersistentVolume{Spec: corev1.PersistentVolumeSpec{ClaimRef: &row.ref}})
			assert.Equal(t, row.shadow, toldShadow)
			assert.Equal(t, row.backing, toldBacking)
		})
	}
}
