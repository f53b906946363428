package snapshots

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/controller"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/volumesnapshot"
	"github.com/lodestone-storage/lodestone/provisioner/remote"
	"github.com/lodestone-storage/lodestone/provisioner/snapshots/decide"
)

// served serves the contents of one kind, of one volume or of several, as a CSI driver's snapshotter
// does: it queues them, has the next step chosen and taken, and writes what becomes of it. C is the
// content, O its observation, S its status. It is safe for concurrent use.
type served[C metav1.Object, O, S any] struct {
	kind[C, O, S]
	queue   *controller.Queue[item]
	reports reports
}

// kind is what tells contents of one volume from those of several.
type kind[C metav1.Object, O, S any] struct {
	// name is that of the queue; content and snapshot are how messages call what is served and what is
	// taken for it.
	name, content, snapshot string
	// finalizer keeps a content until nothing of it is left.
	finalizer string
	// find returns a content from the cache, false if our driver has none of that name; all returns those
	// of all drivers.
	find func(name string) (C, bool)
	all  func() []C
	// driver is that of a content, and in is the remote cluster that its data is in; empty for none.
	driver func(C) string
	in     func(C) string
	// contents is the client for contents, nil while home does not serve them.
	contents func() dynamic.ResourceInterface
	observe  func(C) O
	next     func(O) decide.StepOf[S]
	act      func(context.Context, O, decide.StepOf[S]) error
	// other does what is queued and is not a content.
	other func(context.Context, item) error
	// status is what is written of a status, without its error.
	status func(S) map[string]any
	failed func(S) *volumesnapshot.Failure
}

// item is a queue key: a content by name or, where Left is set, a snapshot in a remote
// cluster whose content is not in the cache, or a snapshot that a user asked for.
type item struct {
	Content string
	Cluster string
	Left    types.NamespacedName
	Asked   types.NamespacedName
}

func newServed[C metav1.Object, O, S any](k kind[C, O, S]) *served[C, O, S] {
	return &served[C, O, S]{kind: k, queue: controller.NewQueue[item](controller.QueueConfig{
		Name: k.name, FirstRetry: 50 * time.Millisecond, LastRetry: 20 * time.Second, Timeout: stepTimeout, FinishSteps: true, Quiet: true,
	})}
}

const (
	workers = 8
	// stepTimeout bounds all requests of one step.
	stepTimeout = 30 * time.Second
)

// ContentChanged is called when a content of the home cluster changed or was deleted.
func (s *served[C, O, S]) ContentChanged(c C) {
	if s.driver(c) == keys.Driver {
		s.queue.Add(item{Content: c.GetName()})
	}
}

// ClusterChanged is called when the state of a remote cluster changed; it queues the
// contents with data there.
func (s *served[C, O, S]) ClusterChanged(cluster string) {
	for _, content := range s.all() {
		if s.in(content) == cluster {
			s.ContentChanged(content)
		}
	}
}

// backingChanged queues the contents of a backing claim in a remote cluster that changed, or whose volume
// did: a snapshot of it may be waiting for that volume, or its deletion for a claim that is made from it.
func (s *served[C, O, S]) backingChanged(b *corev1.PersistentVolumeClaim, contents []C) {
	for _, content := range contents {
		s.ContentChanged(content)
	}
	if b.Spec.DataSource == nil || b.Spec.DataSource.Kind != volumesnapshot.Kind {
		return
	}
	for _, content := range s.all() {
		if content.GetDeletionTimestamp() != nil {
			s.ContentChanged(content)
		}
	}
}

// Run works until ctx ends, and returns when every step that has begun is finished.
func (s *served[C, O, S]) Run(ctx context.Context) { s.queue.Run(ctx, workers, s.sync) }

func (s *served[C, O, S]) sync(ctx context.Context, it item) (time.Duration, error) {
	if it.Content == "" {
		return 0, s.other(ctx, it)
	}
	content, ok := s.find(it.Content)
	if !ok {
		s.reports.forget(it.Content)
		return 0, nil
	}
	o := s.observe(content)
	step := s.next(o)
	if step.Verb == decide.Report && !s.reports.allow(it.Content) {
		return reportPause, nil
	}
	return step.After, s.act(ctx, o, step)
}

var (
	// errChanged is the error of a step whose observation is out of date.
	errChanged = errors.New("what was seen is out of date")
	// errNoClient is the error of a step in a cluster that has just been disconnected.
	errNoClient = errors.New("the cluster has no client now")
)

// report writes the status of a content, unless it has changed since it was observed.
func (s *served[C, O, S]) report(ctx context.Context, c C, status S) error {
	said := s.status(status)
	said["error"] = dated(s.failed(status))
	return s.patch(ctx, c, map[string]any{
		"metadata": map[string]any{"uid": c.GetUID(), "resourceVersion": c.GetResourceVersion()}, "status": said,
	}, "status")
}

// refused writes to a content why its snapshot cannot be taken, which step says, and returns what it was
// given.
func (s *served[C, O, S]) refused(ctx context.Context, c C, step decide.StepOf[S], because error) error {
	if step.Verb == decide.Report && s.reports.allow(c.GetName()) {
		if err := s.report(ctx, c, step.Status); err != nil {
			return err
		}
	}
	return because
}

// letGo removes our finalizer from a content.
func (s *served[C, O, S]) letGo(ctx context.Context, c C) error {
	finalizers := slices.DeleteFunc(slices.Clone(c.GetFinalizers()), func(f string) bool { return f == s.finalizer })
	err := s.patch(ctx, c, map[string]any{"metadata": map[string]any{"uid": c.GetUID(), "resourceVersion": c.GetResourceVersion(),
		"finalizers": finalizers}})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

func (s *served[C, O, S]) patch(ctx context.Context, c C, change map[string]any, subresources ...string) error {
	patch, err := json.Marshal(change)
	if err != nil {
		return fmt.Errorf("encode patch: %w", err)
	}
	contents := s.contents()
	if contents == nil {
		return errNoClient
	}
	if _, err := contents.Patch(ctx, c.GetName(), types.MergePatchType, patch, metav1.PatchOptions{}, subresources...); err != nil {
		return fmt.Errorf("write %s %s: %w", s.content, c.GetName(), err)
	}
	return nil
}

// create creates a snapshot in a remote cluster. why is set if the cluster refuses it.
func create(ctx context.Context, client dynamic.ResourceInterface, wanted any) (why, err error) {
	encoded, err := volumesnapshot.Write(wanted)
	if err != nil {
		return nil, err
	}
	_, err = client.Create(ctx, encoded, metav1.CreateOptions{})
	switch {
	case err == nil || apierrors.IsAlreadyExists(err):
		// Whether it is ours shows when it is observed.
		return nil, nil
	case apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsNotFound(err) || apierrors.IsBadRequest(err):
		return err, nil
	}
	return nil, err
}

// change marks a snapshot in a remote cluster as known at home, or deletes it.
func (s *served[C, O, S]) change(ctx context.Context, client dynamic.ResourceInterface, verb decide.Verb, there metav1.Object,
	cluster string) error {
	name := fmt.Sprintf("%s %s/%s in %s", s.snapshot, there.GetNamespace(), there.GetName(), cluster)
	if verb == decide.Mark {
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": there.GetUID(),
			"annotations": map[string]any{keys.Unpublished: nil}}})
		if err != nil {
			return fmt.Errorf("encode patch: %w", err)
		}
		if _, err = client.Patch(ctx, there.GetName(), types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			return fmt.Errorf("mark %s as known at home: %w", name, err)
		}
		return nil
	}
	err := client.Delete(ctx, there.GetName(), metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: ptr.To(there.GetUID())}})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete %s: %w", name, err)
	}
	return nil
}

// classIn returns the class to use in a remote cluster, as named by a content's own class; empty if that
// names none or is gone.
func classIn(ctx context.Context, classes dynamic.ResourceInterface, name *string, cluster string) (string, error) {
	if name == nil || classes == nil {
		return "", nil
	}
	found, err := classes.Get(ctx, *name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("look at class %s of snapshots: %w", *name, err)
	}
	class, err := volumesnapshot.Read[volumesnapshot.Class](found)
	if err != nil {
		return "", err
	}
	return class.In(cluster), nil
}

// removeOrphan deletes a snapshot in a remote cluster whose content is gone, if home never
// marked it as known. A marked one was deleted together with its content, or is to be kept.
func (s *served[C, O, S]) removeOrphan(ctx context.Context, homeID, cluster string, left metav1.Object,
	client dynamic.ResourceInterface) error {
	contents := s.contents()
	annotations, labels := left.GetAnnotations(), left.GetLabels()
	if contents == nil || annotations[keys.Unpublished] == "" || left.GetDeletionTimestamp() != nil || labels[keys.HomeID] != homeID {
		return nil
	}
	content, err := contents.Get(ctx, annotations[keys.Content], metav1.GetOptions{})
	switch {
	case err == nil && string(content.GetUID()) == labels[keys.ContentUID]:
		return nil
	case err != nil && !apierrors.IsNotFound(err):
		return fmt.Errorf("look for %s %s: %w", s.content, annotations[keys.Content], err)
	case client == nil:
		return errNoClient
	}
	err = client.Delete(ctx, left.GetName(), metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: ptr.To(left.GetUID()),
		ResourceVersion: ptr.To(left.GetResourceVersion())}})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete %s %s/%s in %s, which nobody knows of: %w", s.snapshot, left.GetNamespace(), left.GetName(), cluster, err)
	}
	return nil
}

// proveGone asks a remote API server whether a snapshot is gone. Before and after it checks the
// cluster's identity: a wrong cluster would also answer that there is none, and may take the address in
// between. is says whether what has its name is that snapshot.
func proveGone(ctx context.Context, typed kubernetes.Interface, client dynamic.ResourceInterface, cluster string,
	object *v1alpha1.RemoteCluster, name string, is func(*unstructured.Unstructured) bool) error {
	checked := func() error {
		same, err := remote.Same(ctx, typed, object, "")
		switch {
		case err != nil:
			return fmt.Errorf("ask which cluster %s is: %w", cluster, err)
		case !same:
			return fmt.Errorf("the kubeconfig of cluster %s leads to another cluster: %w", cluster, errChanged)
		}
		return nil
	}
	if err := checked(); err != nil {
		return err
	}
	found, err := client.Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return checked()
	case err != nil:
		return fmt.Errorf("look for snapshot %s in %s: %w", name, cluster, err)
	case is(found):
		return fmt.Errorf("snapshot %s in %s is there: %w", name, cluster, errChanged)
	}
	return checked()
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
