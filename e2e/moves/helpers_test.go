package moves

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/processes"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	"github.com/lodestone-storage/lodestone/mover/harness"
	"github.com/lodestone-storage/lodestone/pkg/backings"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// space makes a namespace at home that is open to remote clusters, and deletes
// what is in it after the test.
func space(t *testing.T) string {
	t.Helper()
	testbed.Require(t)
	harness.Require(t)
	able.Store(true)
	name := "moves-" + rand.String(6)
	require.NoError(t, bed.Home.MakeNamespace(t.Context(), name))
	core := bed.Home.Client().CoreV1()
	open := fmt.Appendf(nil, `{"metadata":{"labels":{%q:%q}}}`, keys.Offload, keys.OffloadEnabled)
	_, err := core.Namespaces().Patch(t.Context(), name, types.MergePatchType, open, metav1.PatchOptions{})
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx := context.Background()
		_ = core.Pods(name).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
		_ = core.PersistentVolumeClaims(name).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
		_ = core.Namespaces().Delete(ctx, name, metav1.DeleteOptions{})
	})
	return name
}

// script is what the application of the tests does: it goes on counting from the
// last number in its file, and has each number on the disk before it counts on.
const script = `n=$(tail -n 1 /data/log 2>/dev/null || true); n=${n:-0}
while :; do n=$((n+1)); echo $n >> /data/log; sync /data/log; sleep 0.02; done`

// application returns a pod that counts in a file of a claim.
func application(namespace, name, claim string) *corev1.Pod {
	pod := fabric.NewPod(namespace, name, claim)
	pod.Spec.TerminationGracePeriodSeconds = ptr.To(int64(1))
	pod.Spec.Containers = []corev1.Container{{
		Name: "app", Image: processes.Shell, Command: []string{"sh", "-c", script},
		VolumeMounts: []corev1.VolumeMount{{Name: claim, MountPath: "/data"}},
	}}
	return pod
}

// onWest lets a pod run in west only.
func onWest(pod *corev1.Pod) *corev1.Pod {
	pod.Spec.Tolerations = append(pod.Spec.Tolerations, corev1.Toleration{Key: keys.RemoteTaint, Operator: corev1.TolerationOpExists})
	return fabric.InWest(pod)
}

// makes makes a claim and a pod, and waits until the pod runs.
func makes(t *testing.T, claim *corev1.PersistentVolumeClaim, pod *corev1.Pod) {
	t.Helper()
	core := bed.Home.Client().CoreV1()
	_, err := core.PersistentVolumeClaims(claim.Namespace).Create(t.Context(), claim, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = core.Pods(pod.Namespace).Create(t.Context(), pod, metav1.CreateOptions{})
	require.NoError(t, err)
	runs(t, pod.Namespace, pod.Name)
}

// runs waits until a pod of home runs, and returns its node.
func runs(t *testing.T, namespace, name string) string {
	t.Helper()
	var pod *corev1.Pod
	await.Until(t, "pod "+name+" runs", func() (done bool) {
		var err error
		pod, err = bed.Home.Client().CoreV1().Pods(namespace).Get(t.Context(), name, metav1.GetOptions{})
		return err == nil && pod.Status.Phase == corev1.PodRunning && pod.DeletionTimestamp == nil
	}, func() any { return await.Events(t, bed.Home.Client(), namespace) })
	return pod.Spec.NodeName
}

// folder returns the folder that stands for the volume of a claim, wherever it is.
func folder(t *testing.T, namespace, claim string) string {
	t.Helper()
	real, disks := realOf(t, namespace, claim)
	path, err := disks.Of(real)
	require.NoError(t, err)
	return path
}

// realOf returns the real volume of a claim, and the disks that it is one of.
func realOf(t *testing.T, namespace, claim string) (*corev1.PersistentVolume, processes.Disks) {
	t.Helper()
	found := await.Claim(t, bed.Home.Client(), namespace, claim)
	require.NotNil(t, found)
	volume := await.Volume(t, bed.Home.Client(), found.Spec.VolumeName)
	require.NotNil(t, volume, "claim %s has no volume", claim)
	ref, err := backings.RefOf(volume)
	require.NoError(t, err)
	cluster, disks := bed.West, bed.Disks
	switch ref.Cluster {
	case keys.Home:
		cluster = bed.Home
	case "east":
		cluster, disks = east.West, east.Disks
	}
	var behind *corev1.PersistentVolumeClaim
	await.Until(t, "backing claim "+ref.String()+" is bound", func() bool {
		behind = await.Claim(t, cluster.Client(), ref.Namespace, ref.Name)
		return behind != nil && behind.Spec.VolumeName != ""
	})
	real := await.Volume(t, cluster.Client(), behind.Spec.VolumeName)
	require.NotNil(t, real)
	return real, disks
}

// counted returns how far the application in a folder has counted, and fails
// unless each number is there once and in order.
func counted(t *testing.T, folder string) int {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(folder, "log"))
	if os.IsNotExist(err) {
		return 0
	}
	require.NoError(t, err)
	lines := strings.Split(strings.TrimSpace(string(data)), "\n")
	for i, line := range lines {
		if n, err := strconv.Atoi(line); err != nil || n != i+1 {
			if i == len(lines)-1 {
				return i // being written
			}
			require.Fail(t, fmt.Sprintf("line %d of %s is %q", i+1, folder, line))
		}
	}
	return len(lines)
}

// counts waits until the application of a claim has counted beyond a number.
func counts(t *testing.T, folder string, beyond int) int {
	t.Helper()
	await.Until(t, fmt.Sprintf("the application counts beyond %d in %s", beyond, folder), func() bool { return counted(t, folder) > beyond },
		func() any { return counted(t, folder) })
	return counted(t, folder)
}
