package snapshot

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/clients"
)

// Feed watches one kind of object.
type Feed struct {
	// Kind is the plural name of the kind.
	Kind string
	// Entries returns how many objects of the kind the snapshot holds.
	Entries func() int
	// LastChange returns when the last change arrived; zero before the first.
	LastChange func() time.Time

	// optional says that no decision needs the kind.
	optional bool
	synced   func() bool
	state    *watchState
	run      func(context.Context)
}

// Feeds watch all that a snapshot contains, and write each change directly into it: whole objects
// are not stored, so that 50,000 claims need little memory.
type Feeds []Feed

// NewFeeds returns feeds that fill view. They do nothing before Run.
func NewFeeds(client kubernetes.Interface, clusters *clients.RemoteClusters, view *Snapshot) Feeds {
	core, storage := client.CoreV1(), client.StorageV1()
	return Feeds{
		newFeed("persistentvolumeclaims", core.PersistentVolumeClaims(metav1.NamespaceAll), client, view.ClaimStore(time.Now), FromClaim,
			&corev1.PersistentVolumeClaim{}),
		newFeed("persistentvolumes", core.PersistentVolumes(), client, view.Volumes, FromVolume, &corev1.PersistentVolume{}),
		newFeed("storageclasses", storage.StorageClasses(), client, view.StorageClasses(), whole, &storagev1.StorageClass{}),
		newFeed("remoteclusters", clusters, clusters, view.Clusters, FromRemoteCluster, &v1alpha1.RemoteCluster{}),
		newFeed("nodes", core.Nodes(), client, view.Nodes, FromNode, &corev1.Node{}),
		newFeed("namespaces", core.Namespaces(), client, view.Namespaces, FromNamespace, &corev1.Namespace{}),
		newFeed("csinodes", storage.CSINodes(), client, view.Limits, FromCSINode, &storagev1.CSINode{}),
		newFeed("pods", onNodes{core.Pods(metav1.NamespaceAll)}, client, view.Assigned, FromPod, &corev1.Pod{}),
		room(client, view),
	}
}

// Run watches until ctx ends.
func (f Feeds) Run(ctx context.Context) {
	var running sync.WaitGroup
	for _, feed := range f {
		running.Go(func() { feed.run(ctx) })
	}
	running.Wait()
}

// Missing returns the kinds that have not been listed yet.
func (f Feeds) Missing() []string {
	var kinds []string
	for _, feed := range f {
		if !feed.synced() && !feed.optional {
			kinds = append(kinds, feed.Kind)
		}
	}
	return kinds
}

// Stalest returns the kind whose changes have not arrived for the longest time, and that time; 0
// while those of all kinds arrive that decisions need. It takes no lock.
func (f Feeds) Stalest(now time.Time) (kind string, age time.Duration) {
	for _, feed := range f {
		if its := feed.state.age(now); its > age && !feed.optional {
			kind, age = feed.Kind, its
		}
	}
	return kind, age
}

// Connected reports whether changes of the kind arrive.
func (f Feed) Connected() bool { return f.state.connected() }

// Age returns how old the entries of the kind may be: 0 while changes arrive.
func (f Feed) Age(now time.Time) time.Duration { return f.state.age(now) }

// Restarts returns how many watches of the kind were opened after the first. API servers end each
// watch after some minutes.
func (f Feed) Restarts() int64 { return f.state.restarts() }

func newFeed[L, O runtime.Object, V any](kind string, objects listWatcher[L], client any, table target[V], convert func(O) (V, bool),
	example O) Feed {
	entries := &store[O, V]{table: table, convert: convert, now: time.Now}
	entries.state.lostSince(time.Now())
	source := watchAll(kind, objects, client, &entries.state)
	return Feed{
		Kind:       kind,
		Entries:    table.Len,
		LastChange: entries.lastChange,
		synced:     entries.synced.Load,
		state:      &entries.state,
		run: func(ctx context.Context) {
			go entries.state.guard(ctx)
			cache.NewReflectorWithOptions(source, example, entries, cache.ReflectorOptions{
				Name: kind,
				// The definition of a kind may be installed together with this program: try again
				// soon.
				Backoff: &wait.Backoff{Duration: 200 * time.Millisecond, Factor: 2, Jitter: 0.5, Cap: 5 * time.Second, Steps: 10},
			}).RunWithContext(ctx)
		},
	}
}

// room returns the feed of the room at home. If the right to read it is missing, only a preference
// is lost.
func room(client kubernetes.Interface, view *Snapshot) Feed {
	capacities := client.StorageV1().CSIStorageCapacities(metav1.NamespaceAll)
	feed := newFeed("csistoragecapacities", capacities, client, view.Room, FromCapacity, &storagev1.CSIStorageCapacity{})
	feed.optional = true
	return feed
}

// whole is a conversion that changes nothing.
func whole[O runtime.Object](object O) (O, bool) { return object, true }

// onNodes lists and watches the pods that have a node and have not ended.
type onNodes struct{ corev1client.PodInterface }

func (p onNodes) List(ctx context.Context, options metav1.ListOptions) (*corev1.PodList, error) {
	return p.PodInterface.List(ctx, running(options))
}

func (p onNodes) Watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	return p.PodInterface.Watch(ctx, running(options))
}

func running(options metav1.ListOptions) metav1.ListOptions {
	options.FieldSelector = "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed"
	return options
}

type listWatcher[L runtime.Object] interface {
	List(context.Context, metav1.ListOptions) (L, error)
	Watch(context.Context, metav1.ListOptions) (watch.Interface, error)
}

// watchAll makes a typed client usable by a reflector; client says whether the first list can be
// streamed. Events are reported to state.
func watchAll[L runtime.Object](kind string, objects listWatcher[L], client any, state *watchState) cache.ListerWatcher {
	outage := &outage{kind: kind}
	return cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			state.requested(time.Now())
			list, err := objects.List(ctx, options)
			outage.note(ctx, err)
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			state.requested(time.Now())
			changes, err := objects.Watch(ctx, options)
			if options.SendInitialEvents == nil || (!apierrors.IsInvalid(err) && !apierrors.IsBadRequest(err)) {
				// If a server cannot stream the first list, a plain list is requested.
				outage.note(ctx, err)
			}
			if err == nil {
				state.openedWatch(changes, options.SendInitialEvents != nil, time.Now())
			}
			return changes, err
		},
	}, client)
}

// target stores the entries of one kind. One goroutine writes.
type target[V any] interface {
	Set(key string, value V)
	Delete(key string)
	// Replace replaces the whole content by entries, and does not keep the map.
	Replace(entries map[string]V)
	Len() int
}

// store is the store of a reflector for the objects of one kind: it converts each object to its
// entry and writes that to a target.
type store[O runtime.Object, V any] struct {
	table target[V]
	// convert returns the entry of an object; false if it has none.
	convert func(O) (V, bool)
	now     func() time.Time
	synced  atomic.Bool
	changed atomic.Pointer[time.Time]
	state   watchState
}

// feedEntry is a converted object.
type feedEntry[V any] struct {
	key   string
	value V
	keep  bool
}

var (
	_ cache.TransformingStore      = &store[runtime.Object, int]{}
	_ cache.ResourceVersionUpdater = &store[runtime.Object, int]{}
)

// Transformer returns a function that converts objects while the first list is streamed, so that
// the whole list is never in memory.
func (s *store[O, V]) Transformer() cache.TransformFunc {
	return func(obj any) (any, error) { return s.entryOf(obj) }
}

func (s *store[O, V]) entryOf(obj any) (feedEntry[V], error) {
	switch obj := obj.(type) {
	case feedEntry[V]:
		return obj, nil
	case O:
		key, err := cache.MetaNamespaceKeyFunc(obj)
		if err != nil {
			return feedEntry[V]{}, fmt.Errorf("name object: %w", err)
		}
		value, keep := s.convert(obj)
		return feedEntry[V]{key: key, value: value, keep: keep}, nil
	}
	return feedEntry[V]{}, fmt.Errorf("convert object: unexpected type %T", obj)
}

// Add implements cache.ReflectorStore.
func (s *store[O, V]) Add(obj any) error {
	e, err := s.entryOf(obj)
	if err != nil {
		return err
	}
	if e.keep {
		s.table.Set(e.key, e.value)
	} else {
		s.table.Delete(e.key)
	}
	s.touch()
	return nil
}

// Update implements cache.ReflectorStore.
func (s *store[O, V]) Update(obj any) error {
	return s.Add(obj)
}

// Delete implements cache.ReflectorStore.
func (s *store[O, V]) Delete(obj any) error {
	key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(obj)
	if err != nil {
		return fmt.Errorf("name deleted object: %w", err)
	}
	s.table.Delete(key)
	s.touch()
	return nil
}

// Replace implements cache.ReflectorStore: list has all objects.
func (s *store[O, V]) Replace(list []any, _ string) error {
	entries := make(map[string]V, len(list))
	for _, obj := range list {
		e, err := s.entryOf(obj)
		if err != nil {
			return err
		}
		if e.keep {
			entries[e.key] = e.value
		}
	}
	s.table.Replace(entries)
	s.touch()
	s.state.replaced(s.now())
	s.synced.Store(true)
	return nil
}

// UpdateResourceVersion implements cache.ResourceVersionUpdater: it is called after an event or a
// bookmark.
func (s *store[O, V]) UpdateResourceVersion(string) {
	s.state.noteEvent(s.now())
}

// Resync implements cache.ReflectorStore; there is nothing to do.
func (s *store[O, V]) Resync() error {
	return nil
}

func (s *store[O, V]) touch() {
	now := s.now()
	s.changed.Store(&now)
}

// lastChange returns when the last change arrived; zero before the first.
func (s *store[O, V]) lastChange() time.Time {
	if at := s.changed.Load(); at != nil {
		return *at
	}
	return time.Time{}
}

// outage logs when a kind can no longer be read, with the reason, and when it can be again: once
// each, however many attempts there are in between. A reflector itself logs nothing about an API
// server that it cannot reach.
type outage struct {
	kind string
	last atomic.Pointer[string]
}

// note records the result of an attempt to read.
func (o *outage) note(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	why := ""
	// The URL is another one for each attempt, the cause is not.
	if problem := (*url.Error)(nil); errors.As(err, &problem) {
		err = problem.Err
	}
	if err != nil {
		why = err.Error()
	}
	before := ""
	if last := o.last.Swap(&why); last != nil {
		before = *last
	}
	switch {
	case why == before:
	case err != nil:
		klog.FromContext(ctx).Info("Cannot read from the API server, trying on", "resource", o.kind, "err", err)
	default:
		klog.FromContext(ctx).Info("Reading from the API server again", "resource", o.kind)
	}
}

// silence is the longest time in which a watch may bring neither an event nor a bookmark; an API
// server sends a bookmark about once a minute. After that the connection counts as lost, unless a
// new watch succeeds.
const silence = 150 * time.Second

// watchState records whether a kind is being watched, and if not, since when. A reflector calls its
// methods in the order of events; the methods that only read are safe for concurrent use and take
// no lock.
type watchState struct {
	watched atomic.Bool
	// lost is when the entries were last complete, in nanoseconds since 1970. It has no meaning
	// while watched.
	lost atomic.Int64
	// lastEvent is when the watch last brought an event or a bookmark.
	lastEvent atomic.Int64
	opened    atomic.Int64

	mu sync.Mutex
	// open is the present watch; nil if there is none.
	open watch.Interface
	// filling says that open still brings the first objects, which count only when all have come.
	filling bool
}

// requested records that a list or a watch is being requested: a watch that lasted until now has
// ended. A lost connection is noticed late: with HTTP/2 after 45 s.
func (p *watchState) requested(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open = nil
	if p.watched.Load() {
		p.lostSince(now)
	}
}

// openedWatch records that a watch was opened; filling says that it begins with all objects.
func (p *watchState) openedWatch(w watch.Interface, filling bool, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open, p.filling = w, filling
	p.opened.Add(1)
	if !filling {
		p.nowWatched(now)
	}
}

// replaced records that all objects were listed again.
func (p *watchState) replaced(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.open != nil {
		p.filling = false
		p.nowWatched(now)
		return
	}
	p.lostSince(now)
}

// noteEvent records that the watch brought an event or a bookmark.
func (p *watchState) noteEvent(now time.Time) {
	p.lastEvent.Store(now.UnixNano())
}

// interrupt stops a watch that has been silent for too long, so that a new one is opened.
func (p *watchState) interrupt(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	last := time.Unix(0, p.lastEvent.Load())
	if p.open == nil || p.filling || now.Sub(last) <= silence {
		return
	}
	p.open.Stop()
	p.open = nil
	p.lostSince(last)
}

func (p *watchState) nowWatched(now time.Time) {
	p.noteEvent(now)
	p.watched.Store(true)
}

func (p *watchState) lostSince(at time.Time) {
	p.lost.Store(at.UnixNano())
	p.watched.Store(false)
}

// connected reports whether changes arrive.
func (p *watchState) connected() bool {
	return p.watched.Load()
}

// age returns how old the entries may be: 0 while changes arrive.
func (p *watchState) age(now time.Time) time.Duration {
	if p.watched.Load() {
		return 0
	}
	return max(0, now.Sub(time.Unix(0, p.lost.Load())))
}

// restarts returns how many watches were opened after the first.
func (p *watchState) restarts() int64 {
	return max(0, p.opened.Load()-1)
}

// guard interrupts silent watches until ctx ends.
func (p *watchState) guard(ctx context.Context) {
	ticker := time.NewTicker(silence / 10)
	defer ticker.Stop()
	for {
		select {
		case now := <-ticker.C:
			p.interrupt(now)
		case <-ctx.Done():
			return
		}
	}
}
