package home

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"

	"github.com/lodestone-storage/lodestone/pkg/backing"
	"github.com/lodestone-storage/lodestone/pkg/controller"
	"github.com/lodestone-storage/lodestone/pkg/volumesnapshot"
)

// Groups watches the VolumeGroupSnapshots of the home cluster and their contents, once that serves the API.
// A nil *Groups behaves as a cluster without the API. It is safe for concurrent use.
type Groups struct {
	client    dynamic.Interface
	discovery discovery.ServerResourcesInterface
	changed   func(content *volumesnapshot.GroupContent)
	asked     func(snapshot *volumesnapshot.GroupSnapshot)
	api
	// version is that of what is watched.
	version schema.GroupVersion
}

// NewGroups returns Groups whose state is unknown until Run.
func NewGroups(client dynamic.Interface, resources discovery.ServerResourcesInterface) *Groups {
	return &Groups{client: client, discovery: resources}
}

// Subscribe sets what is called when a content, or a snapshot that a user asked for, changed or was
// deleted; it must not block. Call it before Run.
func (g *Groups) Subscribe(changed func(content *volumesnapshot.GroupContent), asked func(snapshot *volumesnapshot.GroupSnapshot)) {
	g.changed, g.asked = changed, asked
}

// Run watches until ctx ends.
func (g *Groups) Run(ctx context.Context) {
	var version schema.GroupVersion
	isServed := func() (served bool, err error) {
		version, served, err = GroupVersion(g.discovery)
		return served, err
	}
	if discover(ctx, nil, "VolumeGroupSnapshots", isServed, func() { g.set(Absent) }) {
		g.watch(ctx, version)
	}
}

// GroupVersion asks in which version a cluster serves the VolumeGroupSnapshot API, false if in none
// that can be used.
func GroupVersion(resources discovery.ServerResourcesInterface) (schema.GroupVersion, bool, error) {
	for _, version := range volumesnapshot.GroupVersions {
		has, err := serves(resources, volumesnapshot.GroupSnapshots(version), volumesnapshot.GroupContents(version))
		if err != nil {
			return schema.GroupVersion{}, false, err
		}
		if has {
			return version, true, nil
		}
	}
	return schema.GroupVersion{}, false, nil
}

func (g *Groups) watch(ctx context.Context, version schema.GroupVersion) {
	contents := Informer[volumesnapshot.GroupContent](g.client, volumesnapshot.GroupContents(version), "", "",
		func(*volumesnapshot.GroupContent) {})
	_ = contents.AddIndexers(cache.Indexers{byVolume: func(obj any) ([]string, error) {
		content, ok := obj.(*volumesnapshot.GroupContent)
		if !ok {
			return nil, nil
		}
		var keys []string
		for _, handle := range content.Spec.Source.VolumeHandles {
			if ref, err := backing.ParseRef(handle); err == nil {
				keys = append(keys, ref.Key().String())
			}
		}
		return keys, nil
	}})
	_, _ = controller.Watch(contents, func(was, now *volumesnapshot.GroupContent) {
		if g.changed != nil {
			g.changed(controller.Either(was, now))
		}
	})
	snapshots := Informer[volumesnapshot.GroupSnapshot](g.client, volumesnapshot.GroupSnapshots(version), "", "",
		func(*volumesnapshot.GroupSnapshot) {})
	_, _ = controller.Watch(snapshots, func(was, now *volumesnapshot.GroupSnapshot) {
		if g.asked != nil {
			g.asked(controller.Either(was, now))
		}
	})
	g.mu.Lock()
	g.version, g.contents, g.snapshots = version, contents, snapshots
	g.mu.Unlock()
	runBoth(ctx, contents, snapshots, func() { g.set(Served) })
}

// State says whether the home cluster serves the VolumeGroupSnapshot API, as far as is known.
func (g *Groups) State() State { return g.watched().known() }

func (g *Groups) watched() *api {
	if g == nil {
		return nil
	}
	return &g.api
}

// Content returns a content from the cache, nil if there is none.
func (g *Groups) Content(name string) *volumesnapshot.GroupContent {
	_, contents := g.watched().informers()
	return cached[volumesnapshot.GroupContent](contents, name)
}

// Snapshot returns a snapshot that a user asked for from the cache, nil if there is none.
func (g *Groups) Snapshot(key types.NamespacedName) *volumesnapshot.GroupSnapshot {
	snapshots, _ := g.watched().informers()
	return cached[volumesnapshot.GroupSnapshot](snapshots, key.String())
}

// Contents returns all contents from the cache.
func (g *Groups) Contents() []*volumesnapshot.GroupContent {
	_, contents := g.watched().informers()
	return cachedAll[volumesnapshot.GroupContent](contents)
}

// ContentsOf returns the contents that have, or are to have, a snapshot of a backing claim with this
// namespace and name, in any remote cluster.
func (g *Groups) ContentsOf(backing string) []*volumesnapshot.GroupContent {
	_, contents := g.watched().informers()
	return cachedBy[volumesnapshot.GroupContent](contents, byVolume, backing)
}

// Resources returns clients for the contents and classes of the home cluster, nil while it does not
// serve them.
func (g *Groups) Resources() (contents, classes dynamic.ResourceInterface) {
	if _, informer := g.watched().informers(); informer == nil {
		return nil, nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.client.Resource(volumesnapshot.GroupContents(g.version)), g.client.Resource(volumesnapshot.GroupClasses(g.version))
}
