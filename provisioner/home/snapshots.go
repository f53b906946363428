// Package home reads the home cluster. Sources are its informers with their indexes, whose
// objects are stripped by Transform to the fields that are used. Snapshots watches its
// VolumeSnapshots, where the cluster serves that API. Start with sources.go.
package home

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/lodestone-storage/lodestone/pkg/backing"
	"github.com/lodestone-storage/lodestone/pkg/controller"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/volumesnapshot"
)

// State says whether a cluster serves the VolumeSnapshot API.
type State int

// The states of the API. While it is Unknown, conclude nothing from a missing snapshot.
const (
	Unknown State = iota
	Absent
	Served
)

// discoverEvery is how often discovery runs while the API is absent: no watch reports that
// an API was added.
const discoverEvery = 15 * time.Second

// Snapshots watches the VolumeSnapshots of the home cluster. A nil *Snapshots behaves as a
// cluster without the API. It is safe for concurrent use.
type Snapshots struct {
	client    dynamic.Interface
	discovery discovery.ServerResourcesInterface
	now       chan struct{}

	listeners []Listener
	api
}

// api has what is known of an API with snapshots and their contents: whether the home cluster serves it, and their informers once it
// does. A nil *api is that of a cluster without it.
type api struct {
	mu                  sync.Mutex
	state               State
	snapshots, contents cache.SharedIndexInformer
}

// set says whether the API is served, and returns whether that changed.
func (a *api) set(state State) (changed bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	changed = a.state != state
	a.state = state
	return changed
}

func (a *api) known() State {
	if a == nil {
		return Absent
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.state
}

// informers are nil while nothing is watched.
func (a *api) informers() (snapshots, contents cache.SharedIndexInformer) {
	if a == nil {
		return nil, nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.snapshots, a.contents
}

// cached returns an object of an informer, nil if there is none or no informer.
func cached[T any](informer cache.SharedIndexInformer, key string) *T {
	if informer == nil || key == "" {
		return nil
	}
	return controller.Get[T](informer, key)
}

// cachedAll returns the objects of an informer, none if there is no informer.
func cachedAll[T any](informer cache.SharedIndexInformer) []*T {
	if informer == nil {
		return nil
	}
	return controller.All[T](informer)
}

// cachedBy returns the objects that an index of an informer has under a key, none if there is no informer.
func cachedBy[T any](informer cache.SharedIndexInformer, index, key string) []*T {
	if informer == nil {
		return nil
	}
	return controller.Indexed[T](informer, index, key)
}

// discover asks whether an API is served until it is, and calls absent each time that it is not; a value of now has it ask at once. It
// returns false if ctx ended before.
func discover(ctx context.Context, now <-chan struct{}, what string, isServed func() (bool, error), absent func()) bool {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return false
		case <-timer.C:
		case <-now:
		}
		served, err := isServed()
		switch {
		case err != nil:
			klog.FromContext(ctx).V(2).Info("Cannot find out whether an API is served", "api", what, "err", err)
			timer.Reset(time.Second)
		case served:
			return true
		default:
			absent()
			timer.Reset(wait.Jitter(discoverEvery, 0.1))
		}
	}
}

// Listener has the callbacks for changes; leave nil what is not needed. They must not
// block.
type Listener struct {
	// SnapshotChanged: the snapshot with this name, or its content, changed.
	SnapshotChanged func(of types.NamespacedName)
	// ContentChanged: this content changed or was deleted.
	ContentChanged func(content *volumesnapshot.Content)
	// StateChanged: State has become known, or has changed.
	StateChanged func()
}

// NewSnapshots returns Snapshots whose state is unknown until Run.
func NewSnapshots(client dynamic.Interface, resources discovery.ServerResourcesInterface) *Snapshots {
	return &Snapshots{client: client, discovery: resources, now: make(chan struct{}, 1)}
}

// Subscribe adds the callbacks of a Listener. Call it before Run.
func (h *Snapshots) Subscribe(l Listener) { h.listeners = append(h.listeners, l) }

// Run watches until ctx ends.
func (h *Snapshots) Run(ctx context.Context) {
	isServed := func() (bool, error) { return Has(h.discovery) }
	if discover(ctx, h.now, "VolumeSnapshots", isServed, func() { h.set(Absent) }) {
		// Without the API the watches fail; they recover once it is back.
		h.watch(ctx)
	}
}

// Has asks whether a cluster serves the VolumeSnapshot API.
func Has(resources discovery.ServerResourcesInterface) (bool, error) {
	return serves(resources, volumesnapshot.Snapshots, volumesnapshot.Contents)
}

// serves asks whether a cluster serves both of two resources of one version.
func serves(resources discovery.ServerResourcesInterface, one, other schema.GroupVersionResource) (bool, error) {
	list, err := resources.ServerResourcesForGroupVersion(one.GroupVersion().String())
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("ask for the resources of %s: %w", one.GroupVersion(), err)
	}
	has := func(name string) bool {
		return slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Name == name })
	}
	return has(one.Resource) && has(other.Resource), nil
}

func (h *Snapshots) watch(ctx context.Context) {
	of := Informer[volumesnapshot.Snapshot](h.client, volumesnapshot.Snapshots, "", "", func(*volumesnapshot.Snapshot) {})
	contents := Informer[volumesnapshot.Content](h.client, volumesnapshot.Contents, "", "", func(*volumesnapshot.Content) {})
	_ = contents.AddIndexers(cache.Indexers{byVolume: func(obj any) ([]string, error) {
		if content, ok := obj.(*volumesnapshot.Content); ok && content.Spec.Source.VolumeHandle != nil {
			if ref, err := backing.ParseRef(*content.Spec.Source.VolumeHandle); err == nil {
				return []string{ref.Key().String()}, nil
			}
		}
		return nil, nil
	}, bySnapshot: func(obj any) ([]string, error) {
		if content, ok := obj.(*volumesnapshot.Content); ok && content.Spec.Driver == keys.Driver {
			if ref, err := backing.ParseRef(volumesnapshot.HandleOf(content)); err == nil {
				return []string{string(ref.UID)}, nil
			}
		}
		return nil, nil
	}})
	_, _ = controller.Watch(of, func(was, now *volumesnapshot.Snapshot) {
		s := controller.Either(was, now)
		h.snapshotChanged(types.NamespacedName{Namespace: s.Namespace, Name: s.Name})
	})
	_, _ = controller.Watch(contents, func(was, now *volumesnapshot.Content) {
		c := controller.Either(was, now)
		h.contentChanged(c)
		h.snapshotChanged(types.NamespacedName{Namespace: c.Spec.Snapshot.Namespace, Name: c.Spec.Snapshot.Name})
	})
	h.mu.Lock()
	h.snapshots, h.contents = of, contents
	h.mu.Unlock()
	runBoth(ctx, of, contents, func() { h.set(Served) })
}

// runBoth runs two informers until ctx is done, and calls synced once both have what there is.
func runBoth(ctx context.Context, a, b cache.SharedIndexInformer, synced func()) {
	var running sync.WaitGroup
	running.Go(func() { a.RunWithContext(ctx) })
	running.Go(func() { b.RunWithContext(ctx) })
	if cache.WaitForCacheSync(ctx.Done(), a.HasSynced, b.HasSynced) {
		synced()
	}
	running.Wait()
}

func (h *Snapshots) set(state State) {
	if !h.api.set(state) {
		return
	}
	for _, l := range h.listeners {
		if l.StateChanged != nil {
			l.StateChanged()
		}
	}
}

func (h *Snapshots) snapshotChanged(of types.NamespacedName) {
	for _, l := range h.listeners {
		if l.SnapshotChanged != nil {
			l.SnapshotChanged(of)
		}
	}
}

func (h *Snapshots) contentChanged(content *volumesnapshot.Content) {
	for _, l := range h.listeners {
		if l.ContentChanged != nil {
			l.ContentChanged(content)
		}
	}
}

// State says whether the home cluster serves the VolumeSnapshot API. It returns the last
// known state without a request; while that is Absent, Run repeats discovery every
// discoverEvery.
func (h *Snapshots) State() State { return h.watched().known() }

func (h *Snapshots) watched() *api {
	if h == nil {
		return nil
	}
	return &h.api
}

// Discover runs discovery now, for example because a claim needs the API that was absent.
func (h *Snapshots) Discover() {
	if h == nil {
		return
	}
	select {
	case h.now <- struct{}{}:
	default:
	}
}

// Snapshot returns a snapshot from the cache, nil if there is none.
func (h *Snapshots) Snapshot(key types.NamespacedName) *volumesnapshot.Snapshot {
	snapshots, _ := h.watched().informers()
	return cached[volumesnapshot.Snapshot](snapshots, key.String())
}

// Content returns a content from the cache, nil if there is none.
func (h *Snapshots) Content(name string) *volumesnapshot.Content {
	_, contents := h.watched().informers()
	return cached[volumesnapshot.Content](contents, name)
}

// Client returns a client of the home cluster; nil where it serves no VolumeSnapshots.
func (h *Snapshots) Client() dynamic.Interface {
	if h == nil {
		return nil
	}
	return h.client
}

// Informer returns an informer on objects of the VolumeSnapshot API. An empty namespace
// means all namespaces, an empty selector all labels. Its objects are of type T, as trim
// leaves them.
func Informer[T any](client dynamic.Interface, resource schema.GroupVersionResource, namespace, selector string,
	trim func(*T)) cache.SharedIndexInformer {
	informer := dynamicinformer.NewFilteredDynamicInformer(client, resource, namespace, 0, cache.Indexers{},
		func(options *metav1.ListOptions) {
			options.LabelSelector = selector
		}).Informer()
	_ = informer.SetTransform(func(obj any) (any, error) {
		from, ok := obj.(*unstructured.Unstructured)
		if !ok {
			return obj, nil
		}
		to, err := volumesnapshot.Read[T](from)
		if err != nil {
			return nil, err
		}
		if object, err := meta.Accessor(to); err == nil {
			object.SetManagedFields(nil)
		}
		trim(to)
		return to, nil
	})
	return informer
}

// Contents returns all contents from the cache.
func (h *Snapshots) Contents() []*volumesnapshot.Content {
	_, contents := h.watched().informers()
	return cachedAll[volumesnapshot.Content](contents)
}

// byVolume is the index of contents by namespace and name of the backing claim that their
// volume handle names. The UID is left out: a backing claim that was recreated has another.
const byVolume = "lodestone/volume"

// ContentsOf returns the contents of snapshots of a backing claim with this namespace and
// name, in any remote cluster.
func (h *Snapshots) ContentsOf(backing types.NamespacedName) []*volumesnapshot.Content {
	_, contents := h.watched().informers()
	return cachedBy[volumesnapshot.Content](contents, byVolume, backing.String())
}

// bySnapshot is the index of contents of our driver by the UID of the snapshot in a remote cluster that
// has their data.
const bySnapshot = "lodestone/snapshot"

// ContentsWith returns the contents whose data is that of the snapshot with this UID in a remote
// cluster.
func (h *Snapshots) ContentsWith(snapshot types.UID) []*volumesnapshot.Content {
	if snapshot == "" {
		return nil
	}
	_, contents := h.watched().informers()
	return cachedBy[volumesnapshot.Content](contents, bySnapshot, string(snapshot))
}
