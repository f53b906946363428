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

// verdict is the result of a probe of a remote cluster.
type verdict struct {
	finding
	// unconfigured is a sentence if there is no usable kubeconfig.
	unconfigured string
	// ignored is true if the cluster is disconnected because it sent too much data;
	// unconfigured says so.
	ignored bool
	// unwanted is a sentence if the cluster must not be used: it is the home cluster, or
	// another RemoteCluster uses it.
	unwanted       string
	unwantedReason string
	leaving        string
	// epoch says whether this home, and no copy of it, acts there.
	epoch    epochState
	unsynced bool
	checked  bool
	// credentials is the condition CredentialsValid.
	credentials metav1.Condition
}

// usable says whether requests may be sent to the cluster. That includes a cluster whose
// RemoteCluster is being deleted, since its volumes must be served.
func (v verdict) usable() (ok bool, reason, message string) {
	without := v
	without.leaving = ""
	ready := meta.FindStatusCondition(without.conditions(0), v1alpha1.Ready)
	return ready.Status == metav1.ConditionTrue, ready.Reason, ready.Message
}

// conditions returns the conditions for a verdict. The first obstacle gives Ready its
// reason and message.
func (v verdict) conditions(generation int64) []metav1.Condition {
	reachable := condition(v1alpha1.Reachable, metav1.ConditionTrue, "Answers", "its API server answers")
	authorized := condition(v1alpha1.Authorized, metav1.ConditionTrue, "HasRights",
		"the kubeconfig has the cluster-wide rights that are needed")
	ready := condition(v1alpha1.Ready, metav1.ConditionTrue, "Ready", "volumes can be made there")
	switch {
	case v.ignored:
		reachable = condition(v1alpha1.Reachable, metav1.ConditionUnknown, "NotTried", v.unconfigured)
		authorized = condition(v1alpha1.Authorized, metav1.ConditionUnknown, "NotTried", v.unconfigured)
		ready = condition(v1alpha1.Ready, metav1.ConditionFalse, "TooMuch", v.unconfigured)
	case v.unconfigured != "":
		reachable = condition(v1alpha1.Reachable, metav1.ConditionUnknown, "NotTried", "there is no usable kubeconfig")
		authorized = condition(v1alpha1.Authorized, metav1.ConditionFalse, "BadKubeconfig", v.unconfigured)
		ready = condition(v1alpha1.Ready, metav1.ConditionFalse, "BadKubeconfig", v.unconfigured)
	case !v.checked:
		reachable = condition(v1alpha1.Reachable, metav1.ConditionUnknown, "Checking", "its API server is being asked")
		authorized = condition(v1alpha1.Authorized, metav1.ConditionUnknown, "Checking", "its API server is being asked")
		ready = condition(v1alpha1.Ready, metav1.ConditionFalse, "Checking", "its API server is being asked")
	case v.unreachable != "":
		reachable = condition(v1alpha1.Reachable, metav1.ConditionFalse, "NoAnswer", v.unreachable)
		authorized = condition(v1alpha1.Authorized, metav1.ConditionUnknown, "NoAnswer", "its API server does not answer")
		ready = condition(v1alpha1.Ready, metav1.ConditionFalse, "NotReachable", v.unreachable)
	case v.unauthorized != "":
		authorized = condition(v1alpha1.Authorized, metav1.ConditionFalse, "MissingRights", v.unauthorized)
		ready = condition(v1alpha1.Ready, metav1.ConditionFalse, "NotAuthorized", v.unauthorized)
	case v.unwanted != "":
		ready = condition(v1alpha1.Ready, metav1.ConditionFalse, v.unwantedReason, v.unwanted)
	case !v.epoch.acts:
		ready = condition(v1alpha1.Ready, metav1.ConditionFalse, notInForce, v.epoch.condition().Message)
	case v.leaving != "":
		ready = condition(v1alpha1.Ready, metav1.ConditionFalse, "Leaving", v.leaving)
	case v.unsynced:
		ready = condition(v1alpha1.Ready, metav1.ConditionFalse, "Syncing", "its volumes and storage classes are being read")
	}
	credentials := v.credentials
	if credentials.Type == "" {
		credentials = condition(v1alpha1.CredentialsValid, metav1.ConditionUnknown, "NotRead", "there is no usable kubeconfig")
	}
	result := []metav1.Condition{ready, reachable, authorized, credentials, v.epoch.condition()}
	for i := range result {
		result[i].ObservedGeneration = generation
	}
	return result
}

func condition(kind string, status metav1.ConditionStatus, reason, message string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message}
}

// otherCluster is the reason of a RemoteCluster that no longer leads to the cluster with
// its volumes.
const otherCluster = "OtherCluster"

// holdings is what home has stored in a remote cluster.
type holdings struct {
	// count is how many volumes and snapshots have their data there.
	count int
	// uids are the UIDs of clusters that the volumes carry.
	uids []string
}

// unwanted returns why a RemoteCluster must not be used, given the UID of the cluster that
// it leads to, the home cluster's UID, all RemoteClusters, and what has its data in the cluster
// that it led to before. What the volumes carry counts even if the RemoteCluster was made anew, and
// so does what kubectl lodestone peer wrote: only the status is lost then.
func unwanted(self *v1alpha1.RemoteCluster, clusterUID, homeUID string, all []*v1alpha1.RemoteCluster, has holdings) (reason,
	message string) {
	if clusterUID == "" {
		return "", ""
	}
	if clusterUID == homeUID {
		return "PointsHome", "the kubeconfig leads to the home cluster itself: use that of another cluster"
	}
	if has.count > 0 {
		for _, recorded := range append([]string{self.Status.ClusterUID}, has.uids...) {
			if recorded != "" && recorded != clusterUID {
				// A wrong cluster would answer that the volumes are gone.
				return otherCluster, fmt.Sprintf("the kubeconfig leads to another cluster than the one that holds %d volumes or snapshots: put "+
					"back the kubeconfig of that one", has.count)
			}
		}
	}
	if made := self.Annotations[keys.ClusterUID]; made != "" && made != clusterUID {
		return otherCluster, fmt.Sprintf("the kubeconfig leads to another cluster than the one that kubectl lodestone peer made this "+
			"RemoteCluster for: put back the kubeconfig of that one, or, if this one is meant, delete the annotation %s", keys.ClusterUID)
	}
	for _, other := range all {
		if other.Name == self.Name || other.Status.ClusterUID != clusterUID {
			continue
		}
		if older(other, self) {
			return "Duplicate", fmt.Sprintf("RemoteCluster %q already stands for this cluster: delete one of the two", other.Name)
		}
	}
	return "", ""
}

func older(a, b *v1alpha1.RemoteCluster) bool {
	if !a.CreationTimestamp.Equal(&b.CreationTimestamp) {
		return a.CreationTimestamp.Before(&b.CreationTimestamp)
	}
	return a.Name < b.Name
}

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

// offered returns the real classes of a usable cluster with their room, given those in the
// status. The caller holds the lock.
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

// holdings returns what home has stored in a cluster.
func (r *Clusters) holdings(id string) holdings {
	taken, _ := r.contents.Snapshots(id)
	return holdings{count: r.contents.Volumes(id) + taken, uids: r.contents.ClusterUIDs(id)}
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
