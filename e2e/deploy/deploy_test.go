// Package deploy tests the manifests in deploy/ on a real API server: each
// kustomization applies, its pods are admitted at Pod Security level restricted
// and scheduled, and its identities can do what they must and nothing beyond.
package deploy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/lodestone-storage/lodestone/e2e/must"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
)

const (
	root            = "../../deploy/"
	systemNamespace = "lodestone-system"
	homeNode        = "home-1"
	virtualNode     = "virtual-west"

	waitLong = 30 * time.Second
	poll     = 50 * time.Millisecond
)

// overlays are what users apply in the home cluster.
var overlays = []string{"overlays/release", "overlays/managed", "overlays/kind"}

// likeTheFirst leaves a test of an overlay but the first out where time is limited: kubectl takes long for each.
func likeTheFirst(t *testing.T, directory string) {
	t.Helper()
	if slices.Index(overlays, directory) > 0 {
		testbed.NotInShort(t)
	}
}

var cluster *testbed.Cluster

func TestMain(m *testing.M) {
	testbed.Main(m, func(ctx context.Context) error {
		clusters, err := testbed.Start(ctx, testbed.Config{
			Name:            "home",
			SchedulerConfig: root + "examples/kube-scheduler-configuration.yaml",
			// Nothing here renews the leases of nodes.
			NodeGracePeriod: time.Hour,
		})
		if err != nil {
			return err
		}
		cluster = clusters[0]
		if err := makeNode(ctx, homeNode, nil); err != nil {
			return err
		}
		// Without a taint, so that only the pods' own affinity keeps them away.
		return makeNode(ctx, virtualNode, map[string]string{"lodestone.dev/cluster": "west"})
	})
}

func makeNode(ctx context.Context, name string, labels map[string]string) error {
	resources := corev1.ResourceList{
		corev1.ResourceCPU:    resource.MustParse("16"),
		corev1.ResourceMemory: resource.MustParse("64Gi"),
		corev1.ResourcePods:   resource.MustParse("100"),
	}
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name}},
		Status: corev1.NodeStatus{
			Capacity:    resources,
			Allocatable: resources,
			Conditions: []corev1.NodeCondition{{
				Type:               corev1.NodeReady,
				Status:             corev1.ConditionTrue,
				Reason:             "Simulated",
				LastHeartbeatTime:  metav1.Now(),
				LastTransitionTime: metav1.Now(),
			}},
		},
	}
	for key, value := range labels {
		node.Labels[key] = value
	}
	if _, err := cluster.Client().CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create node %s: %w", name, err)
	}
	return nil
}

// apply applies a kustomization of deploy/ as a user would and returns what
// kubectl says about each object.
func apply(t *testing.T, directory string) string {
	t.Helper()
	testbed.Require(t)
	return must.Kubectl(t, cluster, "", "apply", "--validate=strict", "-k", folder(t, directory))
}

// folder returns what is applied for a kustomization of deploy/.
func folder(t *testing.T, directory string) string {
	t.Helper()
	found, err := cluster.Kustomization(directory)
	require.NoError(t, err)
	return found
}

// build returns the objects of a kustomization of deploy/.
func build(t *testing.T, directory string) []*unstructured.Unstructured {
	t.Helper()
	testbed.Require(t)
	output := must.Kubectl(t, cluster, "", "kustomize", folder(t, directory))
	var objects []*unstructured.Unstructured
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewBufferString(output), 4096)
	for {
		object := &unstructured.Unstructured{}
		err := decoder.Decode(object)
		if errors.Is(err, io.EOF) {
			return objects
		}
		require.NoError(t, err)
		objects = append(objects, object)
	}
}

// ofKind returns the objects of one kind, typed.
func ofKind[T any](t *testing.T, objects []*unstructured.Unstructured, kind string) []*T {
	t.Helper()
	var typed []*T
	for _, object := range objects {
		if object.GetKind() != kind {
			continue
		}
		into := new(T)
		require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, into))
		typed = append(typed, into)
	}
	require.NotEmpty(t, typed, "no object of kind %s", kind)
	return typed
}

func TestEachKustomizationAppliesAndThenChangesNothing(t *testing.T) {
	for _, directory := range append([]string{"base", "remote"}, overlays...) {
		t.Run(directory, func(t *testing.T) {
			likeTheFirst(t, directory)
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
	for _, example := range []string{
		"storage-classes.yaml", "remote-namespace.yaml", "remote-cluster.yaml", "network-policy.yaml", "database.yaml", "galera.yaml",
		"redis.yaml",
	} {
		// A custom resource can be applied a moment after its definition.
		require.EventuallyWithT(t, func(c *assert.CollectT) {
			_, err := cluster.Kubectl(t.Context(), "", "apply", "--validate=strict", "-f", root+"examples/"+example)
			assert.NoError(c, err)
		}, waitLong, poll, example)
	}
	must.Kubectl(t, cluster, "", "get", "remoteclusters", "west")
}

func TestVirtualClassBindsLateAndItsDriverNeedsNoAttachment(t *testing.T) {
	apply(t, "overlays/release")
	storage := cluster.Client().StorageV1()

	class := must.Get(t, storage.StorageClasses(), "lodestone")
	driver := must.Get(t, storage.CSIDrivers(), class.Provisioner)

	assert.Equal(t, "WaitForFirstConsumer", string(*class.VolumeBindingMode))
	assert.False(t, *driver.Spec.AttachRequired)
	assert.False(t, *driver.Spec.StorageCapacity, "the provisioner says true once it has published capacities: before, no node "+
		"would have room")
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
	return must.Kubectl(t, cluster, "", "get", "-k", folder(t, directory), "-o",
		`jsonpath={range .items[*]}{.kind}/{.metadata.name} {.metadata.generation}{"\n"}{end}`)
}

func lines(output string) []string {
	return strings.Split(strings.TrimSpace(output), "\n")
}
