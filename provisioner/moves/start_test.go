package moves

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/movekeys"
	"github.com/lodestone-storage/lodestone/provisioner/backing"
	"github.com/lodestone-storage/lodestone/provisioner/moves/decide"
	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
)

func TestKeysBelongToTheMoverThatTheyAreFor(t *testing.T) {
	const storage = "lodestone-storage"
	client := fake.NewClientset()
	c := New(Config{Client: client, Place: backing.Place{HomeID: "h1", StorageNamespace: storage}})
	r := &record.Record{UID: "m1", Namespace: "shop", Phase: v1alpha1.MoveProvision, Claims: []record.Claim{{
		Name: "data", Keys: map[movekeys.Role]movekeys.Files{movekeys.Receiver: {"tls.key": []byte("key")}},
		Target: record.Copy{Ref: backing.Ref{Cluster: keys.Home, Namespace: storage, Name: "copy"}},
	}}}
	name := r.MoverName(0, record.Target)
	pods, secrets := client.CoreV1().Pods(storage), client.CoreV1().Secrets(storage)

	require.Error(t, c.startMover(t.Context(), r, 0, record.Target), "there is none")
	require.NoError(t, c.ensureMover(t.Context(), r, decide.Step{End: record.Target, Near: "node-1"}))
	pod, err := pods.Get(t.Context(), name, metav1.GetOptions{})
	require.NoError(t, err)
	assert.Equal(t, []corev1.PodSchedulingGate{{Name: keys.MovingGate}}, pod.Spec.SchedulingGates, "a pod that is made late starts nothing")
	affinity := pod.Spec.Affinity.NodeAffinity
	assert.Empty(t, affinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[0].MatchFields)
	assert.Equal(t, []corev1.PreferredSchedulingTerm{{Weight: 100, Preference: onNode("node-1")}}, affinity.PreferredDuringSchedulingIgnoredDuringExecution)
	m, _, err := c.moverAt(t.Context(), c.here(), r, 0, record.Target)
	require.NoError(t, err)
	assert.True(t, m.Exists && m.Unstarted)
	pod.UID = "p2"
	pod, err = pods.Update(t.Context(), pod, metav1.UpdateOptions{})
	require.NoError(t, err)

	// What a late request made for an earlier mover would be collected under this one.
	earlier := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name, OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: name, UID: "p1"}}}}
	_, err = secrets.Create(t.Context(), earlier, metav1.CreateOptions{})
	require.NoError(t, err)
	require.NoError(t, c.startMover(t.Context(), r, 0, record.Target))
	secret, err := secrets.Get(t.Context(), name, metav1.GetOptions{})
	require.NoError(t, err)
	assert.Equal(t, []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: name, UID: pod.UID}}, secret.OwnerReferences)
	assert.Equal(t, []byte("key"), secret.Data["tls.key"])
	m, pod, err = c.moverAt(t.Context(), c.here(), r, 0, record.Target)
	require.NoError(t, err)
	assert.True(t, m.Exists && !m.Unstarted)
	assert.Empty(t, pod.Spec.SchedulingGates)

	// A request to remove the earlier one arrives now.
	require.NoError(t, secrets.Delete(t.Context(), name, metav1.DeleteOptions{}))
	for range 2 {
		require.NoError(t, c.giveKeysAgain(t.Context(), r, 0, record.Target))
		again, err := secrets.Get(t.Context(), name, metav1.GetOptions{})
		require.NoError(t, err)
		assert.Equal(t, secret.OwnerReferences, again.OwnerReferences)
		assert.Equal(t, secret.Data, again.Data)
	}
}
