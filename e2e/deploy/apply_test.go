package deploy

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestEachKustomizationAppliesAndThenChangesNothing(t *testing.T) {
	for _, directory := range append([]string{"base", "remote"}, overlays...) {
		t.Run(directory, func(t *testing.T) {
			first := lines(apply(t, directory))
			require.Len(t, first, len(build(t, directory)), "kubectl says one line about each object")
			generations := generationsOf(t, directory)
			for _, line := range lines(apply(t, directory)) {
				// kubectl always sends the selector of a budget, even if it is the same.
				if !strings.HasPrefix(line, "poddisruptionbudget.") {
					assert.True(t, strings.HasSuffix(line, " unchanged"), "applied again: %s", line)
				}
			}
			assert.Equal(t, generations, generationsOf(t, directory))
		})
	}
}

func TestEachProgramAppliesAloneOnceTheNamespacesExist(t *testing.T) {
	apply(t, "base")
	for _, directory := range []string{"base/provisioner", "base/extender"} {
		assert.NotEmpty(t, lines(apply(t, directory)), directory)
	}
}

func TestExamplesApply(t *testing.T) {
	apply(t, "base")
	apply(t, "remote-volumes")
	for _, example := range []string{"storage-classes.yaml", "remote-namespace.yaml", "remote-cluster.yaml", "network-policy.yaml"} {
		// A custom resource can be applied a moment after its definition.
		require.EventuallyWithT(t, func(c *assert.CollectT) {
			_, err := cluster.Kubectl(t.Context(), "", "apply", "--validate=strict", "-f", root+"examples/"+example)
			assert.NoError(c, err)
		}, waitLong, poll, example)
	}
	_, err := cluster.Kubectl(t.Context(), "", "get", "remoteclusters", "west")
	require.NoError(t, err)
}

func TestVirtualClassBindsLateAndItsDriverNeedsNoAttachment(t *testing.T) {
	apply(t, "overlays/release")
	storage := cluster.Client().StorageV1()

	class, err := storage.StorageClasses().Get(t.Context(), "lodestone", metav1.GetOptions{})
	require.NoError(t, err)
	driver, err := storage.CSIDrivers().Get(t.Context(), class.Provisioner, metav1.GetOptions{})
	require.NoError(t, err)

	assert.Equal(t, "WaitForFirstConsumer", string(*class.VolumeBindingMode))
	assert.False(t, *driver.Spec.AttachRequired)
	assert.False(t, *driver.Spec.StorageCapacity, "the provisioner says true once it has published capacities: before, no node would have room")
}

func TestPodSecurityRefusesWhatOurPodsDoNotNeed(t *testing.T) {
	apply(t, "base")
	create := func(namespace string, change func(*corev1.Pod)) error {
		pod := anyPod("plain")
		change(pod)
		_, err := cluster.Client().CoreV1().Pods(namespace).Create(t.Context(), pod, metav1.CreateOptions{DryRun: dryRun})
		return err
	}
	assert.ErrorContains(t, create(systemNamespace, func(*corev1.Pod) {}), `violates PodSecurity "restricted`)
	// Movers are root there, with few capabilities.
	for name, change := range map[string]func(*corev1.Pod){
		"one that sees the node's files": func(p *corev1.Pod) {
			p.Spec.Volumes = []corev1.Volume{{Name: "root", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}}}
		},
		"one on the node's network": func(p *corev1.Pod) { p.Spec.HostNetwork = true },
		"one with more capabilities": func(p *corev1.Pod) {
			p.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{Capabilities: &corev1.Capabilities{Add: []corev1.Capability{"SYS_ADMIN"}}}
		},
	} {
		assert.ErrorContains(t, create("lodestone-storage", change), `violates PodSecurity "baseline`, name)
	}
}

// generationsOf returns the generation of each object, which counts the changes of its spec.
func generationsOf(t *testing.T, directory string) string {
	t.Helper()
	output, err := cluster.Kubectl(t.Context(), "", "get", "-k", root+directory, "-o",
		`jsonpath={range .items[*]}{.kind}/{.metadata.name} {.metadata.generation}{"\n"}{end}`)
	require.NoError(t, err)
	return output
}

func lines(output string) []string {
	return strings.Split(strings.TrimSpace(output), "\n")
}
