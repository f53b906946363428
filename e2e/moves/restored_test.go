package moves

import (
	"context"
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
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
)

// TestAMoveInABackupOfHomeCopiesNothingOverWhatIsInUseSince gives the objects of a move that is over the state that a
// backup of its phase PreCopy has. The source is older than the target by then.
func TestAMoveInABackupOfHomeCopiesNothingOverWhatIsInUseSince(t *testing.T) {
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
	var err error
	provisioner, err = bed.StartProvisioner(context.WithoutCancel(t.Context()))
	require.NoError(t, err)

	failed := reaches(t, made, v1alpha1.MoveFailed)
	assert.Contains(t, failed.Status.Message, "at the target is in use since")
	assert.Equal(t, written, counted(t, target), "what was written at the target is there")
	shadows, err := bed.West.Client().CoreV1().PersistentVolumeClaims(namespace).List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
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
	_, err := bed.Home.Client().AppsV1().Deployments(namespace).Patch(t.Context(), name, types.MergePatchType,
		fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas), metav1.PatchOptions{})
	require.NoError(t, err)
}

// restores has home know of a move, and of the volume of its claim, what it knew in PreCopy.
func restores(t *testing.T, made *v1alpha1.VolumeMove, volume *corev1.PersistentVolume) {
	t.Helper()
	core := bed.Home.Client().CoreV1()
	secret, err := core.Secrets(fabric.System).Get(t.Context(), record.SecretName(made.UID), metav1.GetOptions{})
	require.NoError(t, err)
	r, err := record.Decode(secret.Data["record"])
	require.NoError(t, err)
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
	_, err = core.Secrets(fabric.System).Update(t.Context(), secret, metav1.UpdateOptions{})
	require.NoError(t, err)

	putsBack(t, volume)
}

// putsBack has home know of the volume of a claim what it knew before.
func putsBack(t *testing.T, volume *corev1.PersistentVolume) {
	t.Helper()
	core := bed.Home.Client().CoreV1()
	require.NoError(t, core.PersistentVolumes().Delete(t.Context(), volume.Name, metav1.DeleteOptions{}))
	_, err := core.PersistentVolumes().Patch(t.Context(), volume.Name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`),
		metav1.PatchOptions{})
	require.NoError(t, err)
	then := volume.DeepCopy()
	then.UID, then.ResourceVersion, then.Spec.ClaimRef.ResourceVersion = "", "", ""
	_, err = core.PersistentVolumes().Create(t.Context(), then, metav1.CreateOptions{})
	require.NoError(t, err)
	require.NotEmpty(t, then.Annotations[keys.Backing])
}
