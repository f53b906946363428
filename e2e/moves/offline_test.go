package moves

import (
	"context"
	"crypto/rand"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// forOnePod returns a claim that only one pod may use at a time. The nodes of the bed,
// and kube-scheduler in west, keep a second pod out, so a mover too.
func forOnePod(namespace, name string) *corev1.PersistentVolumeClaim {
	claim := fabric.NewClaim(namespace, name, fabric.Class)
	claim.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOncePod}
	return claim
}

func offline(m *v1alpha1.VolumeMove) { m.Spec.Offline = v1alpha1.OfflineAllow }

func TestAVolumeForOnePodMovesWhileItsPodStandsStill(t *testing.T) {
	t.Parallel()
	namespace := space(t)
	deploysWith(t, forOnePod(namespace, "data"))
	from := folder(t, namespace, "data")

	refused := reaches(t, move(t, namespace, "data", "west", func(m *v1alpha1.VolumeMove) { m.Name = "refused" }), v1alpha1.MoveFailed, v1alpha1.MoveDone)
	require.Equal(t, v1alpha1.MoveFailed, refused.Status.Phase, refused.Status.Message)
	assert.Contains(t, refused.Status.Message, `would stand still while all of claim "data" is copied, which is ReadWriteOncePod`)
	assert.Contains(t, refused.Status.Message, "allow that with spec.offline Allow (--offline)")
	_, err := moves(t, namespace).Patch(t.Context(), refused.Name, types.MergePatchType, []byte(`{"spec":{"offline":"Allow"}}`), metav1.PatchOptions{})
	require.ErrorContains(t, err, "offline cannot be changed")
	code, out, said := plugin(t, "move", "data", "-n", namespace, "--target-cluster", "west", "--offline", "--dry-run")
	require.Zero(t, code, said)
	assert.Contains(t, out, "would be stopped while all of ReadWriteOncePod claim data is copied")
	counts(t, from, counted(t, from)+10)

	for _, cluster := range []string{"west", keys.Home} {
		before := folder(t, namespace, "data")
		done := reaches(t, move(t, namespace, "data", cluster, offline), v1alpha1.MoveDone, v1alpha1.MoveFailed, v1alpha1.MoveAborted)
		require.Equal(t, v1alpha1.MoveDone, done.Status.Phase, done.Status.Message)
		t.Log("to", cluster, "downtime", done.Status.Downtime.Duration, spans(done))
		assert.Zero(t, done.Status.Claims[0].Pass, "nothing was copied beside the pod")
		assert.Equal(t, done.Status.Claims[0].SourceRoot, done.Status.Claims[0].TargetRoot)
		to := folder(t, namespace, "data")
		assert.NotEqual(t, before, to)
		counts(t, to, counted(t, to)+10)
		nothingLeft(t, namespace, done)
	}
}

// fill makes a volume that takes some seconds to copy slowly.
func fill(t *testing.T, folder string) {
	t.Helper()
	much := make([]byte, 16<<20)
	_, err := rand.Read(much)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(folder, "much"), much, 0o600))
}

func limited(m *v1alpha1.VolumeMove) { m.Spec.BandwidthLimit = ptr.To(resource.MustParse("2Mi")) }

// copies waits until some of a volume has been copied in the stop.
func copies(t *testing.T, made *v1alpha1.VolumeMove) {
	t.Helper()
	reaches(t, made, v1alpha1.MoveFinalSync)
	await.Until(t, "some of it is copied", func() bool {
		now, err := moves(t, made.Namespace).Get(t.Context(), made.Name, metav1.GetOptions{})
		require.NoError(t, err)
		return now.Status.Claims[0].Sent > 1<<20
	}, func() any { return movers(t, made) })
}

func TestACopyInTheStopOutlivesTheProvisioner(t *testing.T) {
	namespace := space(t)
	deploysWith(t, forOnePod(namespace, "data"))
	fill(t, folder(t, namespace, "data"))
	made := move(t, namespace, "data", "west", offline, limited)
	copies(t, made)
	require.NoError(t, provisioner.Stop())
	var err error
	provisioner, err = bed.StartProvisioner(context.WithoutCancel(t.Context()))
	require.NoError(t, err)
	done := reaches(t, made, v1alpha1.MoveDone, v1alpha1.MoveFailed, v1alpha1.MoveAborted)
	require.Equal(t, v1alpha1.MoveDone, done.Status.Phase, done.Status.Message)
	at := folder(t, namespace, "data")
	counts(t, at, counted(t, at)+10)
	nothingLeft(t, namespace, made)
}

func TestAMoveOfAVolumeForOnePodCanBeGivenUpInTheMiddle(t *testing.T) {
	t.Parallel()
	namespace := space(t)
	deploysWith(t, forOnePod(namespace, "data"))
	from := folder(t, namespace, "data")
	fill(t, from)

	for _, phase := range []v1alpha1.MovePhase{v1alpha1.MoveProvision, v1alpha1.MoveFinalSync} {
		made := move(t, namespace, "data", "west", offline, func(m *v1alpha1.VolumeMove) {
			m.Name = "given-up-in-" + strings.ToLower(string(phase))
		}, limited)
		reaches(t, made, phase, v1alpha1.MoveFinalSync)
		if phase == v1alpha1.MoveFinalSync {
			copies(t, made)
		}
		act(t, made, v1alpha1.ActionAbort)
		over := reaches(t, made, v1alpha1.MoveAborted, v1alpha1.MoveDone, v1alpha1.MoveFailed)
		require.Equal(t, v1alpha1.MoveAborted, over.Status.Phase, over.Status.Message)
		assert.Equal(t, from, folder(t, namespace, "data"))
		// Its pod runs only where no mover has the volume any more.
		counts(t, from, counted(t, from)+10)
		nothingLeft(t, namespace, made)
	}
}

func TestOneVolumeForOnePodAmongThoseOfAPodIsCopiedInTheStop(t *testing.T) {
	t.Parallel()
	namespace := space(t)
	_, err := bed.Home.Client().CoreV1().PersistentVolumeClaims(namespace).Create(t.Context(), forOnePod(namespace, "own"), metav1.CreateOptions{})
	require.NoError(t, err)
	deploysWith(t, fabric.NewClaim(namespace, "data", fabric.Class), func(pod *corev1.Pod) {
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: "own", VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "own"}}})
		pod.Spec.Containers[0].VolumeMounts = append(pod.Spec.Containers[0].VolumeMounts, corev1.VolumeMount{Name: "own", MountPath: "/own"})
		pod.Spec.Containers[0].Command[2] = "date >> /own/starts; " + pod.Spec.Containers[0].Command[2]
	})
	starts := func() string {
		data, err := os.ReadFile(filepath.Join(folder(t, namespace, "own"), "starts"))
		require.NoError(t, err)
		return string(data)
	}
	before := starts()
	both := func(m *v1alpha1.VolumeMove) { m.Spec.Claims = []string{"data", "own"} }

	refused := reaches(t, move(t, namespace, "refused", "west", both), v1alpha1.MoveFailed, v1alpha1.MoveDone)
	require.Equal(t, v1alpha1.MoveFailed, refused.Status.Phase, refused.Status.Message)
	assert.Contains(t, refused.Status.Message, `all of claim "own" is copied`)

	done := reaches(t, move(t, namespace, "both", "west", both, offline), v1alpha1.MoveDone, v1alpha1.MoveFailed, v1alpha1.MoveAborted)
	require.Equal(t, v1alpha1.MoveDone, done.Status.Phase, done.Status.Message)
	assert.Positive(t, done.Status.Claims[0].Pass, "the other one is copied while the pod runs")
	assert.Zero(t, done.Status.Claims[1].Pass)
	at := folder(t, namespace, "data")
	counts(t, at, counted(t, at)+10)
	assert.Contains(t, starts(), before)
	assert.Greater(t, len(starts()), len(before), "its pod has started at the target")
}
