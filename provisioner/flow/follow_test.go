package flow

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/decide"
	"github.com/lodestone-storage/lodestone/provisioner/route"
)

func asking(name string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "data", UID: "u1"},
		Spec:       corev1.PersistentVolumeClaimSpec{VolumeAttributesClassName: &name},
	}
}

func TestAttributesThatAClusterCannotGiveAreRefused(t *testing.T) {
	gold := &storagev1.VolumeAttributesClass{ObjectMeta: metav1.ObjectMeta{Name: "gold"}, DriverName: "disk.csi.dev"}
	fails := func(err error) *fake.Clientset {
		client := fake.NewClientset()
		client.PrependReactor("get", "volumeattributesclasses", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, err })
		return client
	}
	for name, test := range map[string]struct {
		client       *fake.Clientset
		asks, driver string
		says         string
		again        bool
	}{
		"none asked for":                        {client: fails(errors.New("asked for nothing"))},
		"a class that is there":                 {client: fake.NewClientset(gold), asks: "gold", driver: "disk.csi.dev"},
		"a driver that is not known":            {client: fake.NewClientset(gold), asks: "gold"},
		"a class that is not there":             {client: fake.NewClientset(gold), asks: "silver", says: `cluster west has no VolumeAttributesClass "silver"`},
		"a class of another driver":             {client: fake.NewClientset(gold), asks: "gold", driver: "other.csi.dev", says: `is for driver "disk.csi.dev"`},
		"a cluster that does not let one look":  {client: fails(apierrors.NewForbidden(schema.GroupResource{}, "gold", errors.New("no"))), asks: "gold", says: "apply Lodestone's manifests there anew"},
		"a cluster that does not answer so far": {client: fails(errors.New("connection refused")), asks: "gold", again: true},
	} {
		t.Run(name, func(t *testing.T) {
			refused, err := (&Flow{}).attributes(t.Context(), test.client, "west", asking(test.asks), test.driver)
			require.Equal(t, test.again, err != nil)
			if test.says == "" {
				assert.Nil(t, refused)
				return
			}
			require.NotNil(t, refused)
			assert.Equal(t, "NoAttributesClass", refused.Reason)
			assert.Equal(t, "west", refused.Cluster)
			assert.Contains(t, refused.Message, test.says)
		})
	}
}

func TestACopyIsNotMadeInAnotherNamespaceThanItsSource(t *testing.T) {
	step := decide.Step{Cluster: "west", Route: route.Route{Cluster: "west", Source: types.NamespacedName{Namespace: "shop", Name: "source"}}}
	o := decide.Observation{Claim: asking("")}
	refused, err := (&Flow{}).unmakeable(t.Context(), fake.NewClientset(), o, step, types.NamespacedName{Namespace: "shop", Name: "data"})
	require.NoError(t, err)
	assert.Nil(t, refused)
	refused, err = (&Flow{}).unmakeable(t.Context(), fake.NewClientset(), o, step, types.NamespacedName{Namespace: "shop-h1", Name: "data"})
	require.NoError(t, err)
	require.NotNil(t, refused)
	assert.Equal(t, "SourceInOtherNamespace", refused.Reason)
}

// Volume and claim are two writes: whatever comes between them, the step is taken
// again until both are done.
func TestAttributesAreToldAgainUntilBothWritesAreDone(t *testing.T) {
	claim := asking("gold")
	volume := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pvc-u1"}}
	shadow := &corev1.PersistentVolumeClaim{Status: corev1.PersistentVolumeClaimStatus{CurrentVolumeAttributesClassName: ptr.To("gold")}}
	client := fake.NewClientset(claim, volume)
	client.PrependReactor("patch", "persistentvolumeclaims", func(action clienttesting.Action) (bool, runtime.Object, error) {
		assert.Equal(t, "status", action.GetSubresource())
		return true, nil, errors.New("the leader was stopped")
	})
	f := New(Config{Client: client})
	look := func() (decide.Observation, decide.Step) {
		live, err := client.CoreV1().PersistentVolumes().Get(t.Context(), "pvc-u1", metav1.GetOptions{})
		require.NoError(t, err)
		now, err := client.CoreV1().PersistentVolumeClaims("shop").Get(t.Context(), "data", metav1.GetOptions{})
		require.NoError(t, err)
		return decide.Observation{Claim: now, Volume: live}, decide.Step{Cluster: keys.Home, Backing: decide.Backing{Cluster: "west", Claim: shadow}}
	}
	o, step := look()
	require.Error(t, f.update(t.Context(), o, step))
	o, step = look()
	assert.Equal(t, "gold", ptr.Deref(o.Volume.Spec.VolumeAttributesClassName, ""))
	require.True(t, decide.Attributed(o, step.Backing), "the claim does not tell yet")

	client.ReactionChain = client.ReactionChain[1:]
	require.NoError(t, f.update(t.Context(), o, step))
	o, step = look()
	assert.False(t, decide.Attributed(o, step.Backing))
}

func TestOnlyTheBackingClaimThatWasSeenIsBroughtInStep(t *testing.T) {
	b := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "lodestone-storage", Name: "pvc-u1", UID: "b1",
		Labels: map[string]string{keys.ClaimUID: "u1", "old": "x"}, Annotations: map[string]string{keys.Claim: "shop/data"}}}
	client := fake.NewClientset(b)
	f := New(Config{Client: client})
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	step := decide.Step{Cluster: keys.Home, Backing: decide.Backing{Cluster: keys.Home, Claim: b},
		Labels: map[string]any{"team": "a", "old": nil}, Annotations: map[string]any{keys.Carried: "{}"}}
	require.NoError(t, f.carry(context.Background(), decide.Observation{UID: "u1", Now: at}, step))
	have, err := client.CoreV1().PersistentVolumeClaims("lodestone-storage").Get(t.Context(), "pvc-u1", metav1.GetOptions{})
	require.NoError(t, err)
	assert.Equal(t, map[string]string{keys.ClaimUID: "u1", "team": "a"}, have.Labels)
	assert.Equal(t, map[string]string{keys.Claim: "shop/data", keys.Carried: "{}"}, have.Annotations)
	assert.Equal(t, at, f.memory.carriedAt("u1"))
	patch, ok := client.Actions()[0].(clienttesting.PatchAction)
	require.True(t, ok)
	assert.Contains(t, string(patch.GetPatch()), `"uid":"b1"`, "a later claim of that name is another")
}
