package snapshots

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/volumesnapshot"
	"github.com/lodestone-storage/lodestone/provisioner/remote"
)

// errChanged is the error of a step whose observation is out of date.
var errChanged = errors.New("what was seen is out of date")

// act takes a step. It need not know whether a failed request took effect: the next
// observation shows it.
func (m *Controller) act(ctx context.Context, o Observation, step Step) error {
	switch step.Verb {
	case Idle:
		return nil
	case Report:
		return m.report(ctx, o.Content, step.Status)
	case Take:
		return m.create(ctx, o)
	case Release:
		return m.release(ctx, o, step)
	case Mark, Delete:
	}
	client := m.remote(o.Ref.Cluster, o.There.Namespace)
	if client == nil {
		return errNoClient
	}
	if step.Verb == Mark {
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": o.There.UID,
			"annotations": map[string]any{keys.Unpublished: nil}}})
		if err != nil {
			return fmt.Errorf("encode patch: %w", err)
		}
		if _, err = client.Patch(ctx, o.There.Name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			return fmt.Errorf("mark snapshot %s/%s in %s as known at home: %w", o.There.Namespace, o.There.Name, o.Ref.Cluster, err)
		}
		return nil
	}
	err := client.Delete(ctx, o.There.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &o.There.UID}})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete snapshot %s/%s in %s: %w", o.There.Namespace, o.There.Name, o.Ref.Cluster, err)
	}
	return nil
}

// errNoClient is the error of a step in a cluster that has just been disconnected.
var errNoClient = errors.New("the cluster has no client now")

func (m *Controller) remote(cluster, namespace string) dynamic.ResourceInterface {
	if c := m.Clusters.Get(cluster); c != nil {
		if client := c.Dynamic(); client != nil {
			return client.Resource(volumesnapshot.Snapshots).Namespace(namespace)
		}
	}
	return nil
}

func (m *Controller) contents() dynamic.ResourceInterface {
	return m.Home.Client().Resource(volumesnapshot.Contents)
}

// create creates the VolumeSnapshot of a content. If the cluster refuses it, the reason is
// written to the content's status.
func (m *Controller) create(ctx context.Context, o Observation) error {
	class, err := m.class(ctx, o)
	if err != nil {
		return err
	}
	client, cluster := m.remote(o.Ref.Cluster, o.Ref.Namespace), m.Clusters.Get(o.Ref.Cluster)
	if client == nil || cluster == nil || cluster.Client() == nil {
		return errNoClient
	}
	// The VolumeSnapshot names its claim without a UID, so check now that the claim is
	// ours.
	shadow, err := cluster.Client().CoreV1().PersistentVolumeClaims(o.Ref.Namespace).Get(ctx, o.Ref.Name, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("look at real claim %s: %w", o.Ref, err)
	}
	if shadow.UID != Source(o).UID {
		return fmt.Errorf("real claim %s is another: %w", o.Ref, errChanged)
	}
	encoded, err := volumesnapshot.Write(Wanted(o, class))
	if err != nil {
		return err
	}
	_, err = client.Create(ctx, encoded, metav1.CreateOptions{})
	switch {
	case err == nil || apierrors.IsAlreadyExists(err):
		// Whether it is ours shows when it is observed.
		return nil
	case apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsNotFound(err) || apierrors.IsBadRequest(err):
		if step := fail(o, "cluster %s refuses it: %v", o.Ref.Cluster, err); step.Verb == Report && m.reports.allow(o.Content.Name) {
			if reported := m.act(ctx, o, step); reported != nil {
				return reported
			}
		}
	}
	return fmt.Errorf("take snapshot %s in %s: %w", encoded.GetName(), o.Ref.Cluster, err)
}

// Wanted returns the VolumeSnapshot to create for a content, with this class of the remote
// cluster; empty means its default class.
func Wanted(o Observation, class string) *volumesnapshot.Snapshot {
	s := &volumesnapshot.Snapshot{
		TypeMeta: metav1.TypeMeta{APIVersion: volumesnapshot.GroupVersion.String(), Kind: volumesnapshot.Kind},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: o.Ref.Namespace, Name: Name(o.Content),
			Labels:      map[string]string{keys.HomeID: o.HomeID, keys.ContentUID: string(o.Content.UID)},
			Annotations: map[string]string{keys.Content: o.Content.Name, keys.MadeBy: o.Real.Spec.CSI.Driver, keys.Unpublished: "true"},
		},
		Spec: volumesnapshot.SnapshotSpec{Source: volumesnapshot.SnapshotSource{ClaimName: ptr.To(o.Ref.Name)}},
	}
	if class != "" {
		s.Spec.ClassName = &class
	}
	return s
}

// class returns the snapshot class to use in the remote cluster, as named by the content's
// own class; empty if that names none or is gone.
func (m *Controller) class(ctx context.Context, o Observation) (string, error) {
	if o.Content.Spec.ClassName == nil {
		return "", nil
	}
	found, err := m.Home.Client().Resource(volumesnapshot.Classes).Get(ctx, *o.Content.Spec.ClassName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("look at VolumeSnapshotClass %s: %w", *o.Content.Spec.ClassName, err)
	}
	class, err := volumesnapshot.Read[volumesnapshot.Class](found)
	if err != nil {
		return "", err
	}
	return class.In(o.Ref.Cluster), nil
}

// removeOrphan deletes a snapshot in a remote cluster whose content is gone, if home never
// marked it as known. A marked one was deleted together with its content, or is to be kept.
func (m *Controller) removeOrphan(ctx context.Context, it item) error {
	cluster := m.Clusters.Get(it.Cluster)
	if cluster == nil {
		return nil
	}
	left := cluster.Snapshot(it.Left)
	if left == nil || left.Annotations[keys.Unpublished] == "" || left.DeletionTimestamp != nil || left.Labels[keys.HomeID] != m.HomeID {
		return nil
	}
	content, err := m.contents().Get(ctx, left.Annotations[keys.Content], metav1.GetOptions{})
	switch {
	case err == nil && string(content.GetUID()) == left.Labels[keys.ContentUID]:
		return nil
	case err != nil && !apierrors.IsNotFound(err):
		return fmt.Errorf("look for content %s: %w", left.Annotations[keys.Content], err)
	}
	client := m.remote(it.Cluster, left.Namespace)
	if client == nil {
		return errNoClient
	}
	err = client.Delete(ctx, left.Name,
		metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &left.UID, ResourceVersion: &left.ResourceVersion}})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete snapshot %s in %s, which nobody knows of: %w", it.Left, it.Cluster, err)
	}
	return nil
}

// dated returns an error with a time: now, if it has none yet.
func dated(failed *volumesnapshot.Failure) *volumesnapshot.Failure {
	if failed == nil || failed.Time != nil {
		return failed
	}
	now := *failed
	now.Time = ptr.To(metav1.Now())
	return &now
}

// report writes the status of a content, unless it has changed since it was observed.
func (m *Controller) report(ctx context.Context, c *volumesnapshot.Content, status volumesnapshot.ContentStatus) error {
	status.Error = dated(status.Error)
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": c.UID, "resourceVersion": c.ResourceVersion},
		"status": map[string]any{
			"snapshotHandle": status.SnapshotHandle, "creationTime": status.CreationTime, "restoreSize": status.RestoreSize,
			"readyToUse": status.ReadyToUse, "error": status.Error,
		},
	})
	if err != nil {
		return fmt.Errorf("encode status: %w", err)
	}
	if _, err := m.contents().Patch(ctx, c.Name, types.MergePatchType, patch, metav1.PatchOptions{}, "status"); err != nil {
		return fmt.Errorf("write status of content %s: %w", c.Name, err)
	}
	return nil
}

// The status of a content is written this often in a row, then once in reportPause. Taking
// a snapshot needs few writes; a remote cluster that changes its status constantly must not
// cause more.
const (
	reportsInARow = 10
	reportPause   = 15 * time.Second
)

// reports limits how often the status of each content is written. Its zero value is ready
// to use; it is safe for concurrent use.
type reports struct {
	mu sync.Mutex
	of map[string]flowcontrol.RateLimiter
}

// allow says whether the status of a content may be written now, and counts the write.
func (r *reports) allow(content string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	limit, ok := r.of[content]
	if !ok {
		limit = flowcontrol.NewTokenBucketRateLimiter(float32(1/reportPause.Seconds()), reportsInARow)
		if r.of == nil {
			r.of = map[string]flowcontrol.RateLimiter{}
		}
		r.of[content] = limit
	}
	return limit.TryAccept()
}

// forget drops the state of a content that is gone.
func (r *reports) forget(content string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.of, content)
}

// release removes our finalizer from a content, if step.Gone only after the remote API
// server has confirmed that the snapshot is gone.
func (m *Controller) release(ctx context.Context, o Observation, step Step) error {
	if step.Gone {
		cluster := m.Clusters.Get(o.Ref.Cluster)
		if cluster == nil {
			return errNoClient
		}
		typed, client := cluster.Clients()
		if typed == nil || client == nil {
			return errNoClient
		}
		if err := proveGone(ctx, typed, client, m.Clusters.Object(o.Ref.Cluster), o, m.key(o)); err != nil {
			return err
		}
	}
	finalizers := slices.DeleteFunc(slices.Clone(o.Content.Finalizers), func(f string) bool { return f == volumesnapshot.ContentFinalizer })
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": o.Content.UID, "resourceVersion": o.Content.ResourceVersion,
		"finalizers": finalizers}})
	if err != nil {
		return fmt.Errorf("encode patch: %w", err)
	}
	if _, err := m.contents().Patch(ctx, o.Content.Name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil &&
		!apierrors.IsNotFound(err) {
		return fmt.Errorf("let content %s go: %w", o.Content.Name, err)
	}
	return nil
}

// proveGone asks the remote API server whether the snapshot of a content, given by name, is
// gone. First it checks the cluster's identity: a wrong cluster would also answer that
// there is none.
func proveGone(ctx context.Context, typed kubernetes.Interface, client dynamic.Interface, cluster *v1alpha1.RemoteCluster, o Observation,
	at types.NamespacedName) error {
	same, err := remote.Same(ctx, typed, cluster, "")
	switch {
	case err != nil:
		return fmt.Errorf("ask which cluster %s is: %w", o.Ref.Cluster, err)
	case !same:
		return fmt.Errorf("the kubeconfig of cluster %s leads to another cluster: %w", o.Ref.Cluster, errChanged)
	}
	found, err := client.Resource(volumesnapshot.Snapshots).Namespace(at.Namespace).Get(ctx, at.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("look for snapshot %s in %s: %w", at, o.Ref.Cluster, err)
	case given(o.Content) && found.GetUID() == o.Ref.UID, !given(o.Content) && found.GetLabels()[keys.ContentUID] == string(o.Content.UID):
		return fmt.Errorf("snapshot %s in %s is there: %w", at, o.Ref.Cluster, errChanged)
	}
	return nil
}
