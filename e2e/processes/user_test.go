package processes

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

func TestAPodOfAUserReachesItsFoldersAndVolumes(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root may start programs of other users")
	}
	top := t.TempDir()
	volume := filepath.Join(top, "disks", "a")
	require.NoError(t, os.MkdirAll(volume, 0o700))
	pod := &corev1.Pod{Spec: corev1.PodSpec{
		SecurityContext: &corev1.PodSecurityContext{RunAsUser: ptr.To(int64(12345)), RunAsGroup: ptr.To(int64(12345)),
			FSGroup: ptr.To(int64(23456))},
		RestartPolicy: corev1.RestartPolicyNever,
		Volumes: []corev1.Volume{
			{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{}}},
			{Name: "scratch", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
		},
		Containers: []corev1.Container{{Name: "app", Image: Shell, Command: []string{"sh", "-c", "id -u >/data/id && echo x >/scratch/x"},
			VolumeMounts: []corev1.VolumeMount{{Name: "data", MountPath: "/data"}, {Name: "scratch", MountPath: "/scratch"}}}},
	}}
	scratch := filepath.Join(top, "pod", "volumes", "scratch")
	require.NoError(t, os.MkdirAll(scratch, 0o700))
	r := &run{pod: pod, ip: "127.80.0.7", dir: filepath.Join(top, "pod"), changed: func() {}, folders: map[string]string{"data": volume,
		"scratch": scratch}}
	require.NoError(t, r.open(nil))
	require.NoError(t, r.add(pod.Spec.Containers[0], ""))
	r.done.Wait()
	assert.Equal(t, corev1.PodSucceeded, r.status().Phase)
	s, err := os.Stat(filepath.Join(volume, "id"))
	require.NoError(t, err)
	owner := s.Sys().(*syscall.Stat_t)
	assert.Equal(t, []uint32{12345, 23456}, []uint32{owner.Uid, owner.Gid})
}
