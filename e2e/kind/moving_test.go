package kind

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/volumemoves"
)

func moves(t *testing.T, namespace string) *volumemoves.Moves {
	t.Helper()
	client, err := volumemoves.NewClient(home.config)
	require.NoError(t, err)
	return client.In(namespace)
}

// move makes a VolumeMove of a claim that keeps the source no longer than it must.
func move(t *testing.T, namespace, claim, cluster string, tune ...func(*v1alpha1.VolumeMoveSpec)) *v1alpha1.VolumeMove {
	t.Helper()
	wanted := &v1alpha1.VolumeMove{
		ObjectMeta: metav1.ObjectMeta{GenerateName: claim + "-"},
		Spec:       v1alpha1.VolumeMoveSpec{Claims: []string{claim}, Target: v1alpha1.MoveTarget{Cluster: cluster}, KeepSourceFor: &metav1.Duration{Duration: time.Second}},
	}
	for _, change := range tune {
		change(&wanted.Spec)
	}
	made, err := moves(t, namespace).Create(t.Context(), wanted, metav1.CreateOptions{})
	require.NoError(t, err)
	return made
}

// reaches waits until a move is in one of some phases, or over.
func reaches(t *testing.T, made *v1alpha1.VolumeMove, phases ...v1alpha1.MovePhase) *v1alpha1.VolumeMove {
	t.Helper()
	phases = append(phases, v1alpha1.MoveDone, v1alpha1.MoveAborted, v1alpha1.MoveFailed)
	var now *v1alpha1.VolumeMove
	// A phase may be over soon.
	const often = 20 * time.Millisecond
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		var err error
		now, err = moves(t, made.Namespace).Get(t.Context(), made.Name, metav1.GetOptions{})
		require.NoError(c, err)
		assert.True(c, slices.Contains(phases, now.Status.Phase), "it is in phase %q: %s", now.Status.Phase, now.Status.Message)
	}, 2*long, often, "VolumeMove %s gets to %v", made.Name, phases)
	return now
}

// requireMoved waits until a move is done.
func requireMoved(t *testing.T, made *v1alpha1.VolumeMove) *v1alpha1.VolumeMove {
	t.Helper()
	done := reaches(t, made)
	require.Equal(t, v1alpha1.MoveDone, done.Status.Phase, done.Status.Message)
	require.Len(t, done.Status.Claims, 1)
	assert.NotEmpty(t, done.Status.Claims[0].SourceRoot)
	assert.Equal(t, done.Status.Claims[0].SourceRoot, done.Status.Claims[0].TargetRoot)
	require.NotNil(t, done.Status.Downtime)
	t.Logf("to %s: pods could not use the claim for %s: %s", done.Status.Target.Cluster, done.Status.Downtime.Duration, spans(done))
	t.Logf("its data travelled %s %+v %s", done.Status.Claims[0].Transport, done.Status.Claims[0].Legs, done.Status.Claims[0].TransportMessage)
	return done
}

// requireRefused waits until a move has come to nothing, and returns why.
func requireRefused(t *testing.T, made *v1alpha1.VolumeMove) string {
	t.Helper()
	ended := reaches(t, made)
	require.Equal(t, v1alpha1.MoveFailed, ended.Status.Phase, ended.Status.Message)
	t.Logf("refused: %s", ended.Status.Message)
	return ended.Status.Message
}

// spans says how long each phase took.
func spans(done *v1alpha1.VolumeMove) string {
	text := ""
	for i, phase := range done.Status.Phases[:len(done.Status.Phases)-1] {
		text += fmt.Sprintf("%s %s ", phase.Phase, done.Status.Phases[i+1].Since.Sub(phase.Since.Time).Round(time.Millisecond))
	}
	return text
}

// unpin lets the pods of keepers that were begun on one side run anywhere.
func (k keepers) unpin(t *testing.T) {
	t.Helper()
	before := k.ready(t, 1)[0]
	home.kubectl(t, "patch", "statefulset", k.name, "-n", k.namespace, "--type=json", "-p", `[{"op": "remove", "path": "/spec/template/spec/nodeSelector"}]`)
	requireReplaced(t, before)
}

// rows returns what the keeper of a pod has written.
func (k keepers) rows(t *testing.T) string {
	t.Helper()
	return shell(t, k.namespace, k.pod(0), "cat /data/rows")
}

// requireCopyGone waits until the copy that a volume had is gone, and what it had been.
func (v *volume) requireCopyGone(t *testing.T) {
	t.Helper()
	eventually(t, "the copy in "+v.in.name+" is gone, and its objects", func(c *assert.CollectT) {
		there, err := v.there(t.Context())
		require.NoError(c, err)
		assert.False(c, there, v.directory)
		assert.NoError(c, gone(v.in.client.CoreV1().PersistentVolumes().Get(t.Context(), v.real, metav1.GetOptions{})))
	})
}

// requireFree checks that nothing of a move is left on a claim.
func requireFree(t *testing.T, namespace, claim string, before *corev1.PersistentVolumeClaim) {
	t.Helper()
	now, err := home.client.CoreV1().PersistentVolumeClaims(namespace).Get(t.Context(), claim, metav1.GetOptions{})
	require.NoError(t, err)
	assert.Equal(t, before.UID, now.UID)
	assert.Equal(t, corev1.ClaimBound, now.Status.Phase)
	assert.NotContains(t, now.Finalizers, keys.MoveFinalizer)
	assert.NotContains(t, now.Labels, keys.Moving)
}

// claimOf returns a claim at home.
func claimOf(t *testing.T, namespace, name string) *corev1.PersistentVolumeClaim {
	t.Helper()
	claim, err := home.client.CoreV1().PersistentVolumeClaims(namespace).Get(t.Context(), name, metav1.GetOptions{})
	require.NoError(t, err)
	return claim
}
