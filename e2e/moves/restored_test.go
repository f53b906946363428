package moves

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/must"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
)

// TestAMoveInABackupOfHomeCopiesNothingOverWhatIsInUseSince gives the objects of a move that is over the state that a
// backup of its phase PreCopy has. The source is older than the target by then.
func TestAMoveInABackupOfHomeCopiesNothingOverWhatIsInUseSince(t *testing.T) {
	testbed.NotInShort(t)
	namespace := space(t)
	deploys(t, namespace, "data")
	before := await.Volume(t, bed.Home.Client(), await.Claim(t, bed.Home.Client(), namespace, "data").Spec.VolumeName)
	made := move(t, namespace, "data", "west", func(m *v1alpha1.VolumeMove) { m.Spec.KeepSourceFor = &metav1.Duration{Duration: time.Hour} })
	reaches(t, made, v1alpha1.MoveRetain)
	target := folder(t, namespace, "data")
	counts(t, target, counted(t, target)+20)
	idle(t, namespace, "data")

	require.NoError(t, provisioner.Stop())
	written := counted(t, target)
	restores(t, made, before)
	resume(t)

	failed := reaches(t, made, v1alpha1.MoveFailed)
	assert.Contains(t, failed.Status.Message, "at the target is in use since")
	assert.Equal(t, written, counted(t, target), "what was written at the target is there")
	shadows := must.List(t, bed.West.Client().CoreV1().PersistentVolumeClaims(namespace))
	require.Len(t, shadows.Items, 1)
	assert.Nil(t, shadows.Items[0].DeletionTimestamp)
}

// idle scales a Deployment down, and waits until its pods are gone.
func idle(t *testing.T, namespace, name string) {
	t.Helper()
	scales(t, namespace, name, 0)
	await.Until(t, "the pods are gone", func() bool { return len(podsOf(t, namespace, name)) == 0 })
}

func scales(t *testing.T, namespace, name string, replicas int) {
	t.Helper()
	must.Patch(t, bed.Home.Client().AppsV1().Deployments(namespace), name, types.MergePatchType,
		fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas))
}

// restores has home know of a move, and of the volume of its claim, what it knew in PreCopy.
func restores(t *testing.T, made *v1alpha1.VolumeMove, volume *corev1.PersistentVolume) {
	t.Helper()
	core := bed.Home.Client().CoreV1()
	secret, err := core.Secrets(fabric.System).Get(t.Context(), record.SecretName(made.UID), metav1.GetOptions{})
	require.NoError(t, err)
	r := recordOf(t, made)
	for phase := range r.Began {
		if record.Before(v1alpha1.MovePreCopy, phase) {
			delete(r.Began, phase)
		}
	}
	r.Phase, r.Down, r.Up = v1alpha1.MovePreCopy, time.Time{}, time.Time{}
	known := &r.Claims[0]
	known.Pass, known.Settled, known.New, known.Try, known.Instance, known.SourceRoot, known.TargetRoot = 1, false, nil, 0, "", "", ""
	secret.Data["record"], err = record.Encode(r)
	require.NoError(t, err)
	must.Update(t, core.Secrets(fabric.System), secret)

	putsBack(t, volume)
}

// putsBack has home know of the volume of a claim what it knew before.
func putsBack(t *testing.T, volume *corev1.PersistentVolume) {
	t.Helper()
	core := bed.Home.Client().CoreV1()
	must.Delete(t, core.PersistentVolumes(), volume.Name)
	must.Patch(t, core.PersistentVolumes(), volume.Name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
	then := volume.DeepCopy()
	then.UID, then.ResourceVersion, then.Spec.ClaimRef.ResourceVersion = "", "", ""
	must.Create(t, core.PersistentVolumes(), then)
	require.NotEmpty(t, then.Annotations[keys.Backing])
}

// TestARestoredHomeKeepsTheCopyThatDataWentBackInto gives home's objects the state of a backup from before a move went back into the copy
// that an earlier one kept at home. That copy has the newer data then, and home does not know it.
func TestARestoredHomeKeepsTheCopyThatDataWentBackInto(t *testing.T) {
	testbed.NotInShort(t)
	namespace := space(t)
	deploys(t, namespace, "data")
	kept, core := folder(t, namespace, "data"), bed.Home.Client().CoreV1()
	first := reaches(t, move(t, namespace, "data", "west", keepsSource), v1alpha1.MoveRetain)
	before := await.Volume(t, bed.Home.Client(), await.Claim(t, bed.Home.Client(), namespace, "data").Spec.VolumeName)
	await.Until(t, "the first move lets go of the claim", func() bool { return recordOf(t, first).Freed })
	known, err := core.Secrets(fabric.System).Get(t.Context(), record.SecretName(first.UID), metav1.GetOptions{})
	require.NoError(t, err)
	second := reaches(t, move(t, namespace, "data", keys.Home, keepsSource, into(first)), v1alpha1.MoveRetain)
	reaches(t, first, v1alpha1.MoveDone)
	counts(t, kept, counted(t, kept)+20)
	idle(t, namespace, "data")
	written := counted(t, kept)

	require.NoError(t, provisioner.Stop())
	source := recordOf(t, second).Claims[0].Target.Ref
	forgets(t, second)
	known.ResourceVersion = ""
	_ = core.Secrets(fabric.System).Delete(t.Context(), known.Name, metav1.DeleteOptions{})
	must.Create(t, core.Secrets(fabric.System), known)
	claims := core.PersistentVolumeClaims(source.Namespace)
	patched := must.Patch(t, claims, source.Name, types.MergePatchType, fmt.Appendf(nil,
		`{"metadata":{"labels":{%q:%q},"annotations":{%q:null,%q:"1"}}}`, keys.MoveOf, first.UID, keys.Generation, keys.ReplacedBy))
	must.Patch(t, core.PersistentVolumes(), patched.Spec.VolumeName, types.MergePatchType,
		[]byte(`{"spec":{"persistentVolumeReclaimPolicy":"Retain"}}`))
	putsBack(t, before)
	resume(t)

	assert.Contains(t, await.Event(t, bed.Home.Client(), namespace, "data", "NewerBacking"), "a move has replaced real claim")
	act(t, first, v1alpha1.ActionFinalize)
	says(t, first, "the copy at the source is not removed: a later move has replaced real claim "+namespace+"/data")
	assert.Equal(t, written, counted(t, kept), "what was written is there")

	must.Patch(t, claims, source.Name, types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"labels":{%q:null},"annotations":{%q:"2"}}}`,
		keys.MoveOf, keys.Generation))
	await.Until(t, "the copy can be chosen", func() bool {
		return await.Claim(t, bed.Home.Client(), namespace, "data").Annotations[keys.Newer] == source.String()
	}, func() any { return await.Events(t, bed.Home.Client(), namespace) })
	code, out, said := plugin(t, "choose", "pvc", "data", "-n", namespace, "--uid", string(source.UID), "--yes")
	require.Zero(t, code, said)
	assert.Contains(t, out, "claim data is now in cluster home")
	reaches(t, first, v1alpha1.MoveDone)
	scales(t, namespace, "data", 1)
	assert.Equal(t, kept, folder(t, namespace, "data"))
	counts(t, kept, written+10)
}

func recordOf(t *testing.T, made *v1alpha1.VolumeMove) *record.Record {
	t.Helper()
	secret := must.Get(t, bed.Home.Client().CoreV1().Secrets(fabric.System), record.SecretName(made.UID))
	r, err := record.Decode(secret.Data["record"])
	require.NoError(t, err)
	return r
}

// forgets has home know nothing of a move: neither its object nor its record.
func forgets(t *testing.T, made *v1alpha1.VolumeMove) {
	t.Helper()
	secrets := bed.Home.Client().CoreV1().Secrets(fabric.System)
	must.Patch(t, moves(t, made.Namespace), made.Name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
	must.Delete(t, moves(t, made.Namespace), made.Name)
	must.Delete(t, secrets, record.SecretName(made.UID))
}
