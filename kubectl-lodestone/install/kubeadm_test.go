package install

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestKubeadmKeepsKubeSchedulersConfiguration(t *testing.T) {
	const version = "apiVersion: kubeadm.k8s.io/v1beta4\nkubernetesVersion: v1.36.3\n"
	after, err := keeping(version + "scheduler: {}\n")
	require.NoError(t, err)
	assert.Equal(t, version+`scheduler:
  extraArgs:
  - name: config
    value: /etc/kubernetes/lodestone/scheduler.yaml
  extraVolumes:
  - hostPath: /etc/kubernetes/lodestone
    mountPath: /etc/kubernetes/lodestone
    name: lodestone
    pathType: Directory
    readOnly: true
`, after)
	again, err := keeping(after)
	require.NoError(t, err)
	assert.Equal(t, after, again)

	without, err := keeping(version)
	require.NoError(t, err)
	assert.Equal(t, after, without)
	more, err := keeping(version + "scheduler: {extraArgs: [{name: v, value: '2'}], extraVolumes: [{name: x, mountPath: /x, hostPath: /x}]}\n")
	require.NoError(t, err)
	assert.Contains(t, more, "name: v\n")
	assert.Contains(t, more, "mountPath: /x\n")
	assert.Contains(t, more, "mountPath: /etc/kubernetes/lodestone\n")

	for configuration, want := range map[string]string{
		"": "has no ClusterConfiguration", "{": "is not understood",
		"apiVersion: kubeadm.k8s.io/v1beta3":                            "has no ClusterConfiguration of kubeadm.k8s.io/v1beta4",
		version + "scheduler: {extraArgs: {v: 2}}":                      "is not understood",
		version + "scheduler: {extraArgs: [{name: config, value: /x}]}": "another configuration of kube-scheduler (/x)",
	} {
		_, err := keeping(configuration)
		assert.ErrorContains(t, err, want, configuration)
	}
}
