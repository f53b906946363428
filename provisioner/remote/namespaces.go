// This file is the life of a namespace in a remote cluster: it is asked for, known to be given and for
// which home namespace, and given back. What is kept between the steps is one struct, so they stand together; what to do next
// and what a request says are decided by the functions at its end, which are pure.

package remote

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/pager"
	"k8s.io/klog/v2"

	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/backing"
	"github.com/lodestone-storage/lodestone/pkg/clients"
	"github.com/lodestone-storage/lodestone/pkg/controller"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/remotecluster"
	"github.com/lodestone-storage/lodestone/pkg/sentence"
	"github.com/lodestone-storage/lodestone/provisioner/home"
)

// namespaceConfig is what a namespaceController needs. Its functions must be safe for
// concurrent use; those without a context must answer from caches.
type namespaceConfig struct {
	// Cluster is the ID of the remote cluster, HomeID that of the home cluster.
	Cluster, HomeID string
	Strategy        v1alpha1.NamespaceStrategy
	// Home is the informer of home namespaces. Pods and volumes arrive through PodChanged
	// and VolumeGone instead: if each cluster had its own handler, each would queue all of
	// them.
	Home   cache.SharedIndexInformer
	Remote *clients.RemoteClient
	// Leaving says whether the RemoteCluster is being deleted.
	Leaving func() bool
	// Used says whether a namespace there is in use: a virtual volume has its data there,
	// claims of its home namespace may have backing claims there, or pods of it may have
	// copies there.
	Used func(namespace, home string) bool
	// Recorded returns the namespaces in the RemoteCluster's status; Forget removes one
	// from it.
	Recorded func() []string
	Forget   func(ctx context.Context, namespace string) error
	// Unpublished asks the API server how many backing claims without data are in a
	// namespace.
	Unpublished func(ctx context.Context, namespace string) (int, error)
	// HomePod asks the home API server for the UID of a pod; empty if there is none of that
	// name.
	HomePod func(ctx context.Context, namespace, name string) (types.UID, error)
	// Changed is called when the state of a namespace changed. It must not block.
	Changed func(namespace, home string, state namespaceState)
}

// namespaceController requests and returns the namespaces of one remote cluster, as long as
// one connection to it lasts. It is safe for concurrent use.
type namespaceController struct {
	namespaceConfig
	queue *controller.Queue[string]

	mu sync.Mutex
	// usable: requests may be sent to the cluster.
	usable   bool
	requests cache.SharedIndexInformer
	stop     context.CancelFunc
	memory   map[string]namespaceMemory
}

// namespaceMemory is the state of a namespace between steps; the zero value means none.
type namespaceMemory struct {
	// waiting is when waiting for it began, unneeded since when it is not needed.
	waiting, unneeded time.Time
	// left is a sentence on what is still in it while it is to be returned.
	left string
	// told is the UID of the home namespace that this process wrote into the request last, at
	// toldAt.
	told   types.UID
	toldAt time.Time
}

// remember changes the memory of a namespace; the caller holds the lock.
func (k *namespaceController) remember(name string, change func(m *namespaceMemory)) namespaceMemory {
	m := k.memory[name]
	change(&m)
	if m == (namespaceMemory{}) {
		delete(k.memory, name)
	} else {
		k.memory[name] = m
	}
	return m
}

// keep starts the namespace controller of a connection; it ends with the connection.
func (c *Cluster) keep(connection *connection, config *rest.Config, strategy v1alpha1.NamespaceStrategy) error {
	remote, err := clients.NewRemoteClient(config)
	if err != nil {
		return err
	}
	r := c.clusters
	connection.remote, connection.config = remote, config
	connection.namespaces = newNamespaceController(namespaceConfig{
		Cluster: c.id, HomeID: r.homeID, Strategy: strategy,
		Home: r.namespaces, Remote: remote,
		Leaving: func() bool {
			object := r.Object(c.id)
			return object == nil || object.DeletionTimestamp != nil
		},
		Used: func(namespace, home string) bool { return r.contents.Uses(c.id, namespace, home) },
		Recorded: func() []string {
			if object := r.Object(c.id); object != nil {
				return object.Status.Namespaces
			}
			return nil
		},
		Forget: func(ctx context.Context, namespace string) error {
			connection.unwatchClaims(namespace)
			return c.forgetNamespace(ctx, namespace)
		},
		Unpublished: connection.unpublishedIn,
		HomePod:     r.homePod,
		Changed: func(namespace, home string, state namespaceState) {
			if state.Rights {
				connection.rewatchClaims(namespace)
			}
			r.listeners.namespaceGiven(c.id, home, state.Given)
			if c.leaving() {
				c.CheckSoon()
			}
		},
	})
	r.running.Go(func() { connection.namespaces.Run(connection.ctx) })
	return nil
}

// homePod asks the home API server for the UID of a pod; empty if there is none of that
// name.
func (r *Clusters) homePod(ctx context.Context, namespace, name string) (types.UID, error) {
	if namespace == "" || name == "" {
		// The name comes from a remote cluster and may be anything; no pod can have this
		// one.
		return "", nil
	}
	pod, err := r.home.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("get pod %s/%s: %w", namespace, name, err)
	}
	return pod.UID, nil
}

// newNamespaceController returns a namespaceController that does nothing until Run.
func newNamespaceController(config namespaceConfig) *namespaceController {
	return &namespaceController{
		namespaceConfig: config,
		queue: controller.NewQueue[string](controller.QueueConfig{
			Name: "namespaces", FirstRetry: 100 * time.Millisecond, LastRetry: 30 * time.Second, Timeout: requestTimeout,
			Quiet: true,
		}),
		memory: map[string]namespaceMemory{},
	}
}

// Run works until ctx ends.
func (k *namespaceController) Run(ctx context.Context) {
	unwatch, err := controller.Watch(k.Home, func(was, now *corev1.Namespace) {
		k.queue.Add(remotecluster.Namespace(k.Strategy, controller.Either(was, now).Name, k.HomeID))
	})
	if err != nil {
		klog.FromContext(ctx).Error(err, "Home namespaces cannot be watched")
		return
	}
	defer func() { _ = unwatch() }()
	k.queue.Run(ctx, 1, k.sync)
}

// SetUsable sets whether requests may be sent to the cluster, and whether it creates
// namespaces on request. ctx ends the watches that start here.
func (k *namespaceController) SetUsable(ctx context.Context, usable, asking bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	again := usable && !k.usable
	k.usable = usable
	switch {
	case !usable:
	case asking && k.requests == nil:
		k.watch(ctx)
		again = true
	case !asking && k.requests != nil:
		k.stop()
		k.requests, k.stop = nil, nil
	}
	if again {
		k.enqueueAll()
	}
}

// watch starts to watch the NamespaceRequests.
func (k *namespaceController) watch(ctx context.Context) {
	ctx, k.stop = context.WithCancel(ctx)
	k.requests = clients.NewInformer(k.Remote.NamespaceRequests(k.tenant()), &remotev1alpha1.NamespaceRequest{}, nil, cache.Indexers{})
	_, _ = controller.Watch(k.requests, func(was, now *remotev1alpha1.NamespaceRequest) {
		name := controller.Either(was, now).Name
		k.queue.Add(name)
		if home, ok := homeOf(k.Strategy, name, k.HomeID); ok {
			k.Changed(name, home, k.State(name))
		}
	})
	requests := k.requests
	go requests.RunWithContext(ctx)
	go func() {
		if cache.WaitForCacheSync(ctx.Done(), requests.HasSynced) {
			k.EnqueueAll()
		}
	}()
}

func (k *namespaceController) tenant() string { return keys.TenantPrefix + k.HomeID }

// EnqueueAll queues all namespaces.
func (k *namespaceController) EnqueueAll() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.enqueueAll()
}

// enqueueAll is EnqueueAll for callers that hold the lock.
func (k *namespaceController) enqueueAll() {
	for _, namespace := range controller.All[corev1.Namespace](k.Home) {
		k.queue.Add(remotecluster.Namespace(k.Strategy, namespace.Name, k.HomeID))
	}
	if k.requests != nil {
		for _, name := range k.requests.GetStore().ListKeys() {
			_, name, _ := cache.SplitMetaNamespaceKey(name)
			k.queue.Add(name)
		}
	}
	for _, name := range k.Recorded() {
		k.queue.Add(name)
	}
}

// PodChanged queues a namespace when a pod starts or stops to need it. before is nil for a
// new pod, after for a deleted one. It does not block.
func (k *namespaceController) PodChanged(before, after *home.Pod) {
	needed, needs := before != nil && before.CopiedIn(k.Cluster), after != nil && after.CopiedIn(k.Cluster)
	if needed != needs {
		k.queue.Add(remotecluster.Namespace(k.Strategy, controller.Either(before, after).Namespace, k.HomeID))
	}
}

// VolumeGone queues the namespaces that a deleted virtual volume may have needed. It does
// not block.
func (k *namespaceController) VolumeGone() {
	for _, name := range k.Recorded() {
		k.queue.Add(name)
	}
}

const (
	// requestTimeout bounds the requests of one step for a namespace.
	requestTimeout = 10 * time.Second
	// lookAgain is when to check a namespace again in which something is left: not all
	// kinds of objects there are watched.
	lookAgain = 5 * time.Second
	// tellAgain is when the UID of a home namespace is written again into a request that does not
	// show it: a remote cluster of an earlier version drops the field, or forbids the request, until
	// it is upgraded.
	tellAgain = 10 * time.Minute
)

// sync takes the next step for one namespace and returns when to take another.
func (k *namespaceController) sync(ctx context.Context, name string) (time.Duration, error) {
	home, ok := homeOf(k.Strategy, name, k.HomeID)
	k.mu.Lock()
	ready := k.usable && (k.requests == nil || k.requests.HasSynced())
	k.mu.Unlock()
	if !ok || !ready {
		// Whatever makes it ready queues all namespaces.
		return 0, nil
	}
	o := k.observe(name, home)
	todo, after := next(o)
	switch todo {
	case ask:
		klog.FromContext(ctx).Info("Asking for a namespace", "namespace", name)
		_, err := k.Remote.NamespaceRequests(k.tenant()).Create(ctx, &remotev1alpha1.NamespaceRequest{
			ObjectMeta: metav1.ObjectMeta{Namespace: k.tenant(), Name: name, Labels: map[string]string{keys.HomeID: k.HomeID}},
			Spec:       remotev1alpha1.NamespaceRequestSpec{HomeNamespace: home, HomeNamespaceUID: o.uid},
		}, metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return 0, fmt.Errorf("ask for namespace %s: %w", name, err)
		}
		k.mu.Lock()
		k.remember(name, func(m *namespaceMemory) { m.waiting = time.Now() })
		k.mu.Unlock()
	case identify:
		return tellAgain, k.identify(ctx, o)
	case retire:
		return k.retire(ctx, o)
	case nothing:
	}
	return after, nil
}

func (k *namespaceController) observe(name, home string) namespaceObservation {
	o := namespaceObservation{name: name, leaving: k.Leaving(), recorded: slices.Contains(k.Recorded(), name)}
	if namespace := controller.Get[corev1.Namespace](k.Home, home); namespace != nil {
		o.exists = true
		o.open = namespace.DeletionTimestamp == nil && remotecluster.MayUse(namespace, k.Cluster)
		if namespace.DeletionTimestamp == nil {
			o.uid = namespace.UID
		}
	}
	if !o.open || o.leaving {
		o.used = k.Used(name, home)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	o.asking = k.requests != nil
	o.request = k.request(name)
	now := time.Now()
	memory := k.remember(name, func(m *namespaceMemory) {
		switch {
		case namespaceNeeded(o):
			m.unneeded, m.left = time.Time{}, ""
		case m.unneeded.IsZero():
			m.unneeded = now
		}
	})
	if !memory.unneeded.IsZero() {
		o.unneeded = now.Sub(memory.unneeded)
	}
	o.told = memory.told == o.uid && now.Sub(memory.toldAt) < tellAgain
	return o
}

// identify writes the UID of the home namespace into its request. The remote agent records it once
// and then gives the namespace to no other.
func (k *namespaceController) identify(ctx context.Context, o namespaceObservation) error {
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": o.request.UID}, "spec": map[string]any{"homeNamespaceUID": o.uid},
	})
	if err != nil {
		return fmt.Errorf("write the UID of a namespace: %w", err)
	}
	_, err = k.Remote.NamespaceRequests(k.tenant()).Patch(ctx, o.name, types.MergePatchType, patch, metav1.PatchOptions{})
	switch {
	case apierrors.IsForbidden(err):
		// Home's rights there are those of an earlier version.
	case apierrors.IsNotFound(err), apierrors.IsConflict(err):
		return nil // an event comes
	case err != nil:
		return fmt.Errorf("write the UID of namespace %s: %w", o.name, err)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.remember(o.name, func(m *namespaceMemory) { m.told, m.toldAt = o.uid, time.Now() })
	return nil
}

// uid returns the UID of a home namespace from the cache; empty if it does not exist.
func (k *namespaceController) uid(home string) types.UID {
	if namespace := controller.Get[corev1.Namespace](k.Home, home); namespace != nil {
		return namespace.UID
	}
	return ""
}

// request returns the NamespaceRequest for a namespace from the cache; the caller holds the
// lock.
func (k *namespaceController) request(name string) *remotev1alpha1.NamespaceRequest {
	if k.requests == nil {
		return nil
	}
	return controller.Get[remotev1alpha1.NamespaceRequest](k.requests, k.tenant()+"/"+name)
}

// retire returns a namespace once the remote API server confirms that nothing is left in it
// that this home must still delete.
func (k *namespaceController) retire(ctx context.Context, o namespaceObservation) (time.Duration, error) {
	what, err := k.remains(ctx, o)
	if err != nil {
		return 0, err
	}
	k.mu.Lock()
	k.remember(o.name, func(m *namespaceMemory) { m.left = what })
	k.mu.Unlock()
	if what != "" {
		return lookAgain, nil
	}
	if o.recorded && !o.exists {
		// Before the NamespaceRequest is deleted: without rights nobody could check any
		// more that the namespace is empty.
		if err := k.Forget(ctx, o.name); err != nil {
			return 0, err
		}
	}
	if o.request == nil || o.request.DeletionTimestamp != nil {
		return 0, nil
	}
	klog.FromContext(ctx).Info("Giving back a namespace", "namespace", o.name)
	err = k.Remote.NamespaceRequests(k.tenant()).Delete(ctx, o.name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &o.request.UID, ResourceVersion: &o.request.ResourceVersion}})
	if err != nil && !apierrors.IsNotFound(err) {
		return 0, fmt.Errorf("give back namespace %s: %w", o.name, err)
	}
	return 0, nil
}

// remains is a sentence on what is left in a namespace; empty for nothing.
func (k *namespaceController) remains(ctx context.Context, o namespaceObservation) (string, error) {
	claims, err := k.Unpublished(ctx, o.name)
	if err != nil {
		if apierrors.IsForbidden(err) && o.request != nil && !stateOf(o.request, o.name, o.request.Spec.HomeNamespace, "").Rights {
			// Never granted, or withdrawn: this home can delete nothing there.
			return "", nil
		}
		return "", fmt.Errorf("look for backing claims in namespace %s: %w", o.name, err)
	}
	if claims > 0 {
		return fmt.Sprintf("%d backing claims that were never used are left there in namespace %s: delete them at home", claims, o.name), nil
	}
	if !o.asking {
		return "", nil
	}
	return k.copies(ctx, o.name)
}

// unpublishedPage is the page size of unpublishedIn. No other list uses the same, so that
// the two are not taken for one another.
const unpublishedPage = 250

// unpublishedIn asks the API server how many backing claims without data are in a
// namespace, with its own timeout. It reads in pages, as their number is unlimited.
func (c *connection) unpublishedIn(ctx context.Context, namespace string) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	n := 0
	pages := pager.New(func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		return c.client.CoreV1().PersistentVolumeClaims(namespace).List(ctx, options)
	})
	pages.PageSize, pages.PageBufferSize = unpublishedPage, 1
	err := pages.EachListItem(ctx, metav1.ListOptions{LabelSelector: c.selector()}, func(obj runtime.Object) error {
		if claim, ok := obj.(*corev1.PersistentVolumeClaim); ok && backing.Unpublished(claim) {
			n++
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	return n, nil
}

// unpublished asks the API server how many backing claims without data are still to be
// deleted. Namespaces that may not be read count as empty: nothing could be deleted there
// either.
func (c *connection) unpublished(ctx context.Context) (int, error) {
	n := 0
	var errs []error
	for _, namespace := range c.watchedNamespaces() {
		found, err := c.unpublishedIn(ctx, namespace)
		if err != nil && !apierrors.IsForbidden(err) && !apierrors.IsNotFound(err) {
			errs = append(errs, fmt.Errorf("list backing claims in namespace %s: %w", namespace, err))
		}
		n += found
	}
	return n, errors.Join(errs...)
}

// copiesPage is the page size of the list of ShadowPods.
const copiesPage = 50

// copies is a sentence on the copies of home pods in a namespace that is not needed; empty
// for none. It deletes copies whose home pod is gone. The virtual node does that too, but
// ends its session with the last home pod, which a user may have force-deleted while the
// cluster did not answer.
func (k *namespaceController) copies(ctx context.Context, namespace string) (string, error) {
	list, err := k.Remote.ShadowPods(namespace).List(ctx, metav1.ListOptions{LabelSelector: keys.HomeID + "=" + k.HomeID, Limit: copiesPage})
	if err != nil {
		return "", fmt.Errorf("look for pods in namespace %s: %w", namespace, err)
	}
	moves, ending := false, false
	for i := range list.Items {
		shadow := &list.Items[i]
		if shadow.Labels[keys.MoveOf] != "" {
			// It has no home pod; the move or the replica of the volume deletes it.
			moves = true
			continue
		}
		kept, err := k.endOrphan(ctx, shadow)
		if err != nil {
			return "", err
		}
		if kept {
			return fmt.Sprintf("pods of this cluster are left there in namespace %s: delete them at home", namespace), nil
		}
		ending = true
	}
	switch {
	case ending:
		return fmt.Sprintf("pods there in namespace %s that are gone at home are being ended", namespace), nil
	case moves:
		return fmt.Sprintf("a volume is being copied there in namespace %s: wait until its VolumeMove is over, or delete that or its "+
			"VolumeReplica", namespace), nil
	}
	return "", nil
}

// endOrphan deletes a ShadowPod whose home pod is gone; true if the home pod still exists.
func (k *namespaceController) endOrphan(ctx context.Context, shadow *remotev1alpha1.ShadowPod) (kept bool, _ error) {
	home := shadow.Spec.Home
	uid, err := k.HomePod(ctx, home.Namespace, home.Name)
	if err != nil {
		return false, fmt.Errorf("look for the home pod of ShadowPod %s/%s: %w", shadow.Namespace, shadow.Name, err)
	}
	if uid == home.UID && uid != "" {
		return true, nil
	}
	if shadow.DeletionTimestamp != nil {
		return false, nil
	}
	err = k.Remote.ShadowPods(shadow.Namespace).Delete(ctx, shadow.Name,
		metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &shadow.UID}})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return false, fmt.Errorf("delete ShadowPod %s/%s: %w", shadow.Namespace, shadow.Name, err)
	}
	return false, nil
}

// State returns the state of a namespace.
func (k *namespaceController) State(name string) namespaceState {
	home, _ := homeOf(k.Strategy, name, k.HomeID)
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.requests == nil {
		return namespaceState{}
	}
	state := stateOf(k.request(name), name, home, k.uid(home))
	state.Since = k.remember(name, func(m *namespaceMemory) {
		switch {
		case state.Given:
			m.waiting = time.Time{}
		case m.waiting.IsZero():
			m.waiting = time.Now()
		}
	}).waiting
	return state
}

// Unreturned is a sentence on why namespaces of a cluster that is being removed are not
// returned yet; empty if all are.
func (k *namespaceController) Unreturned() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.requests == nil {
		return ""
	}
	if !k.requests.HasSynced() {
		return "it is being read which namespaces were asked for there"
	}
	for _, name := range slices.Sorted(maps.Keys(k.memory)) {
		if left := k.memory[name].left; left != "" {
			return left
		}
	}
	var names []string
	for _, request := range controller.All[remotev1alpha1.NamespaceRequest](k.requests) {
		if request.DeletionTimestamp == nil {
			names = append(names, request.Name)
		}
	}
	if len(names) == 0 {
		return ""
	}
	slices.Sort(names)
	return fmt.Sprintf("namespaces there are being given back: %s", sentence.Plain(strings.Join(names, ", "), 200))
}

// Synced says whether the cache has all NamespaceRequests.
func (k *namespaceController) Synced() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.requests == nil || k.requests.HasSynced()
}

// Size estimates how much memory the cached NamespaceRequests need, in bytes.
func (k *namespaceController) Size() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.requests == nil {
		return 0
	}
	const each = 1 << 10 // besides its text
	total := 0
	for _, obj := range k.requests.GetStore().List() {
		if text, err := json.Marshal(obj); err == nil {
			total += len(text) + each
		}
	}
	return total
}

// namespaceObservation is the state of one namespace of a remote cluster.
type namespaceObservation struct {
	name string
	// exists says whether the home namespace exists, open whether it may use the cluster.
	exists, open bool
	// uid is that of the home namespace; empty if it does not exist or is being deleted.
	// told: this process has lately written it into the request.
	uid  types.UID
	told bool
	// used: a virtual volume has its data there, a claim may have a backing claim there, or
	// a pod a copy.
	used bool
	// asking: the cluster creates namespaces on request. leaving: the RemoteCluster is
	// being deleted and takes nothing new.
	asking, leaving bool
	// request is the NamespaceRequest for it, nil if there is none.
	request *remotev1alpha1.NamespaceRequest
	// recorded: the RemoteCluster's status names it.
	recorded bool
	// unneeded is for how long it has not been needed.
	unneeded time.Duration
}

type namespaceVerb int

const (
	// nothing waits until something changes.
	nothing namespaceVerb = iota
	// ask creates the NamespaceRequest.
	ask
	// identify writes the UID of the home namespace into the NamespaceRequest.
	identify
	// retire returns the namespace if nothing is left in it.
	retire
)

// linger is how long a namespace that is no longer needed is kept: a step for a claim that
// has begun may last half a minute.
const linger = 35 * time.Second

// next returns the action, and for nothing also when to decide again; 0 means when
// something changes.
func next(o namespaceObservation) (namespaceVerb, time.Duration) {
	if namespaceNeeded(o) {
		// Rights are needed to delete what is there, even if home no longer may use it.
		if o.asking && o.request == nil && len(validation.IsDNS1123Label(o.name)) == 0 {
			return ask, 0
		}
		if o.request != nil && o.request.DeletionTimestamp == nil && o.uid != "" && o.request.Spec.HomeNamespaceUID != o.uid && !o.told {
			return identify, 0
		}
		if o.used && !o.open {
			// Its use may end without an event for this package.
			return nothing, linger
		}
		return nothing, 0
	}
	requested := o.request != nil && o.request.DeletionTimestamp == nil
	if !requested && (!o.recorded || o.exists) {
		return nothing, 0
	}
	if left := linger - o.unneeded; left > 0 && !o.leaving {
		return nothing, left
	}
	return retire, 0
}

func namespaceNeeded(o namespaceObservation) bool {
	return o.used || (o.open && !o.leaving)
}

// namespaceState is the state of a claim's namespace in a remote cluster.
type namespaceState struct {
	// Asked is true where the cluster creates namespaces on request; Given once this one
	// may be used.
	Asked, Given bool
	// Rights says whether home may at least read and delete what it has there.
	Rights bool
	// Reason and Message say why the cluster refuses the namespace. Without a reason it may
	// still be granted; a message then says what it waits for.
	Reason, Message string
	// Since is when this process began to wait for it.
	Since time.Time
}

// passing are reasons of the remote agent that go away by themselves.
var passing = []string{"Preparing", "Terminating"}

// stateOf returns the state that a request shows. name is the namespace, home the home
// namespace that it belongs to, uid the UID of that; empty if it does not exist.
func stateOf(request *remotev1alpha1.NamespaceRequest, name, home string, uid types.UID) namespaceState {
	state := namespaceState{Asked: true}
	refuse := func(reason, message string) namespaceState {
		state.Reason, state.Message = reason, message
		return state
	}
	if len(name) > validation.DNS1123LabelMaxLength {
		return refuse("NameTooLong", fmt.Sprintf("its name there, %s, would have more than %d characters: use a shorter name at home", name,
			validation.DNS1123LabelMaxLength))
	}
	if request == nil || request.DeletionTimestamp != nil {
		return state
	}
	if request.Spec.HomeNamespace != home {
		return refuse("OtherRequest", fmt.Sprintf("NamespaceRequest %s there was made for another namespace: delete it", name))
	}
	ready := meta.FindStatusCondition(request.Status.Conditions, remotev1alpha1.Ready)
	switch {
	case ready == nil:
	case ready.Status == metav1.ConditionTrue:
		state.Rights = true
		if recorded := request.Status.HomeNamespaceUID; recorded != "" && uid != "" && recorded != uid {
			// The remote agent has not judged the new UID yet.
			state.Message = fmt.Sprintf("namespace %s there is of an earlier namespace of this name, and the remote agent has not answered yet",
				name)
			return state
		}
		state.Given = true
	case ready.Status == metav1.ConditionFalse && slices.Contains(passing, ready.Reason):
		state.Message = sentence.Plain(ready.Message, 256)
	case ready.Status == metav1.ConditionFalse && ready.Reason != "":
		state.Rights = ready.Reason == remotev1alpha1.ReasonAnotherNamespace
		return refuse(sentence.Plain(ready.Reason, 64), sentence.Plain(ready.Message, 256))
	}
	return state
}

// homeOf returns the home namespace that a namespace of a remote cluster belongs to; false
// if it belongs to none.
func homeOf(strategy v1alpha1.NamespaceStrategy, namespace, homeID string) (string, bool) {
	if strategy == v1alpha1.Suffixed {
		home, ok := strings.CutSuffix(namespace, "-"+homeID)
		return home, ok && home != ""
	}
	return namespace, true
}
