package moves

import (
	"encoding/json"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/must"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/backing"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// TestAHomeRestoredFromBeforeAMoveRunsNothingUntilSomebodyChooses gives home's objects the state of a backup from before two moves to
// west, where pods have written since. Of one claim the newer data is chosen then, of the other the older.
func TestAHomeRestoredFromBeforeAMoveRunsNothingUntilSomebodyChooses(t *testing.T) {
	testbed.NotInShort(t)
	namespace := space(t)
	first, second := movesAway(t, namespace, "first"), movesAway(t, namespace, "second")
	require.NoError(t, provisioner.Stop())
	first.forgets(t)
	second.forgets(t)
	resume(t)

	for _, m := range []*movedAway{first, second} {
		told := await.Event(t, bed.Home.Client(), namespace, m.name, "NewerBacking")
		assert.Contains(t, told, fmt.Sprintf("kubectl lodestone choose pvc %s -n %s --uid %s", m.name, namespace, m.target.UID))
		assert.Contains(t, told, m.source.UID)
		m.isGated(t)
		scales(t, namespace, m.name, 1)
	}
	second.shows(t)
	_, _, said := plugin(t, "choose", "pvc", "first", "-n", namespace)
	assert.Contains(t, said, "newer: real claim")
	await.Always(t, "no pod runs, and nothing is deleted", func() bool {
		return first.waits(t) && second.waits(t) && first.keepsBoth(t) && second.keepsBoth(t)
	})
	assert.Equal(t, first.old, counted(t, first.from), "nobody writes to the older copy")

	// A user with rights in the namespace chooses nothing, and no other move copies the older data over the newer.
	users := owner(t, namespace)
	_, err := users.CoreV1().PersistentVolumeClaims(namespace).Patch(t.Context(), "first", types.MergePatchType,
		fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"x"}}}`, keys.Unlock), metav1.PatchOptions{})
	require.True(t, apierrors.IsForbidden(err), "%v", err)
	other := move(t, namespace, "first", "west", func(m *v1alpha1.VolumeMove) { m.Name = "again" })
	assert.Contains(t, reaches(t, other, v1alpha1.MoveFailed).Status.Message, "was made by a later move")

	code, out, said := plugin(t, "choose", "pvc", "first", "-n", namespace, "--uid", string(first.target.UID), "--yes")
	require.Zero(t, code, said)
	assert.Contains(t, out, "claim first is now in cluster west")
	code, _, said = plugin(t, "choose", "pvc", "second", "-n", namespace, "--uid", string(second.source.UID), "--yes")
	require.Zero(t, code, said)
	for _, m := range []*movedAway{first, second} {
		unmarked(t, namespace, m.name)
		pod := podsOf(t, namespace, m.name)[0]
		bed.AwaitRunning(t, namespace, pod.Name)
	}
	assert.Equal(t, first.to, folder(t, namespace, "first"), "it has the newer data")
	counts(t, first.to, first.written)
	assert.Equal(t, second.from, folder(t, namespace, "second"), "it has the older data")
	counts(t, second.from, second.old)
	assert.Equal(t, first.old, counted(t, first.from))
	assert.Equal(t, second.written, counted(t, second.to))
	await.Always(t, "who has chosen is not asked again", func() bool {
		return !locked(t, namespace, "first") && !locked(t, namespace, "second") && first.keepsBoth(t) && second.keepsBoth(t)
	})

	// What was not chosen outlives the claim.
	for _, m := range []*movedAway{first, second} {
		idle(t, namespace, m.name)
		must.Delete(t, bed.Home.Client().CoreV1().PersistentVolumeClaims(namespace), m.name)
	}
	await.Until(t, "what was chosen is deleted with the claims", func() bool {
		return !first.has(t, first.target) && !second.has(t, second.source)
	}, func() any { return []any{first.volume(t), second.volume(t)} }, func() any { return await.Events(t, bed.Home.Client(), namespace) })
	assert.True(t, first.has(t, first.source), "the older copy of the first claim")
	assert.True(t, second.has(t, second.target), "the newer copy of the second claim")
	for _, path := range []string{first.from, second.to} {
		_, err := os.Stat(path)
		require.NoError(t, err)
	}
}

// movedAway is a claim that was moved from home to west, and what is in both copies.
type movedAway struct {
	namespace, name string
	made            *v1alpha1.VolumeMove
	before          *corev1.PersistentVolume
	source, target  backing.Ref
	from, to        string
	// old and written are how far the application had counted in the older and the newer copy.
	old, written int
}

func movesAway(t *testing.T, namespace, name string) *movedAway {
	t.Helper()
	m := &movedAway{namespace: namespace, name: name}
	deploys(t, namespace, name)
	m.before, m.from = m.volume(t), folder(t, namespace, name)
	m.made = move(t, namespace, name, "west", func(v *v1alpha1.VolumeMove) { v.Spec.KeepSourceFor = &metav1.Duration{Duration: time.Hour} })
	reaches(t, m.made, v1alpha1.MoveRetain)
	m.to = folder(t, namespace, name)
	counts(t, m.to, counted(t, m.from)+20)
	idle(t, namespace, name)
	m.old, m.written = counted(t, m.from), counted(t, m.to)
	require.Greater(t, m.written, m.old)
	var err error
	m.source, err = backing.RefOf(m.before)
	require.NoError(t, err)
	m.target, err = backing.RefOf(m.volume(t))
	require.NoError(t, err)
	return m
}

func (m *movedAway) volume(t *testing.T) *corev1.PersistentVolume {
	t.Helper()
	if m.before != nil {
		return await.Volume(t, bed.Home.Client(), m.before.Name)
	}
	return await.Volume(t, bed.Home.Client(), await.Claim(t, bed.Home.Client(), m.namespace, m.name).Spec.VolumeName)
}

// forgets has home know nothing of the move; what is in west stays.
func (m *movedAway) forgets(t *testing.T) {
	t.Helper()
	core := bed.Home.Client().CoreV1()
	forgets(t, m.made)
	must.Patch(t, core.PersistentVolumeClaims(m.source.Namespace), m.source.Name, types.MergePatchType,
		fmt.Appendf(nil, `{"metadata":{"labels":{%q:null},"annotations":{%q:null}}}`, keys.MoveOf, keys.ReplacedBy))
	must.Patch(t, core.PersistentVolumes(), m.before.Annotations[keys.BackingVolume], types.MergePatchType,
		[]byte(`{"spec":{"persistentVolumeReclaimPolicy":"Delete"}}`))
	putsBack(t, m.before)
}

// isGated waits until the API server, whose policies read claims from its cache, gates new pods of the claim.
func (m *movedAway) isGated(t *testing.T) {
	t.Helper()
	await.Until(t, "new pods of claim "+m.name+" wait at the gate", func() bool {
		made, err := bed.Home.Client().CoreV1().Pods(m.namespace).Create(t.Context(), fabric.NewPod(m.namespace, "asks", m.name),
			metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err == nil && len(made.Spec.SchedulingGates) > 0
	})
}

// waits says whether the application has a pod, which waits at the gate.
func (m *movedAway) waits(t *testing.T) bool {
	t.Helper()
	for _, pod := range podsOf(t, m.namespace, m.name) {
		if pod.Spec.NodeName != "" || len(pod.Spec.SchedulingGates) == 0 {
			return false
		}
	}
	return true
}

// shows waits until claim and plugin say what is wrong.
func (m *movedAway) shows(t *testing.T) {
	t.Helper()
	await.Until(t, "the claim has the condition", func() bool {
		for _, condition := range await.Claim(t, bed.Home.Client(), m.namespace, m.name).Status.Conditions {
			if condition.Type == keys.VolumeTrouble && condition.Reason == "NewerBacking" {
				return true
			}
		}
		return false
	}, func() any { return await.Events(t, bed.Home.Client(), m.namespace) })
	_, out, said := plugin(t, "why", "pvc", m.name, "-n", m.namespace)
	assert.Contains(t, out+said, "was made by a later move")
	await.Until(t, "there is a pod", func() bool { return len(podsOf(t, m.namespace, m.name)) == 1 })
	_, out, said = plugin(t, "why", "pod", podsOf(t, m.namespace, m.name)[0].Name, "-n", m.namespace)
	assert.Contains(t, out+said, "newer data of claim \""+m.name+"\" exists")
	_, out, _ = plugin(t, "status")
	assert.Contains(t, out, "was made by a later move")
}

// has says whether a real claim is there, and is not being deleted.
func (m *movedAway) has(t *testing.T, ref backing.Ref) bool {
	t.Helper()
	cluster := bed.West
	if ref.Cluster == keys.Home {
		cluster = bed.Home
	}
	b := await.Claim(t, cluster.Client(), ref.Namespace, ref.Name)
	return b != nil && b.UID == ref.UID && b.DeletionTimestamp == nil && b.Status.Phase == corev1.ClaimBound
}

func (m *movedAway) keepsBoth(t *testing.T) bool {
	t.Helper()
	return m.has(t, m.source) && m.has(t, m.target)
}

func locked(t *testing.T, namespace, name string) bool {
	t.Helper()
	claim := await.Claim(t, bed.Home.Client(), namespace, name)
	content, err := json.Marshal(claim.ObjectMeta)
	require.NoError(t, err)
	if claim.Labels[keys.Moving] != "" {
		t.Logf("%s", content)
		return true
	}
	return false
}
