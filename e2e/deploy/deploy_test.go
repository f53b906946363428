package deploy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"

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
	output, err := cluster.Kubectl(t.Context(), "", "apply", "--validate=strict", "-k", root+directory)
	require.NoError(t, err)
	return output
}

// build returns the objects of a kustomization of deploy/.
func build(t *testing.T, directory string) []*unstructured.Unstructured {
	t.Helper()
	testbed.Require(t)
	output, err := cluster.Kubectl(t.Context(), "", "kustomize", root+directory)
	require.NoError(t, err)
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
