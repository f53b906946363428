package processes

import (
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
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
