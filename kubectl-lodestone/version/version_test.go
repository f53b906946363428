package version

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/cli"
)

func TestTheVersionOfAProgramIsThatOfItsImage(t *testing.T) {
	for image, want := range map[string]string{
		"lodestone-provisioner":                                          "latest",
		"registry.example.com:5000/lodestone-provisioner":                "latest",
		"registry.example.com:5000/lodestone-provisioner:v1.2.3":         "v1.2.3",
		"registry.example.com/p:v1@sha256:0123456789abcdef0123456789abc": "sha256:0123456789ab",
		"p@sha256:01": "sha256:01",
	} {
		assert.Equal(t, want, tag(image), image)
	}
}

func TestWhatDeploymentsRun(t *testing.T) {
	deployment := func(name string, images ...string) appsv1.Deployment {
		d := appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: appsv1.DeploymentStatus{Replicas: 2, ReadyReplicas: 1}}
		for _, image := range images {
			d.Spec.Template.Spec.Containers = append(d.Spec.Template.Spec.Containers, corev1.Container{Image: image})
		}
		return d
	}
	programs := Programs([]appsv1.Deployment{deployment("provisioner", "p:v1", "side:v2", "p:v1"), deployment("extender", "e:v1")})
	all := Versions{Plugin: Plugin{Version: "v1", GoVersion: "go1", Platform: "linux/amd64"}, Home: programs, Remote: []Program{}}
	var out bytes.Buffer
	require.NoError(t, write(&out, cli.Output{}, all))
	assert.Equal(t, `kubectl-lodestone v1 (go1, linux/amd64)
home     extender      v1   1/2 ready   e:v1
home     provisioner   v1   1/2 ready   p:v1
home     provisioner   v2   1/2 ready   side:v2
remote   no programs of Lodestone are there: the remote agent runs in namespace lodestone-remote
`, out.String())
	out.Reset()
	require.NoError(t, write(&out, cli.Output{Format: cli.YAML}, all))
	assert.Contains(t, out.String(), "plugin:\n  goVersion: go1\n")
}
