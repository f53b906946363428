package hollow

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// RemoteTaint is the key of the taint that virtual nodes may have.
const RemoteTaint = "lodestone.dev/remote"

// nodeObject is the Node that stands for node.
func nodeObject(node Node) *corev1.Node {
	labels := map[string]string{
		corev1.LabelHostname:   node.Name,
		corev1.LabelOSStable:   "linux",
		corev1.LabelArchStable: "amd64",
	}
	taints := slices.Clone(node.Taints)
	if node.Remote != nil {
		labels[keys.Cluster] = node.Remote.ID
		labels["type"] = "virtual-kubelet"
		if node.Remote.Taint {
			taints = append(taints, corev1.Taint{Key: RemoteTaint, Value: node.Remote.ID, Effect: corev1.TaintEffectNoSchedule})
		}
	}
	maps.Copy(labels, node.Labels)
	allocatable := node.Allocatable
	if allocatable == nil {
		allocatable = corev1.ResourceList{
			corev1.ResourceCPU:    resource.MustParse("64"),
			corev1.ResourceMemory: resource.MustParse("256Gi"),
			corev1.ResourcePods:   resource.MustParse("500"),
		}
	}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: node.Name, Labels: labels},
		Spec:       corev1.NodeSpec{Taints: taints},
		Status: corev1.NodeStatus{
			Capacity:    allocatable,
			Allocatable: allocatable,
			Addresses: []corev1.NodeAddress{
				{Type: corev1.NodeHostName, Address: node.Name},
				{Type: corev1.NodeInternalIP, Address: "127.0.0.1"},
			},
			Conditions: nodeConditions(metav1.Now()),
			NodeInfo:   corev1.NodeSystemInfo{KubeletVersion: "v1.36.3-hollow", OperatingSystem: "linux", Architecture: "amd64"},
		},
	}
}

// nodeConditions are those of a healthy node.
func nodeConditions(now metav1.Time) []corev1.NodeCondition {
	conditions := []corev1.NodeCondition{{
		Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady", Message: "a hollow kubelet plays this node",
		LastHeartbeatTime: now, LastTransitionTime: now,
	}}
	for _, pressure := range []corev1.NodeConditionType{corev1.NodeMemoryPressure, corev1.NodeDiskPressure, corev1.NodePIDPressure} {
		conditions = append(conditions, corev1.NodeCondition{
			Type: pressure, Status: corev1.ConditionFalse, Reason: "KubeletReady", LastHeartbeatTime: now, LastTransitionTime: now,
		})
	}
	return conditions
}

// register creates the Node and its CSINode. A Node of that name that exists gets the
// labels and the status, as with a kubelet that restarts.
func (h *Hollow) register(ctx context.Context, node Node) error {
	wanted := nodeObject(node)
	created, err := h.client.CoreV1().Nodes().Create(ctx, wanted, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		created, err = h.reregister(ctx, wanted)
	} else if err == nil {
		created, err = h.untaint(ctx, created, wanted)
	}
	if err != nil {
		return fmt.Errorf("register node %s: %w", node.Name, err)
	}
	csiNode := &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: node.Name, OwnerReferences: []metav1.OwnerReference{nodeReference(created)}}}
	for _, name := range slices.Sorted(maps.Keys(node.Drivers)) {
		driver := storagev1.CSINodeDriver{Name: name, NodeID: node.Name, TopologyKeys: []string{corev1.LabelHostname}}
		if limit := node.Drivers[name]; limit > 0 {
			driver.Allocatable = &storagev1.VolumeNodeResources{Count: &limit}
		}
		csiNode.Spec.Drivers = append(csiNode.Spec.Drivers, driver)
	}
	_, err = h.client.StorageV1().CSINodes().Create(ctx, csiNode, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("register the CSI drivers of node %s: %w", node.Name, err)
	}
	return nil
}

// untaint takes away the taint that the API server gives every new node. The controller
// manager would do it too, but for a thousand nodes its client rate is too low.
func (h *Hollow) untaint(ctx context.Context, created, wanted *corev1.Node) (*corev1.Node, error) {
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": created.UID},
		"spec":     map[string]any{"taints": wanted.Spec.Taints},
	})
	if err != nil {
		return nil, err
	}
	return h.client.CoreV1().Nodes().Patch(ctx, created.Name, types.MergePatchType, patch, metav1.PatchOptions{})
}

func (h *Hollow) reregister(ctx context.Context, wanted *corev1.Node) (*corev1.Node, error) {
	node, err := h.client.CoreV1().Nodes().Get(ctx, wanted.Name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	maps.Copy(node.Labels, wanted.Labels)
	if node, err = h.client.CoreV1().Nodes().Update(ctx, node, metav1.UpdateOptions{}); err != nil {
		return nil, err
	}
	node.Status = wanted.Status
	return h.client.CoreV1().Nodes().UpdateStatus(ctx, node, metav1.UpdateOptions{})
}

func nodeReference(node *corev1.Node) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID}
}

// waitSchedulable waits until the taint is gone with which every node begins.
func (h *Hollow) waitSchedulable(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for {
		node, err := h.nodes.Get(name)
		if err == nil && !slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeNotReady }) {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait until node %s is ready: %w", name, ctx.Err())
		case <-time.After(20 * time.Millisecond):
		}
	}
}
