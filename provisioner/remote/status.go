package remote

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
	"github.com/lodestone-storage/lodestone/pkg/controller"
	"github.com/lodestone-storage/lodestone/pkg/homeepoch"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// report writes the status of a RemoteCluster and keeps the finalizers on it and on its
// Secret.
func (r *Clusters) report(ctx context.Context, c *Cluster, seen *v1alpha1.RemoteCluster) error {
	if seen.DeletionTimestamp == nil {
		if err := r.protect(ctx, seen); err != nil {
			return err
		}
	}
	if err := r.releaseUnused(ctx); err != nil {
		return err
	}
	status := c.status(seen, r.contents.Volumes(c.id))
	blocker := ""
	if seen.DeletionTimestamp != nil {
		blocker = c.inUse(ctx, status.Volumes)
	}
	switch {
	case seen.DeletionTimestamp == nil || blocker != "":
	case slices.Contains(seen.Finalizers, keys.VirtualNodeFinalizer):
		// The pods of its virtual node are being ended there, so the mark stays.
		if err := r.releaseUnused(ctx, seen.Name); err != nil {
			return err
		}
	default:
		if err := c.dropEpoch(ctx); err != nil {
			return err
		}
		return r.release(ctx, seen)
	}
	if blocker != "" {
		meta.SetStatusCondition(&status.Conditions, metav1.Condition{
			Type: v1alpha1.Ready, Status: metav1.ConditionFalse, Reason: "Leaving", Message: blocker, ObservedGeneration: seen.Generation})
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
		r.listeners.clusterChanged(c.id, true)
	}
	return nil
}

// status returns the status that a RemoteCluster should have.
func (c *Cluster) status(seen *v1alpha1.RemoteCluster, volumes int) *v1alpha1.RemoteClusterStatus {
	c.mu.Lock()
	defer c.mu.Unlock()
	status := seen.Status.DeepCopy()
	status.ObservedGeneration, status.Volumes = seen.Generation, volumes
	if health := c.clusters.contents.Health(c.id); health != nil {
		status.VolumeHealth = health
	}
	for _, condition := range c.verdict.conditions(seen.Generation) {
		meta.SetStatusCondition(&status.Conditions, condition)
	}
	c.setPodLease(seen, status)
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

// inUse says why a RemoteCluster that is being deleted must stay; empty if it may go. A
// cluster without volumes that does not answer may go: it may never answer again.
func (c *Cluster) inUse(ctx context.Context, volumes int) string {
	if volumes > 0 {
		return fmt.Sprintf("%d volumes have their data there (kubectl get pv -l %s=%s): delete their claims or move them, then it goes", volumes,
			keys.Cluster, c.id)
	}
	if why := c.clusters.snapshotsInUse(c.id); why != "" {
		return why
	}
	c.mu.Lock()
	connection := c.connection
	// A home cluster in doubt does nothing there, so its RemoteCluster may go as if nobody answered.
	answers := c.verdict.checked && c.verdict.unreachable == "" && c.verdict.unauthorized == "" && c.verdict.unwanted == "" &&
		!homeepoch.Doubtful(c.verdict.epoch.reason)
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
	return connection.namespaces.Unreturned()
}

// snapshotsInUse says which snapshots use a RemoteCluster; empty if none.
func (r *Clusters) snapshotsInUse(id string) string {
	switch n, known := r.contents.Snapshots(id); {
	case !known:
		return "it is not known yet whether VolumeSnapshots have their data there"
	case n > 0:
		return fmt.Sprintf("%d VolumeSnapshots have their data there (kubectl get volumesnapshotcontents): delete them, then it goes", n)
	}
	return ""
}

// protect adds the finalizers before anything depends on the objects.
func (r *Clusters) protect(ctx context.Context, remote *v1alpha1.RemoteCluster) error {
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
	if remote.Spec.KubeconfigSecretRef.Namespace != r.namespace || secret == nil || secret.DeletionTimestamp != nil ||
		slices.Contains(secret.Finalizers, keys.ClusterFinalizer) {
		return nil
	}
	return r.setSecretFinalizers(ctx, secret, append(slices.Clone(secret.Finalizers), keys.ClusterFinalizer))
}

// release removes the finalizers from a RemoteCluster, and from its Secret unless another
// RemoteCluster uses it.
func (r *Clusters) release(ctx context.Context, remote *v1alpha1.RemoteCluster) error {
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
	if _, err := r.remotes.Patch(ctx, remote.Name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil &&
		!apierrors.IsNotFound(err) {
		return fmt.Errorf("release RemoteCluster %s: %w", remote.Name, err)
	}
	return nil
}

// releaseUnused removes the finalizer from Secrets that no RemoteCluster names any more.
func (r *Clusters) releaseUnused(ctx context.Context, leaving ...string) error {
	used := map[string]bool{}
	for _, remote := range controller.All[v1alpha1.RemoteCluster](r.objects) {
		if !slices.Contains(leaving, remote.Name) {
			used[remote.Spec.KubeconfigSecretRef.Name] = true
		}
	}
	for _, secret := range controller.All[corev1.Secret](r.secrets) {
		if used[secret.Name] || !slices.Contains(secret.Finalizers, keys.ClusterFinalizer) {
			continue
		}
		if err := r.setSecretFinalizers(ctx, secret, without(secret.Finalizers, keys.ClusterFinalizer)); err != nil {
			return err
		}
	}
	return nil
}

func (r *Clusters) setSecretFinalizers(ctx context.Context, secret *corev1.Secret, want []string) error {
	patch, err := finalizers(secret.ObjectMeta, want)
	if err != nil {
		return err
	}
	if _, err := r.home.CoreV1().Secrets(secret.Namespace).Patch(ctx, secret.Name, types.MergePatchType, patch,
		metav1.PatchOptions{}); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("set finalizers of Secret %s/%s: %w", secret.Namespace, secret.Name, err)
	}
	return nil
}

// finalizers returns the patch that sets an object's finalizers if its resource version is
// unchanged.
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
