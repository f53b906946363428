package moves

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/backing"
)

func TestSweep(t *testing.T) {
	const storage = "lodestone-storage"
	meta := func(name string, move types.UID, annotations map[string]string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: storage, Name: name, UID: types.UID(name), Annotations: annotations,
			Labels: map[string]string{keys.MoveOf: string(move), keys.HomeID: "h1"}, Finalizers: []string{keys.BackingFinalizer}}
	}
	unpublished := map[string]string{keys.Unpublished: "true"}
	mover := func(name string, move types.UID) *corev1.Pod {
		m := meta(name, move, nil)
		m.Finalizers = nil
		return &corev1.Pod{ObjectMeta: m}
	}
	client := fake.NewClientset(
		mover("of-none", "m0"), mover("of-one-that-goes-on", "m1"), mover("of-one-that-is-over", "m2"),
		&corev1.PersistentVolumeClaim{ObjectMeta: meta("late", "m2", unpublished)},
		&corev1.PersistentVolumeClaim{ObjectMeta: meta("kept", "m2", nil)},
		&corev1.PersistentVolumeClaim{ObjectMeta: meta("made", "m1", unpublished)},
	)
	c := New(Config{Client: client, Registry: NewRegistry(), Namespace: "lodestone-system", Released: func(types.UID) {},
		Place: backing.Place{HomeID: "h1", StorageNamespace: storage}})
	for uid, phase := range map[types.UID]v1alpha1.MovePhase{"m1": v1alpha1.MovePreCopy, "m2": v1alpha1.MoveAborted} {
		r := recordIn(phase)
		r.UID, r.Began = uid, map[v1alpha1.MovePhase]time.Time{}
		r.Claims = nil
		_, err := c.write(t.Context(), nil, r)
		require.NoError(t, err)
	}
	require.NoError(t, c.sweep(t.Context()))

	pods, err := client.CoreV1().Pods(storage).List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	require.Len(t, pods.Items, 1)
	assert.Equal(t, "of-one-that-goes-on", pods.Items[0].Name)
	var left []string
	claims, err := client.CoreV1().PersistentVolumeClaims(storage).List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	for _, claim := range claims.Items {
		left = append(left, claim.Name)
	}
	assert.ElementsMatch(t, []string{"kept", "made"}, left, "what a volume stood for is nobody's to remove here")

	require.NoError(t, c.Load(t.Context()))
	assert.Len(t, c.Registry.all(), 2, "a new leader knows all moves")
}
