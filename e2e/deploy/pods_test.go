package deploy

import (
	"maps"
	"slices"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/lodestone-storage/lodestone/e2e/must"
	extender "github.com/lodestone-storage/lodestone/extender/app"
	provisioner "github.com/lodestone-storage/lodestone/provisioner/app"
	agent "github.com/lodestone-storage/lodestone/remoteagent/app"
	virtualnode "github.com/lodestone-storage/lodestone/virtualnode/app"
)

var dryRun = []string{metav1.DryRunAll}

func anyPod(name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "example"}}},
	}
}

func TestPodsOfEachDeploymentAreAdmittedAtLevelRestricted(t *testing.T) {
	for _, overlay := range overlays {
		t.Run(overlay, func(t *testing.T) {
			likeTheFirst(t, overlay)
			apply(t, overlay)
			makeRoom(t)
			for _, deployment := range ofKind[appsv1.Deployment](t, build(t, overlay), "Deployment") {
				pod := &corev1.Pod{ObjectMeta: deployment.Spec.Template.ObjectMeta, Spec: deployment.Spec.Template.Spec}
				pod.Name = deployment.Name + "-test"
				// The ServiceAccount and the quota reach the admission plugins a moment later.
				require.EventuallyWithT(t, func(c *assert.CollectT) {
					_, err := cluster.Client().CoreV1().Pods(deployment.Namespace).Create(t.Context(), pod.DeepCopy(),
						metav1.CreateOptions{DryRun: dryRun})
					assert.NoError(c, err)
				}, waitLong, poll, deployment.Name)
			}
		})
	}
}

// makeRoom ends all pods of Lodestone: without kubelets no rollout ends, and the pods of all that were begun fill the quota.
func makeRoom(t *testing.T) {
	t.Helper()
	for _, arguments := range [][]string{{"deployments,replicasets,jobs", "--cascade=background"}, {"pods", "--force", "--grace-period=0"}} {
		must.Kubectl(t, cluster, "", append([]string{"delete", "-n", systemNamespace, "--all"}, arguments...)...)
	}
}

func TestArgumentsAreFlagsOfThePrograms(t *testing.T) {
	commands := map[string]func() *cobra.Command{
		"provisioner": provisioner.NewCommand, "extender": extender.NewCommand,
		"virtualnode": virtualnode.NewCommand, "agent": agent.NewCommand,
	}
	for overlay, programs := range map[string][]string{
		"overlays/release":        {"provisioner", "extender", "virtualnode"},
		"overlays/managed":        {"provisioner", "extender", "virtualnode"},
		"overlays/kind":           {"provisioner", "extender", "virtualnode"},
		"overlays/release-remote": {"agent"},
		"overlays/kind-remote":    {"agent"},
	} {
		seen := map[string]bool{}
		for _, deployment := range ofKind[appsv1.Deployment](t, build(t, overlay), "Deployment") {
			for _, container := range deployment.Spec.Template.Spec.Containers {
				if newCommand, ours := commands[container.Name]; ours {
					seen[container.Name] = true
					assert.NoError(t, newCommand().ParseFlags(container.Args), "%s in %s", container.Name, overlay)
				}
			}
		}
		assert.ElementsMatch(t, programs, slices.Collect(maps.Keys(seen)), "programs in %s", overlay)
	}
}

func TestAnExtenderThatSeesNoChangesStaysReady(t *testing.T) {
	for _, overlay := range overlays {
		seen := false
		for _, deployment := range ofKind[appsv1.Deployment](t, build(t, overlay), "Deployment") {
			for _, container := range deployment.Spec.Template.Spec.Containers {
				if container.Name == "extender" {
					seen = true
					assert.Equal(t, "/readyz/serving", container.ReadinessProbe.HTTPGet.Path, "%s: all replicas would leave their Service at once",
						overlay)
				}
			}
		}
		assert.True(t, seen, overlay)
	}
}

func TestPodsRunOnHomeNodesOnly(t *testing.T) {
	for _, overlay := range overlays {
		t.Run(overlay, func(t *testing.T) {
			likeTheFirst(t, overlay)
			apply(t, overlay)
			for _, deployment := range ofKind[appsv1.Deployment](t, build(t, overlay), "Deployment") {
				require.EventuallyWithT(t, func(c *assert.CollectT) {
					pods, err := cluster.Client().CoreV1().Pods(deployment.Namespace).List(t.Context(), metav1.ListOptions{
						LabelSelector: labels.SelectorFromSet(deployment.Spec.Selector.MatchLabels).String(),
					})
					require.NoError(c, err)
					newest := 0
					for _, pod := range pods.Items {
						if pod.Spec.Containers[0].Image != deployment.Spec.Template.Spec.Containers[0].Image {
							continue // of another overlay
						}
						newest++
						assert.Equal(c, homeNode, pod.Spec.NodeName)
					}
					assert.NotZero(c, newest, "no pod of %s", deployment.Name)
				}, waitLong, poll)
			}
		})
	}
}

func TestSelectorsMeanTheDeploymentOfTheSameName(t *testing.T) {
	for _, overlay := range overlays {
		t.Run(overlay, func(t *testing.T) {
			objects := build(t, overlay)
			deployments := ofKind[appsv1.Deployment](t, objects, "Deployment")

			budgets := map[string]bool{}
			for _, budget := range ofKind[policyv1.PodDisruptionBudget](t, objects, "PodDisruptionBudget") {
				selector, err := metav1.LabelSelectorAsSelector(budget.Spec.Selector)
				require.NoError(t, err)
				require.Equal(t, []string{budget.Name}, selected(deployments, selector))
				budgets[budget.Name] = true
			}
			for _, deployment := range deployments {
				template := deployment.Spec.Template
				assert.True(t, budgets[deployment.Name], "%s has no PodDisruptionBudget", deployment.Name)
				assert.EqualValues(t, 2, *deployment.Spec.Replicas, deployment.Name)
				assert.NotEmpty(t, template.Spec.TopologySpreadConstraints, deployment.Name)
				for _, constraint := range template.Spec.TopologySpreadConstraints {
					selector, err := metav1.LabelSelectorAsSelector(constraint.LabelSelector)
					require.NoError(t, err)
					assert.True(t, selector.Matches(labels.Set(template.Labels)), "spread of %s", deployment.Name)
				}
			}
		})
	}
}

func TestExtenderServiceReachesThePortOfItsPods(t *testing.T) {
	objects := build(t, "overlays/release")
	deployments := ofKind[appsv1.Deployment](t, objects, "Deployment")
	for _, service := range ofKind[corev1.Service](t, objects, "Service") {
		require.Equal(t, []string{service.Name}, selected(deployments, labels.SelectorFromSet(service.Spec.Selector)))
		for _, deployment := range deployments {
			if deployment.Name != service.Name {
				continue
			}
			var names []string
			for _, port := range deployment.Spec.Template.Spec.Containers[0].Ports {
				names = append(names, port.Name)
			}
			assert.Contains(t, names, service.Spec.Ports[0].TargetPort.StrVal)
		}
	}
}

// selected returns the names of the Deployments whose pods a selector matches.
func selected(deployments []*appsv1.Deployment, selector labels.Selector) []string {
	var names []string
	for _, deployment := range deployments {
		if selector.Matches(labels.Set(deployment.Spec.Template.Labels)) {
			names = append(names, deployment.Name)
		}
	}
	return names
}
