package healing

import (
	"errors"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/ptr"

	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/clients"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/remoteagent/policy"
	"github.com/lodestone-storage/lodestone/remoteagent/sources"
)

// agent returns a Controller among objects, its events and its client.
func agent(t *testing.T, objects ...runtime.Object) (*Controller, *record.FakeRecorder, *fake.Clientset) {
	t.Helper()
	client := fake.NewClientset(objects...)
	remote, err := clients.NewRemoteClient(&rest.Config{Host: "https://127.0.0.1:1"})
	require.NoError(t, err)
	metrics := NewMetrics(prometheus.NewRegistry())
	recorder := record.NewFakeRecorder(10)
	from := sources.New(client, remote)
	require.NoError(t, from.Namespaces.GetStore().Add(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop",
		Labels: map[string]string{keys.HomeID: "h1"}, Annotations: map[string]string{keys.MadeFor: "h1/shop"}}}))
	return New(Config{Client: client, Sources: from, Recorder: recorder, Metrics: metrics}), recorder, client
}

func shadow() (*corev1.PersistentVolumeClaim, *corev1.PersistentVolume) {
	return &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "data", UID: "old", DeletionTimestamp: ptr.To(metav1.Now()),
				Finalizers: []string{keys.BackingFinalizer}, Labels: map[string]string{keys.HomeID: "h1", keys.ClaimUID: "u1"}},
			Spec:   corev1.PersistentVolumeClaimSpec{VolumeName: "real"},
			Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound},
		}, &corev1.PersistentVolume{
			ObjectMeta: metav1.ObjectMeta{Name: "real"},
			Spec: corev1.PersistentVolumeSpec{ClaimRef: &corev1.ObjectReference{Namespace: "shop", Name: "data", UID: "old"},
				PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete},
		}
}

func TestAHealingThatIsRefusedIsLookedAtAgain(t *testing.T) {
	claim, volume := shadow()
	c, recorder, _ := agent(t, claim, volume)
	after, err := c.sync(t.Context(), "real")
	require.NoError(t, err)
	assert.Equal(t, recheckAfter, after, "nothing else may say that the reason is gone")
	assert.Contains(t, <-recorder.Events, "served no longer")
}

func TestWhatTheAPIServerRefusesIsToldOnceAndCounted(t *testing.T) {
	claim, volume := shadow()
	text, err := policy.RecordOf(volume, claim).Encode()
	require.NoError(t, err)
	volume.Annotations = map[string]string{keys.HealingRecord: text}
	volume.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRetain
	c, recorder, client := agent(t, volume)
	require.NoError(t, c.Sources.Homes.GetStore().Add(&remotev1alpha1.HomeCluster{ObjectMeta: metav1.ObjectMeta{Name: "h1"}}))
	require.NoError(t, c.Sources.Requests.GetStore().Add(&remotev1alpha1.NamespaceRequest{
		ObjectMeta: metav1.ObjectMeta{Namespace: policy.TenantNamespace("h1"), Name: "shop"},
		Spec:       remotev1alpha1.NamespaceRequestSpec{HomeNamespace: "shop"}}))
	client.PrependReactor("create", "persistentvolumeclaims", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(corev1.Resource("persistentvolumeclaims"), "data", errors.New("exceeded quota"))
	})
	for range 3 {
		_, err := c.sync(t.Context(), "real")
		require.ErrorContains(t, err, "exceeded quota")
	}
	require.Len(t, recorder.Events, 1)
	assert.Contains(t, <-recorder.Events, "exceeded quota")
	assert.Equal(t, 1, int(testutil.ToFloat64(c.Metrics.unhealed.WithLabelValues("NotHealed"))))
}

func TestWhatIsToldOfAVolume(t *testing.T) {
	metrics := NewMetrics(prometheus.NewRegistry())
	all, now := newWarnings(metrics.unhealed), time.Unix(1_000_000, 0)
	count := func(reason string) int { return int(testutil.ToFloat64(metrics.unhealed.WithLabelValues(reason))) }
	quota, taken := policy.Refusal{Reason: "NotHealed", Message: "quota"}, policy.Refusal{Reason: "NameTaken", Message: "name"}

	assert.True(t, all.isNew("a", quota, now))
	assert.False(t, all.isNew("a", quota, now.Add(59*time.Minute)), "not the same again")
	assert.True(t, all.isNew("a", quota, now.Add(61*time.Minute)), "but when its event is gone")
	assert.False(t, all.isNew("a", quota, now.Add(90*time.Minute)))
	assert.True(t, all.isNew("b", quota, now), "each volume has its own")
	assert.Equal(t, 2, count("NotHealed"))
	assert.True(t, all.isNew("a", taken, now), "what is new is told")
	assert.Equal(t, 1, count("NotHealed"))
	assert.Equal(t, 1, count("NameTaken"))
	all.clear("a")
	all.clear("a")
	all.clear("unknown")
	assert.Equal(t, 0, count("NameTaken"))
	assert.Equal(t, 1, count("NotHealed"))
	assert.True(t, all.isNew("a", taken, now), "after it was forgotten it is news")
}
