package remotepods

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// cut cuts the way to west until mend is called or the test ends.
func cut(t *testing.T) (mend func()) {
	t.Helper()
	way.cut()
	mend = func() {
		way.mend()
		require.NoError(t, bed.AwaitNode(t.Context(), fabric.WestNode, corev1.ConditionTrue))
	}
	t.Cleanup(way.mend)
	require.NoError(t, bed.AwaitNode(t.Context(), fabric.WestNode, corev1.ConditionFalse))
	return mend
}

func TestForcedDeletionDuringAPartitionMakesNoSecondPod(t *testing.T) {
	namespace := open(t)
	statefulSet(t, namespace, "db")
	home, west := runs(t, namespace, "db-0")
	mend := cut(t)

	remove(t, namespace, "db-0", forced())
	await.Always(t, "the set gets no second pod while the first runs", func() bool {
		pod := get(t, bed.Home, namespace, "db-0")
		return pod != nil && pod.UID == home.UID && get(t, bed.West, namespace, "db-0").UID == west.UID
	})
	assert.Contains(t, await.Event(t, bed.Home.Client(), namespace, "db-0", "EndFailed"), "kubectl lodestone release pod")

	mend()
	await.Until(t, "the next pod of the set runs", func() bool {
		pod, there := get(t, bed.Home, namespace, "db-0"), get(t, bed.West, namespace, "db-0")
		return pod != nil && pod.UID != home.UID && pod.Status.Phase == corev1.PodRunning && there != nil && there.Labels[keys.PodUID] == string(pod.UID)
	})
}

func TestPodThatNeverStartedIsDeletedDuringAPartition(t *testing.T) {
	namespace := open(t)
	create(t, newPod(namespace, "web"))
	runs(t, namespace, "web") // the namespace is there
	way.heeds(func(r *http.Request) fate {
		if r.Method == http.MethodPost {
			return loses
		}
		return passes
	})
	t.Cleanup(func() { way.heeds(nil) })
	made := create(t, newPod(namespace, "never"))
	await.Until(t, "it is protected, and says what it waits for", func() bool {
		pod := get(t, bed.Home, namespace, "never")
		return len(pod.Finalizers) == 1 && pod.Status.Reason == "RemoteRequestFailed"
	})
	mend := cut(t)
	remove(t, namespace, "never", metav1.DeleteOptions{})
	await.Until(t, "it goes without a word from west", func() bool { return get(t, bed.Home, namespace, "never") == nil })
	way.heeds(nil)
	mend()
	gone(t, namespace, "never", made.UID)
}

func TestReleasedPodIsRemovedWhenWestIsBack(t *testing.T) {
	namespace := open(t)
	made := create(t, newPod(namespace, "web"))
	runs(t, namespace, "web")
	mend := cut(t)
	remove(t, namespace, "web", metav1.DeleteOptions{})
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"finalizers": nil}})
	require.NoError(t, err)
	_, err = bed.Home.Client().CoreV1().Pods(namespace).Patch(t.Context(), "web", types.MergePatchType, patch, metav1.PatchOptions{})
	require.NoError(t, err)
	await.Until(t, "home lets it go", func() bool { return get(t, bed.Home, namespace, "web") == nil })
	assert.NotNil(t, get(t, bed.West, namespace, "web"))
	mend()
	gone(t, namespace, "web", made.UID)
}

func TestRequestThatArrivesLateStartsNothing(t *testing.T) {
	namespace := open(t)
	create(t, newPod(namespace, "web"))
	runs(t, namespace, "web") // the namespace is there
	way.heeds(func(r *http.Request) fate {
		if r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/shadowpods") {
			return late
		}
		return passes
	})
	t.Cleanup(func() { way.heeds(nil) })
	made := create(t, newPod(namespace, "late"))
	await.Until(t, "the request is under way", func() bool {
		way.mu.Lock()
		defer way.mu.Unlock()
		return len(way.kept) > 0
	})
	remove(t, namespace, "late", forced())
	await.Until(t, "home's pod is gone", func() bool { return get(t, bed.Home, namespace, "late") == nil })
	require.NoError(t, program.Stop())
	way.heeds(nil)
	statuses, err := way.deliver()
	require.NoError(t, err)
	assert.Contains(t, statuses, http.StatusCreated)
	require.NotNil(t, shadow(t, namespace, "late"))
	await.Always(t, "nothing runs", func() bool { return get(t, bed.West, namespace, "late") == nil })
	restart(t)
	gone(t, namespace, "late", made.UID)
}

// restart starts the virtual node program anew.
func restart(t *testing.T) {
	t.Helper()
	var err error
	program, err = startProgram()
	require.NoError(t, err)
}

func TestPodsRunOnDuringAPartition(t *testing.T) {
	namespace := open(t)
	create(t, newPod(namespace, "web"))
	_, west := runs(t, namespace, "web")
	await.Until(t, "it is ready", func() bool { return ready(get(t, bed.Home, namespace, "web")) })
	mend := cut(t)
	await.Until(t, "home counts it as not ready", func() bool { return !ready(get(t, bed.Home, namespace, "web")) })
	await.Always(t, "it runs on in west", func() bool {
		pod := get(t, bed.West, namespace, "web")
		return pod != nil && pod.UID == west.UID && !ready(get(t, bed.Home, namespace, "web"))
	})
	mend()
	await.Until(t, "home counts it as ready", func() bool { return ready(get(t, bed.Home, namespace, "web")) })
	assert.Equal(t, west.UID, get(t, bed.West, namespace, "web").UID)
}
