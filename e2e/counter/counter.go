// Package counter is the application of tests of moves and replicas: it counts in a file of its claim, so that a lost or torn write shows.
package counter

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/processes"
)

// Script goes on counting from the last number in its file, and has each number on the disk before it counts on, after a pause.
func Script(pause string) string {
	return `n=$(tail -n 1 /data/log 2>/dev/null || true); n=${n:-0}
while :; do n=$((n+1)); echo $n >> /data/log; sync /data/log; sleep ` + pause + `; done`
}

// Pod returns a pod that runs a script, with the volume of a claim at /data.
func Pod(namespace, name, claim, script string) *corev1.Pod {
	pod := fabric.NewPod(namespace, name, claim)
	pod.Spec.TerminationGracePeriodSeconds = ptr.To(int64(1))
	pod.Spec.Containers = []corev1.Container{{
		Name: "app", Image: processes.Shell, Command: []string{"sh", "-c", script},
		VolumeMounts: []corev1.VolumeMount{{Name: claim, MountPath: "/data"}},
	}}
	return pod
}

// Counted returns how far the application in a folder has counted, and fails unless each number is there once and in order.
func Counted(t testing.TB, folder string) int {
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
