package remote

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"

	"github.com/lodestone-storage/lodestone/pkg/keys"
)

func TestAClusterIsStartingUntilItIsKnownWhetherItCanBeUsed(t *testing.T) {
	for _, test := range []struct {
		name    string
		verdict verdict
		want    bool
	}{
		{name: "it was not asked yet", want: true},
		{name: "home watches whether a copy of it acts there", verdict: verdict{checked: true, epoch: takingOver("west")}, want: true},
		{name: "home is in doubt", verdict: verdict{checked: true, epoch: epochState{status: metav1.ConditionFalse, reason: "TwoHolders"}}},
		{name: "its caches fill", verdict: verdict{checked: true, unsynced: true, epoch: epochState{acts: true}}, want: true},
		{name: "all is well", verdict: verdict{checked: true, epoch: epochState{acts: true}}},
		{name: "there is no usable kubeconfig", verdict: verdict{unconfigured: "no Secret"}},
		{name: "it does not answer", verdict: verdict{checked: true, unsynced: true, finding: finding{unreachable: "refused"}}},
	} {
		t.Run(test.name, func(t *testing.T) { assert.Equal(t, test.want, (&Cluster{verdict: test.verdict}).Starting()) })
	}
}

func TestAChangeOfARealVolumeIsToldToTheBackingClaimThatItBelongsTo(t *testing.T) {
	shadow := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{
		Namespace: "shop", Name: "data", UID: "second", Labels: map[string]string{keys.HomeID: "here"},
	}}
	for name, row := range map[string]struct {
		ref     corev1.ObjectReference
		shadow  types.UID
		backing types.UID
	}{
		"a volume of the claim that has the name": {ref: corev1.ObjectReference{Namespace: "shop", Name: "data", UID: "second"},
			shadow: "second"},
		"a volume made for the claim before the claim is bound": {ref: corev1.ObjectReference{Namespace: "shop", Name: "data"}, shadow: "second"},
		"a volume of an earlier claim of the same name": {ref: corev1.ObjectReference{Namespace: "shop", Name: "data", UID: "first"},
			backing: "first"},
		"a volume of a claim that is gone and has no successor": {ref: corev1.ObjectReference{Namespace: "shop", Name: "other", UID: "third"},
			backing: "third"},
	} {
		t.Run(name, func(t *testing.T) {
			var toldShadow, toldBacking types.UID
			c := connect(t.Context(), "west", fake.NewClientset(shadow), "here", nil, []string{"shop"}, func() {})
			require.True(t, cache.WaitForCacheSync(t.Context().Done(), c.watchClaims("shop").HasSynced))
			told := &connection{listeners: listeners{{
				BackingChanged:       func(s *corev1.PersistentVolumeClaim) { toldShadow = s.UID },
				BackingVolumeChanged: func(uid types.UID) { toldBacking = uid },
			}}, claims: c.claims}
			told.volumeChanged(&corev1.PersistentVolume{Spec: corev1.PersistentVolumeSpec{ClaimRef: &row.ref}})
			assert.Equal(t, row.shadow, toldShadow)
			assert.Equal(t, row.backing, toldBacking)
		})
	}
}

// When somebody deletes a namespace it is recreated, and until then home has no rights in
// it: a watch that ends meanwhile retries only after half a minute or more.
func TestANamespaceThatIsGivenAgainIsWatchedAnewIfItsWatchWasForbidden(t *testing.T) {
	const namespace = "shop"
	for name, row := range map[string]struct {
		answer error
		anew   bool
	}{
		"rights were missing":         {answer: apierrors.NewForbidden(corev1.Resource("persistentvolumeclaims"), "", nil), anew: true},
		"the cluster did not answer":  {answer: errors.New("no answer")},
		"nothing happened to a watch": {},
	} {
		t.Run(name, func(t *testing.T) {
			client := fake.NewClientset()
			first := watch.NewRaceFreeFake()
			var wrong atomic.Bool
			client.PrependWatchReactor("persistentvolumeclaims", func(clienttesting.Action) (bool, watch.Interface, error) {
				if wrong.Load() {
					return true, nil, row.answer
				}
				return true, first, nil
			})
			client.PrependReactor("list", "persistentvolumeclaims", func(clienttesting.Action) (bool, runtime.Object, error) {
				return wrong.Load(), &corev1.PersistentVolumeClaimList{}, row.answer
			})
			c := connect(t.Context(), "west", client, "here", nil, []string{namespace}, func() {})
			before := c.watchClaims(namespace)
			require.True(t, cache.WaitForCacheSync(t.Context().Done(), before.HasSynced))
			if row.answer != nil {
				wrong.Store(true)
				asked := len(client.Actions())
				first.Stop()
				require.Eventually(t, func() bool { return len(client.Actions()) > asked+1 }, 30*time.Second, time.Millisecond, "it is asked again")
			}
			c.rewatchClaims(namespace)
			if row.anew {
				require.Eventually(t, func() bool { c.rewatchClaims(namespace); return before != c.watchClaims(namespace) }, 30*time.Second,
					time.Millisecond)
				return
			}
			assert.Same(t, before, c.watchClaims(namespace), "what is known stays known")
		})
	}
}

func TestAShadowUnderAnotherNameIsNotShown(t *testing.T) {
	c := connect(t.Context(), "west", fake.NewClientset(), "here", nil, []string{"shop"}, func() {})
	watched := c.watchClaims("shop")
	require.True(t, cache.WaitForCacheSync(t.Context().Done(), watched.HasSynced))
	require.NoError(t, watched.GetStore().Add(shadowOf(func(c *corev1.PersistentVolumeClaim) { c.Namespace, c.Name = "", "shop/data" })))
	shadow := shadowOf(nil)
	assert.Nil(t, c.claim(types.NamespacedName{Namespace: "shop", Name: "data"}))
	require.NoError(t, watched.GetStore().Add(shadow))
	assert.Equal(t, shadow, c.claim(types.NamespacedName{Namespace: "shop", Name: "data"}))
}
