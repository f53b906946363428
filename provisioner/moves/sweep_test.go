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
	"github.com/lodestone-storage/lodestone/pkg/backing"
	"github.com/lodestone-storage/lodestone/pkg/clients"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/remote"
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
		mover("move-m0-0-source", "m0"), mover("move-m1-0-source", "m1"), mover("move-m2-0-source", "m2"), mover("no-mover", "m2"),
		&corev1.PersistentVolumeClaim{ObjectMeta: meta("late", "m2", unpublished)},
		&corev1.PersistentVolumeClaim{ObjectMeta: meta("kept", "m2", nil)},
		&corev1.PersistentVolumeClaim{ObjectMeta: meta("made", "m1", unpublished)},
		&corev1.PersistentVolumeClaim{ObjectMeta: meta("in-use", "m2", unpublished)},
		&corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pvc-1", Labels: map[string]string{keys.Cluster: keys.Home},
			Annotations: map[string]string{keys.Backing: keys.Home + "/" + storage + "/in-use/in-use"}}},
	)
	moves := clients.NewVolumeMoveInformer(&clients.VolumeMoveClient{})
	c := New(Config{Client: client, Records: NewRecords(), Objects: moves, Clusters: remote.New(remote.Config{}),
		Namespace: "lodestone-system", Released: func(types.UID) {},
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
	var left []string
	for _, pod := range pods.Items {
		left = append(left, pod.Name)
	}
	assert.ElementsMatch(t, []string{"move-m1-0-source", "no-mover"}, left)
	left = nil
	claims, err := client.CoreV1().PersistentVolumeClaims(storage).List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	for _, claim := range claims.Items {
		left = append(left, claim.Name)
	}
	assert.ElementsMatch(t, []string{"kept", "made", "in-use"}, left, "what a volume stood for is nobody's to remove here")

	require.NoError(t, c.Load(t.Context()))
	assert.Len(t, c.Records.all(), 2, "a new leader knows all moves")

	// A request that was late has written the first record of a move that is over.
	over := metav1.Condition{Type: v1alpha1.MoveFinished, Status: metav1.ConditionTrue}
	require.NoError(t, moves.GetStore().Add(&v1alpha1.VolumeMove{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "m1", UID: "m1"},
		Status: v1alpha1.VolumeMoveStatus{Conditions: []metav1.Condition{over}}}))
	c.Records.set("m1", nil)
	require.NoError(t, c.sweep(t.Context()))
	assert.True(t, c.Records.has("m1"), "it is looked at")
}
