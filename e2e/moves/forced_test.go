package moves

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// tidy has an application write something two seconds after it was asked to end.
func tidy(pod *corev1.Pod) {
	pod.Spec.TerminationGracePeriodSeconds = ptr.To(int64(5))
	pod.Spec.Containers[0].Command[2] = "trap 'sleep 2; echo last words > /data/last; sync /data/last; exit' TERM; " + pod.Spec.Containers[0].Command[2]
}

// words returns what such an application has written last.
func words(t *testing.T, folder string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(folder, "last"))
	if !os.IsNotExist(err) {
		require.NoError(t, err)
	}
	return string(data)
}

func TestNothingIsLostOfAPodThatWritesOnAfterAForcedDeletion(t *testing.T) {
	t.Parallel()
	namespace := space(t)
	deploys(t, namespace, "data", tidy)
	core := bed.Home.Client().CoreV1()
	writesOn(t, core, namespace, "west", metav1.ListOptions{LabelSelector: "app=data"})
}

func TestNothingIsLostOfAPodThatIsDeletedByForceInItsRemoteCluster(t *testing.T) {
	t.Parallel()
	namespace := space(t)
	deploys(t, namespace, "data", tidy)
	there := reaches(t, move(t, namespace, "data", "west"), v1alpha1.MoveDone, v1alpha1.MoveFailed)
	require.Equal(t, v1alpha1.MoveDone, there.Status.Phase, there.Status.Message)
	at := folder(t, namespace, "data")
	counts(t, at, counted(t, at)+10)
	require.NoError(t, os.Remove(filepath.Join(at, "last")))
	writesOn(t, bed.West.Client().CoreV1(), namespace, keys.Home, metav1.ListOptions{LabelSelector: keys.PodUID})
}

// writesOn moves the claim data of a namespace, and deletes the pod that uses it by force
// in the middle, in the cluster where that is.
func writesOn(t *testing.T, core corev1client.CoreV1Interface, namespace, cluster string, those metav1.ListOptions) {
	t.Helper()
	from := folder(t, namespace, "data")
	pods, err := core.Pods(namespace).List(t.Context(), those)
	require.NoError(t, err)
	require.Len(t, pods.Items, 1)
	pod := pods.Items[0]

	made := move(t, namespace, "data", cluster, func(m *v1alpha1.VolumeMove) { m.Spec.KeepSourceFor = &metav1.Duration{Duration: time.Hour} })
	reaches(t, made, v1alpha1.MoveQuiesce)
	await.Until(t, "the pod is to end", func() bool {
		leaving, err := core.Pods(namespace).Get(t.Context(), pod.Name, metav1.GetOptions{})
		require.NoError(t, err)
		return leaving.DeletionTimestamp != nil
	})
	require.NoError(t, core.Pods(namespace).Delete(t.Context(), pod.Name, metav1.DeleteOptions{GracePeriodSeconds: ptr.To(int64(0))}))
	require.Empty(t, words(t, from), "it is gone for the API server, and goes on")

	said := ""
	await.Until(t, "the pods go on at the target", func() bool {
		now, err := moves(t, namespace).Get(t.Context(), made.Name, metav1.GetOptions{})
		require.NoError(t, err)
		if strings.Contains(now.Status.Message, "deleted by force") {
			said = now.Status.Message
		}
		require.NotContains(t, []v1alpha1.MovePhase{v1alpha1.MoveRollBack, v1alpha1.MoveFailed}, now.Status.Phase, now.Status.Message)
		return now.Status.Phase == v1alpha1.MoveRetain
	}, func() any { return said })
	await.Until(t, "it has ended", func() bool { return words(t, from) != "" })
	to := folder(t, namespace, "data")
	assert.Equal(t, "last words\n", words(t, to), "what it wrote last is not at the target")
	assert.Contains(t, said, "pod "+pod.Name+", which may still write on node "+pod.Spec.NodeName)
	counts(t, to, counted(t, to)+10)

	act(t, made, v1alpha1.ActionFinalize)
	done := reaches(t, made, v1alpha1.MoveDone)
	nothingLeft(t, namespace, done)
}
