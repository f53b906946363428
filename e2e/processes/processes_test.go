package processes

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

func TestCommandsUseThePathsAndAddressesOfThisMachine(t *testing.T) {
	r := &run{ip: "127.80.0.7", pod: &corev1.Pod{}, folders: map[string]string{"data": "/disks/a", "keys": "/pods/k", "shared": "/disks/s"}}
	r.pod.Name = "mover"
	container := corev1.Container{
		VolumeMounts: []corev1.VolumeMount{{Name: "data", MountPath: "/volume"}, {Name: "keys", MountPath: "/volume/keys/"},
			{Name: "shared", MountPath: "/shared", SubPath: "home/shop"}},
		Env: []corev1.EnvVar{
			{Name: "WHERE", Value: "/volume"},
			{Name: "POD_IP", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "status.podIP"}}},
		},
		Command: []string{"mover", "send"},
		Args: []string{"--volume=/volume", "--key=/volume/keys/tls.key", "--other=/volumes", "--listen=:7443", "--at=$(POD_IP):1",
			"echo x > '/volume/log'", "--repository=/shared"},
	}
	argv, env := r.command(container, "/bin/lodestone-mover")
	assert.Equal(t, []string{"/bin/lodestone-mover", "send", "--volume=/disks/a", "--key=/pods/k/tls.key", "--other=/volumes",
		"--listen=127.80.0.7:7443", "--at=127.80.0.7:1", "echo x > '/disks/a/log'", "--repository=/disks/s/home/shop"}, argv)
	assert.Equal(t, []string{"WHERE=/disks/a", "POD_IP=127.80.0.7"}, env)

	container.VolumeMounts, container.VolumeDevices = container.VolumeMounts[1:], []corev1.VolumeDevice{{Name: "data", DevicePath: "/volume"}}
	r.folders["data"] = "/disks/a/device"
	argv, _ = r.command(container, "/bin/lodestone-mover")
	assert.Contains(t, argv, "--volume=/disks/a/device", "a block volume is a file")

	container.Command = []string{"sh", "-c"}
	argv, _ = r.command(container, "")
	assert.Equal(t, "sh", argv[0], "of an image shell the command itself is run")
}

func TestASecondPodIsKeptFromAVolumeForOne(t *testing.T) {
	p := New(Config{Disks: Disks{Root: t.TempDir()}, Dir: t.TempDir()})
	t.Cleanup(p.EndAll)
	volume := func(name string, mode corev1.PersistentVolumeAccessMode) map[string]*corev1.PersistentVolume {
		return map[string]*corev1.PersistentVolume{"data": {ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PersistentVolumeSpec{
			AccessModes:            []corev1.PersistentVolumeAccessMode{mode},
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "disk.test", VolumeHandle: "one"}},
		}}}
	}
	pod := func(name string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID(name)}, Spec: corev1.PodSpec{
			Containers: []corev1.Container{{Name: "app", Image: Shell, Command: []string{"sleep", "60"}}},
		}}
	}
	run := func(name, leads string, mode corev1.PersistentVolumeAccessMode) error {
		_, err := p.Run(t.Context(), pod(name), volume(leads, mode))
		return err
	}
	require.NoError(t, run("first", "virtual", corev1.ReadWriteOncePod))
	require.NoError(t, run("first", "virtual", corev1.ReadWriteOncePod), "it is the one")
	require.ErrorContains(t, run("second", "real", corev1.ReadWriteOncePod), "in use by pod first")
	assert.NoError(t, run("other", "shared", corev1.ReadWriteOnce), "a node lets several pods use those")
	p.End("shop", "first")
	assert.NoError(t, run("second", "real", corev1.ReadWriteOncePod))
}

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
