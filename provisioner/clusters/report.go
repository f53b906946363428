package clusters

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// report writes what is known of a cluster to its RemoteCluster, and holds the
// finalizers of that object and of its Secret.
func (r *Registry) report(ctx context.Context, c *Cluster, seen *v1alpha1.RemoteCluster) error {
	if seen.DeletionTimestamp == nil {
		if err := r.protect(ctx, seen); err != nil {
			return err
		}
	}
	if err := r.releaseUnused(ctx); err != nil {
		return err
	}
	status := c.status(seen, r.volumes(c.id))
	held := ""
	if seen.DeletionTimestamp != nil {
		held = c.held(ctx, status.Volumes)
	}
	if seen.DeletionTimestamp != nil && held == "" {
		return r.release(ctx, seen)
	}
	if seen.DeletionTimestamp != nil {
		meta.SetStatusCondition(&status.Conditions, metav1.Condition{
			Type: v1alpha1.Ready, Status: metav1.ConditionFalse, Reason: "Leaving", Message: held, ObservedGeneration: seen.Generation})
	}
	if equality.Semantic.DeepEqual(*status, seen.Status) {
		return nil
	}
	update := seen.DeepCopy()
	update.Status = *status
	if _, err := r.remotes.UpdateStatus(ctx, update, metav1.UpdateOptions{}); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("write status of RemoteCluster %s: %w", c.id, err)
	}
	if c.usable() && !sameOffer(status.StorageClasses, seen.Status.StorageClasses) {
		r.hooks.Changed(c.id, true)
	}
	return nil
}

// status is the status that a RemoteCluster should show.
func (c *Cluster) status(seen *v1alpha1.RemoteCluster, volumes int) *v1alpha1.RemoteClusterStatus {
	c.mu.Lock()
	defer c.mu.Unlock()
	status := seen.Status.DeepCopy()
	status.Volumes = volumes
	if health := c.registry.health(c.id); health != nil {
		status.VolumeHealth = health
	}
	for _, condition := range c.verdict.conditions(seen.Generation) {
		meta.SetStatusCondition(&status.Conditions, condition)
	}
	if c.verdict.version != "" {
		status.KubernetesVersion = c.verdict.version
	}
	if c.verdict.clusterUID != "" && c.verdict.unwantedReason != otherCluster {
		status.ClusterUID = c.verdict.clusterUID
	}
	if usable, _, _ := c.verdict.usable(); usable {
		status.StorageClasses = c.offered(seen.Status.StorageClasses)
	}
	return status
}

// offered returns the real classes of a usable cluster with the room that they
// have, given what was written before. The lock is held.
func (c *Cluster) offered(before []v1alpha1.OfferedClass) []v1alpha1.OfferedClass {
	offered := c.connection.offered()
	if !c.verdict.room {
		return offered
	}
	if free, read := c.connection.free(); read {
		withRoom(offered, free, before)
	} else {
		keepRoom(offered, before)
	}
	return offered
}

// held says what keeps a RemoteCluster that is to be deleted; empty if nothing. A
// cluster that holds no volume and does not answer is let go: it may never again.
func (c *Cluster) held(ctx context.Context, volumes int) string {
	if volumes > 0 {
		return fmt.Sprintf("%d volumes have their data there (kubectl get pv -l %s=%s): delete their claims or move them, then it goes", volumes, keys.Cluster, c.id)
	}
	if why := c.registry.heldBySnapshots(c.id); why != "" {
		return why
	}
	c.mu.Lock()
	connection := c.connection
	answers := c.verdict.checked && c.verdict.unreachable == "" && c.verdict.unauthorized == "" && c.verdict.unwanted == ""
	c.mu.Unlock()
	if connection == nil || !answers {
		return ""
	}
	claims, err := connection.unpublished(ctx)
	switch {
	case err != nil:
		return fmt.Sprintf("it is not known whether backing claims that were never used are left there: %v", err)
	case claims > 0:
		return fmt.Sprintf("%d backing claims that were never used are being removed there", claims)
	}
	return connection.keeper.Outstanding()
}

// protect adds the finalizers before anything depends on the objects.
func (r *Registry) protect(ctx context.Context, remote *v1alpha1.RemoteCluster) error {
	if !slices.Contains(remote.Finalizers, keys.VolumesFinalizer) {
		patch, err := finalizers(remote.ObjectMeta, append(slices.Clone(remote.Finalizers), keys.VolumesFinalizer))
		if err != nil {
			return err
		}
		if _, err := r.remotes.Patch(ctx, remote.Name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			return fmt.Errorf("protect RemoteCluster %s: %w", remote.Name, err)
		}
	}
	secret := r.secret(remote.Spec.KubeconfigSecretRef.Name)
	if remote.Spec.KubeconfigSecretRef.Namespace != r.namespace || secret == nil || secret.DeletionTimestamp != nil || slices.Contains(secret.Finalizers, keys.ClusterFinalizer) {
		return nil
	}
	return r.setSecretFinalizers(ctx, secret, append(slices.Clone(secret.Finalizers), keys.ClusterFinalizer))
}

// releaseUnused lets go the Secrets that no RemoteCluster names any more.
func (r *Registry) releaseUnused(ctx context.Context, leaving ...string) error {
	used := map[string]bool{}
	for _, remote := range r.all() {
		if !slices.Contains(leaving, remote.Name) {
			used[remote.Spec.KubeconfigSecretRef.Name] = true
		}
	}
	for _, obj := range r.secrets.GetStore().List() {
		secret, ok := obj.(*corev1.Secret)
		if !ok || used[secret.Name] || !slices.Contains(secret.Finalizers, keys.ClusterFinalizer) {
			continue
		}
		if err := r.setSecretFinalizers(ctx, secret, without(secret.Finalizers, keys.ClusterFinalizer)); err != nil {
			return err
		}
	}
	return nil
}

// release lets a RemoteCluster go, and its Secret where no other uses it.
func (r *Registry) release(ctx context.Context, remote *v1alpha1.RemoteCluster) error {
	if err := r.releaseUnused(ctx, remote.Name); err != nil {
		return err
	}
	if !slices.Contains(remote.Finalizers, keys.VolumesFinalizer) {
		return nil
	}
	patch, err := finalizers(remote.ObjectMeta, without(remote.Finalizers, keys.VolumesFinalizer))
	if err != nil {
		return err
	}
	if _, err := r.remotes.Patch(ctx, remote.Name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("release RemoteCluster %s: %w", remote.Name, err)
	}
	return nil
}

func (r *Registry) setSecretFinalizers(ctx context.Context, secret *corev1.Secret, want []string) error {
	patch, err := finalizers(secret.ObjectMeta, want)
	if err != nil {
		return err
	}
	if _, err := r.home.CoreV1().Secrets(secret.Namespace).Patch(ctx, secret.Name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("set finalizers of Secret %s/%s: %w", secret.Namespace, secret.Name, err)
	}
	return nil
}

// finalizers returns the patch that sets an object's finalizers if it is still
// as it was seen.
func finalizers(object metav1.ObjectMeta, want []string) ([]byte, error) {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": object.UID, "resourceVersion": object.ResourceVersion, "finalizers": want}})
	if err != nil {
		return nil, fmt.Errorf("encode finalizers %s: %w", strings.Join(want, ","), err)
	}
	return patch, nil
}

func without(all []string, one string) []string {
	return slices.DeleteFunc(slices.Clone(all), func(s string) bool { return s == one })
}
