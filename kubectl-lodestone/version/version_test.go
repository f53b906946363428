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
	provisioner := deployment("provisioner", "p:v1", "side:v2", "p:v1")
	provisioner.Spec.Template.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "MOVER_IMAGE", Value: "lodestone-mover:v0"}}
	network := appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: "network"},
		Status: appsv1.DaemonSetStatus{NumberReady: 2, DesiredNumberScheduled: 3}}
	network.Spec.Template.Spec.Containers = []corev1.Container{{Image: "n:v1"}}
	programs := Programs([]appsv1.Deployment{provisioner, deployment("extender", "e:v1")}, []appsv1.DaemonSet{network})
	all := Versions{Plugin: Plugin{Version: "v1", GoVersion: "go1", Platform: "linux/amd64"}, Home: programs, Remote: []Program{}}
	var out bytes.Buffer
	require.NoError(t, write(&out, cli.Output{}, all))
	assert.Equal(t, `kubectl-lodestone v1 (go1, linux/amd64)
home     extender          v1   1/2 ready    e:v1
home     lodestone-mover   v0   for copies   lodestone-mover:v0
home     network           v1   2/3 ready    n:v1
home     provisioner       v1   1/2 ready    p:v1
home     provisioner       v2   1/2 ready    side:v2
remote   no programs of Lodestone are there: the remote agent runs in namespace lodestone-remote
`, out.String())
	out.Reset()
	require.NoError(t, write(&out, cli.Output{Format: cli.YAML}, all))
	assert.Contains(t, out.String(), "plugin:\n  goVersion: go1\n")
}

func TestVersionsThatAreNotToRunTogether(t *testing.T) {
	run := func(versions ...string) (programs []Program) {
		for _, v := range versions {
			programs = append(programs, Program{Name: "p", Image: "registry.example.com:5000/lodestone-provisioner:" + v, Version: v})
		}
		return programs
	}
	scheduler := Program{Name: "lodestone-scheduler", Image: "registry.example.com/kube-scheduler:v1.36.3", Version: "v1.36.3"}
	for name, test := range map[string]struct {
		plugin       string
		home, remote []Program
		want         []string
	}{
		"all of one version":           {"v0.3.1", append(run("v0.3.1", "v0.3.1"), scheduler), run("v0.3.1"), nil},
		"one minor version apart":      {"v0.4.0", run("v0.3.1"), run("v0.2.9"), nil},
		"a tree that was not released": {"v0.0.0-dev.7ccbad502ef9", run("v0.3.1"), run("dev"), nil},
		"digests":                      {"v0.3.1", run("sha256:0123456789ab"), run("sha256:ba9876543210"), nil},
		"an upgrade that stopped": {"v0.3.1", run("v0.3.1", "v0.3.0"), run("v0.3.1"), []string{
			"the programs of home run v0.3.1 and v0.3.0: finish the upgrade with kubectl lodestone install, or apply your overlay again"}},
		"a plugin of long ago": {"v0.1.0", run("v0.3.1"), nil, []string{
			"this plugin v0.1.0 and home's programs v0.3.1 are more than one minor version apart: take the plugin of their version"}},
		"an agent of another time": {"v1.3.0", run("v1.3.0"), run("v0.9.0"), []string{
			"the remote agent v0.9.0 and home's programs v1.3.0 are more than one minor version apart: upgrade the " +
				"older one, one minor version at a time"}},
		"a mover of another version": {"v0.3.1", append(run("v0.3.1"),
			Program{Name: "lodestone-mover", Image: "lodestone-mover:v0.3.0", Version: "v0.3.0", OnDemand: true}), nil, []string{
			"the programs of home run v0.3.1 and v0.3.0: finish the upgrade with kubectl lodestone install, or apply your overlay again"}},
		"two agents": {"v0.3.1", run("v0.3.1"), run("v0.3.1", "dev"), []string{
			"the programs of the remote cluster run v0.3.1 and dev: finish the upgrade with kubectl lodestone install, or apply your overlay " +
				"again"}},
	} {
		assert.Equal(t, test.want, Warnings(Versions{Plugin: Plugin{Version: test.plugin}, Home: test.home, Remote: test.remote}), name)
	}
	var out bytes.Buffer
	require.NoError(t, write(&out, cli.Output{}, Versions{Warnings: []string{"what is wrong"}}))
	assert.Contains(t, out.String(), "\nwarning: what is wrong\n")
}
