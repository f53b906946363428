package node

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/klog/v2"
)

// writeTimeout bounds each write to the home cluster.
const writeTimeout = 10 * time.Second

func (m *Manager) create(ctx context.Context, node *corev1.Node) error {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	_, err := m.config.Home.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil // its event comes
	}
	if err != nil {
		return fmt.Errorf("create node %s: %w", node.Name, err)
	}
	klog.FromContext(ctx).Info("Node created", "node", klog.KObj(node))
	return nil
}

// update writes what differs: first labels, annotations and taints, then the
// status. A node that changed meanwhile is a conflict for the first, because
// taints are one list; its event comes.
func (m *Manager) update(ctx context.Context, have *corev1.Node, d Description) error {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	nodes := m.config.Home.CoreV1().Nodes()
	if want := WithMeta(have, d); !equality.Semantic.DeepEqual(have, want) {
		patch, err := difference(have, want, map[string]any{"uid": have.UID, "resourceVersion": have.ResourceVersion})
		if err != nil {
			return err
		}
		if have, err = nodes.Patch(ctx, have.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}); err != nil {
			return fmt.Errorf("patch node: %w", err)
		}
	}
	want := WithStatus(have, d)
	if equality.Semantic.DeepEqual(have.Status, want.Status) {
		return nil
	}
	patch, err := difference(have, want, map[string]any{"uid": have.UID})
	if err != nil {
		return err
	}
	if _, err := nodes.Patch(ctx, have.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status"); err != nil {
		return fmt.Errorf("patch status of node: %w", err)
	}
	return nil
}

// difference returns the patch that makes want of have, if the node still has the
// given metadata.
func difference(have, want *corev1.Node, metadata map[string]any) ([]byte, error) {
	before, err := json.Marshal(have)
	if err != nil {
		return nil, fmt.Errorf("encode node: %w", err)
	}
	after, err := json.Marshal(want)
	if err != nil {
		return nil, fmt.Errorf("encode node: %w", err)
	}
	raw, err := strategicpatch.CreateTwoWayMergePatch(before, after, corev1.Node{})
	if err != nil {
		return nil, fmt.Errorf("compare node with what it should be: %w", err)
	}
	patch := map[string]any{}
	if err := json.Unmarshal(raw, &patch); err != nil {
		return nil, fmt.Errorf("read the patch of a node: %w", err)
	}
	fields, ok := patch["metadata"].(map[string]any)
	if !ok {
		fields = map[string]any{}
	}
	for key, value := range metadata {
		fields[key] = value
	}
	patch["metadata"] = fields
	return json.Marshal(patch)
}
