package moves

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/backings"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// says waits until the status of a move says something.
func says(t *testing.T, made *v1alpha1.VolumeMove, words string) {
	t.Helper()
	var now *v1alpha1.VolumeMove
	await.Until(t, "the move says "+words, func() bool {
		var err error
		now, err = moves(t, made.Namespace).Get(t.Context(), made.Name, metav1.GetOptions{})
		require.NoError(t, err)
		return strings.Contains(now.Status.Message, words)
	}, func() any { return now.Status })
}

func TestATargetThatStaysAwayLetsThePodsGoOnAtTheSource(t *testing.T) {
	namespace := space(t)
	deploys(t, namespace, "data", stubborn)
	from := folder(t, namespace, "data")
	made := move(t, namespace, "data", "west", func(m *v1alpha1.VolumeMove) { m.Spec.RollBackAfter = &metav1.Duration{Duration: 2 * time.Second} })
	reaches(t, made, v1alpha1.MoveQuiesce, v1alpha1.MoveFence)
	require.NoError(t, bed.West.PauseAPIServer())
	away := true
	comes := func() {
		if away {
			away = false
			require.NoError(t, bed.West.ResumeAPIServer())
		}
	}
	defer comes()
	back := reaches(t, made, v1alpha1.MoveRollBack)
	t.Log(back.Status.Message)
	assert.Contains(t, back.Status.Message, "spec.rollBackAfter")
	counts(t, from, counted(t, from)+20)
	assert.Equal(t, from, folder(t, namespace, "data"))
	comes()
	failed := reaches(t, made, v1alpha1.MoveFailed, v1alpha1.MoveDone, v1alpha1.MoveAborted)
	assert.Equal(t, v1alpha1.MoveFailed, failed.Status.Phase)
	nothingLeft(t, namespace, made)
}

func TestAMoveWaitsForTheNodeWhosePodWasDeletedByForce(t *testing.T) {
	namespace := space(t)
	deploys(t, namespace, "data", heavy)
	core := bed.Home.Client().CoreV1()
	pods, err := core.Pods(namespace).List(t.Context(), metav1.ListOptions{LabelSelector: "app=data"})
	require.NoError(t, err)
	require.Len(t, pods.Items, 1)
	pod := pods.Items[0]
	made := move(t, namespace, "data", "west", slowly, func(m *v1alpha1.VolumeMove) { m.Spec.Passes = ptr.To(int32(1)) })
	reaches(t, made, v1alpha1.MovePreCopy)

	// Its node falls silent; the pod goes on there, but for home it is gone.
	require.NoError(t, bed.HomeNodes.SetAlive(pod.Spec.NodeName, false))
	alive := func() { require.NoError(t, bed.HomeNodes.SetAlive(pod.Spec.NodeName, true)) }
	defer alive()
	unready := []byte(`{"status":{"conditions":[{"type":"Ready","status":"Unknown","reason":"NodeStatusUnknown"}]}}`)
	_, err = core.Nodes().PatchStatus(t.Context(), pod.Spec.NodeName, unready)
	require.NoError(t, err)
	require.NoError(t, core.Pods(namespace).Delete(t.Context(), pod.Name, metav1.DeleteOptions{GracePeriodSeconds: ptr.To(int64(0))}))

	says(t, made, "nobody writes on node "+pod.Spec.NodeName)
	await.Never(t, "the volume must not be taken from a pod that may still write", func() bool {
		volume := await.Volume(t, bed.Home.Client(), await.Claim(t, bed.Home.Client(), namespace, "data").Spec.VolumeName)
		return volume == nil || volume.DeletionTimestamp != nil
	})
	// It comes back, and ends what nobody wants there any more.
	bed.HomePods.End(namespace, pod.Name)
	alive()
	done := reaches(t, made, v1alpha1.MoveDone, v1alpha1.MoveFailed, v1alpha1.MoveAborted)
	require.Equal(t, v1alpha1.MoveDone, done.Status.Phase, done.Status.Message)
	at := folder(t, namespace, "data")
	counts(t, at, counted(t, at)+10)
}

func TestAVolumeThatIsAttachedInTheRemoteClusterIsWaitedFor(t *testing.T) {
	t.Parallel()
	namespace := space(t)
	deploys(t, namespace, "data")
	done := reaches(t, move(t, namespace, "data", "west"), v1alpha1.MoveDone, v1alpha1.MoveFailed)
	require.Equal(t, v1alpha1.MoveDone, done.Status.Phase, done.Status.Message)
	volume := await.Volume(t, bed.Home.Client(), await.Claim(t, bed.Home.Client(), namespace, "data").Spec.VolumeName)
	ref, err := backings.RefOf(volume)
	require.NoError(t, err)
	shadow := await.Claim(t, bed.West.Client(), ref.Namespace, ref.Name)
	attachments := bed.West.Client().StorageV1().VolumeAttachments()
	attached, err := attachments.Create(t.Context(), &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: "moves-" + namespace}, Spec: storagev1.VolumeAttachmentSpec{
		Attacher: "disk.west.test", NodeName: "west-gone", Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &shadow.Spec.VolumeName},
	}}, metav1.CreateOptions{})
	require.NoError(t, err)

	made := move(t, namespace, "data", keys.Home)
	says(t, made, "node west-gone, which it is attached to")
	await.Never(t, "its virtual volume must stay", func() bool {
		volume := await.Volume(t, bed.Home.Client(), volume.Name)
		return volume == nil || volume.DeletionTimestamp != nil
	})
	require.NoError(t, attachments.Delete(t.Context(), attached.Name, metav1.DeleteOptions{}))
	done = reaches(t, made, v1alpha1.MoveDone, v1alpha1.MoveFailed, v1alpha1.MoveAborted)
	require.Equal(t, v1alpha1.MoveDone, done.Status.Phase, done.Status.Message)
}

func TestAPodWithoutAnOwnerHasItsMoveRefused(t *testing.T) {
	t.Parallel()
	namespace := space(t)
	makes(t, fabric.NewClaim(namespace, "data", fabric.Class), fabric.AtHome(application(namespace, "bare", "data")))
	refused := reaches(t, move(t, namespace, "data", "west"), v1alpha1.MoveFailed, v1alpha1.MoveDone)
	assert.Equal(t, v1alpha1.MoveFailed, refused.Status.Phase)
	assert.Contains(t, refused.Status.Message, `pod "bare" uses the volume and nobody would make it anew`)
	from := folder(t, namespace, "data")
	counts(t, from, counted(t, from)+5)

	// Without it the claim moves, and a pod that is made meanwhile waits and runs there.
	core := bed.Home.Client().CoreV1()
	require.NoError(t, core.Pods(namespace).Delete(t.Context(), "bare", metav1.DeleteOptions{}))
	await.Until(t, "the pod is gone", func() bool {
		_, err := core.Pods(namespace).Get(t.Context(), "bare", metav1.GetOptions{})
		return err != nil
	})
	done := reaches(t, move(t, namespace, "data", "west", func(m *v1alpha1.VolumeMove) { m.Name = "again" }), v1alpha1.MoveDone, v1alpha1.MoveFailed)
	require.Equal(t, v1alpha1.MoveDone, done.Status.Phase, done.Status.Message)
	pod := application(namespace, "bare", "data")
	pod.Spec.Tolerations = append(pod.Spec.Tolerations, corev1.Toleration{Key: keys.RemoteTaint, Operator: corev1.TolerationOpExists})
	_, err := core.Pods(namespace).Create(t.Context(), pod, metav1.CreateOptions{})
	require.NoError(t, err)
	assert.Equal(t, fabric.WestNode, runs(t, namespace, "bare"))
}
