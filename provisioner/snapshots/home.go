// Package snapshots watches the VolumeSnapshots of the home cluster, where that has
// them, and takes snapshots of volumes whose data is in remote clusters.
package snapshots

import (
	"context"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/lodestone-storage/lodestone/pkg/volumesnapshot"
	"github.com/lodestone-storage/lodestone/provisioner/backing"
)

// State says whether a cluster has VolumeSnapshots.
type State int

// The states of the API. While it is unknown nothing may be concluded.
const (
	Unknown State = iota
	Absent
	Served
)

// lookEvery is how often the API is looked for while it is absent: no object
// that may be watched tells of it.
const lookEvery = 15 * time.Second

// Home watches the snapshots of the home cluster. A nil *Home knows of none. It is
// safe for concurrent use.
type Home struct {
	client    dynamic.Interface
	discovery discovery.ServerResourcesInterface
	look      chan struct{}

	mu       sync.Mutex
	hooks    Hooks
	state    State
	of       cache.SharedIndexInformer
	contents cache.SharedIndexInformer
}

// Hooks are called when something changed; they must not block.
type Hooks struct {
	// Snapshot: the snapshot of this name, or its content, changed.
	Snapshot func(of types.NamespacedName)
	// Content: this content changed or went.
	Content func(content *volumesnapshot.Content)
	// State: it is known now whether the cluster has snapshots, or that changed.
	State func()
}

// NewHome returns a Home that knows nothing until it is run.
func NewHome(client dynamic.Interface, resources discovery.ServerResourcesInterface) *Home {
	return &Home{client: client, discovery: resources, look: make(chan struct{}, 1)}
}

// Run watches until ctx ends.
func (h *Home) Run(ctx context.Context, hooks Hooks) {
	h.mu.Lock()
	h.hooks = hooks
	h.mu.Unlock()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-h.look:
		}
		served, err := Has(h.discovery)
		switch {
		case err != nil:
			klog.FromContext(ctx).V(2).Info("Cannot find out whether there are VolumeSnapshots", "err", err)
			timer.Reset(time.Second)
		case !served:
			h.set(Absent)
			timer.Reset(wait.Jitter(lookEvery, 0.1))
		default:
			// Without the API the watches fail, and go on once it is back.
			h.watch(ctx)
			return
		}
	}
}

// Has asks whether a cluster serves the VolumeSnapshot API.
func Has(resources discovery.ServerResourcesInterface) (bool, error) {
	list, err := resources.ServerResourcesForGroupVersion(volumesnapshot.GroupVersion.String())
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("ask for the resources of %s: %w", volumesnapshot.GroupVersion, err)
	}
	found := map[string]bool{}
	for _, resource := range list.APIResources {
		found[resource.Name] = true
	}
	return found[volumesnapshot.Snapshots.Resource] && found[volumesnapshot.Contents.Resource], nil
}

func (h *Home) watch(ctx context.Context) {
	of := Informer[volumesnapshot.Snapshot](h.client, volumesnapshot.Snapshots, "", "", func(*volumesnapshot.Snapshot) {})
	contents := Informer[volumesnapshot.Content](h.client, volumesnapshot.Contents, "", "", func(*volumesnapshot.Content) {})
	_ = contents.AddIndexers(cache.Indexers{byVolume: func(obj any) ([]string, error) {
		if content, ok := obj.(*volumesnapshot.Content); ok && content.Spec.Source.VolumeHandle != nil {
			if ref, err := backing.ParseRef(*content.Spec.Source.VolumeHandle); err == nil {
				return []string{ref.Key().String()}, nil
			}
		}
		return nil, nil
	}})
	_, _ = of.AddEventHandler(Handler(func(s *volumesnapshot.Snapshot) {
		h.hooks.Snapshot(types.NamespacedName{Namespace: s.Namespace, Name: s.Name})
	}))
	_, _ = contents.AddEventHandler(Handler(func(c *volumesnapshot.Content) {
		h.hooks.Content(c)
		h.hooks.Snapshot(types.NamespacedName{Namespace: c.Spec.Snapshot.Namespace, Name: c.Spec.Snapshot.Name})
	}))
	h.mu.Lock()
	h.of, h.contents = of, contents
	h.mu.Unlock()
	var running sync.WaitGroup
	running.Go(func() { of.RunWithContext(ctx) })
	running.Go(func() { contents.RunWithContext(ctx) })
	if cache.WaitForCacheSync(ctx.Done(), of.HasSynced, contents.HasSynced) {
		h.set(Served)
	}
	running.Wait()
}

func (h *Home) set(state State) {
	h.mu.Lock()
	changed := h.state != state
	h.state = state
	h.mu.Unlock()
	if changed {
		h.hooks.State()
	}
}

// State says whether the home cluster has snapshots. Where it had none it is looked
// at again soon.
func (h *Home) State() State {
	if h == nil {
		return Absent
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.state
}

// Look has the API looked for now, as when a claim asks for it that was absent.
func (h *Home) Look() {
	if h == nil {
		return
	}
	select {
	case h.look <- struct{}{}:
	default:
	}
}

// Snapshot returns a snapshot as last seen, nil if there is none.
func (h *Home) Snapshot(key types.NamespacedName) *volumesnapshot.Snapshot {
	return cached[volumesnapshot.Snapshot](h, func() cache.SharedIndexInformer { return h.of }, key.String())
}

// Content returns a content as last seen, nil if there is none.
func (h *Home) Content(name string) *volumesnapshot.Content {
	return cached[volumesnapshot.Content](h, func() cache.SharedIndexInformer { return h.contents }, name)
}

// Client reads and writes the home cluster; nil without snapshots.
func (h *Home) Client() dynamic.Interface {
	if h == nil {
		return nil
	}
	return h.client
}
