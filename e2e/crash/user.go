package crash

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// patch merges a change into a claim as its user, or whoever is played, may.
func (w *World) patch(ctx context.Context, cluster *testbed.Cluster, claim *corev1.PersistentVolumeClaim, change map[string]any) error {
	data, err := json.Marshal(change)
	if err != nil {
		return fmt.Errorf("encode patch: %w", err)
	}
	if _, err := cluster.Client().CoreV1().PersistentVolumeClaims(claim.Namespace).Patch(ctx, claim.Name, types.MergePatchType, data, metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("patch claim %s/%s: %w", claim.Namespace, claim.Name, err)
	}
	return nil
}

// choose writes a node on a claim, as a scheduler does; with "" it takes it off.
func (w *World) choose(ctx context.Context, cluster *testbed.Cluster, claim *corev1.PersistentVolumeClaim, node string) error {
	var chosen any
	if node != "" {
		chosen = node
	}
	return w.patch(ctx, cluster, claim, map[string]any{"metadata": map[string]any{"annotations": map[string]any{keys.SelectedNode: chosen}}})
}

// create makes a claim of a class for a node.
func (w *World) create(ctx context.Context, c *Case, name, class, node string, changes ...func(*corev1.PersistentVolumeClaim)) error {
	claim := fabric.NewClaim(c.Namespace, name, class)
	claim.Annotations = map[string]string{keys.SelectedNode: node}
	for _, change := range changes {
		change(claim)
	}
	made, err := w.Bed.Home.Client().CoreV1().PersistentVolumeClaims(c.Namespace).Create(ctx, claim, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("make claim %s/%s: %w", c.Namespace, name, err)
	}
	learn(made, true, w.ledger)
	return nil
}

func (w *World) delete(ctx context.Context, cluster *testbed.Cluster, namespace, name string) error {
	if err := cluster.Client().CoreV1().PersistentVolumeClaims(namespace).Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		return fmt.Errorf("delete claim %s/%s: %w", namespace, name, err)
	}
	return nil
}
