package registry

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/virtualnode/node"
)

// report writes a state to the RemoteCluster's condition VirtualNode if that says
// something else. The object must be as it was seen: its other conditions belong
// to the provisioner.
func (t *tenure) report(ctx context.Context, seen *v1alpha1.RemoteCluster, state node.State) error {
	status := metav1.ConditionFalse
	if state.Ready {
		status = metav1.ConditionTrue
	}
	t.config.Metrics.show(t.id, state.Ready)
	update := seen.DeepCopy()
	changed := meta.SetStatusCondition(&update.Status.Conditions, metav1.Condition{
		Type: v1alpha1.VirtualNode, Status: status, Reason: state.Reason, Message: state.Message, ObservedGeneration: seen.Generation})
	if !changed {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	if _, err := t.config.Remotes.UpdateStatus(ctx, update, metav1.UpdateOptions{}); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("write status of RemoteCluster %s: %w", t.id, err)
	}
	return nil
}

// protect adds the finalizer of a RemoteCluster before there is a node that
// depends on it.
func (t *tenure) protect(ctx context.Context, remote *v1alpha1.RemoteCluster) error {
	t.left = false
	if slices.Contains(remote.Finalizers, keys.VirtualNodeFinalizer) {
		return nil
	}
	return t.setFinalizers(ctx, remote, append(slices.Clone(remote.Finalizers), keys.VirtualNodeFinalizer))
}

// release lets a RemoteCluster go.
func (t *tenure) release(ctx context.Context, remote *v1alpha1.RemoteCluster) error {
	if !slices.Contains(remote.Finalizers, keys.VirtualNodeFinalizer) {
		return nil
	}
	return t.setFinalizers(ctx, remote, slices.DeleteFunc(slices.Clone(remote.Finalizers), func(s string) bool { return s == keys.VirtualNodeFinalizer }))
}

// setFinalizers writes the finalizers of a RemoteCluster if it is still as it was
// seen.
func (t *tenure) setFinalizers(ctx context.Context, remote *v1alpha1.RemoteCluster, finalizers []string) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": remote.UID, "resourceVersion": remote.ResourceVersion, "finalizers": finalizers}})
	if err != nil {
		return fmt.Errorf("encode finalizers: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	if _, err := t.config.Remotes.Patch(ctx, remote.Name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("set finalizers of RemoteCluster %s: %w", remote.Name, err)
	}
	return nil
}
