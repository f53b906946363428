package largecluster

import (
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
)

// Paths of the collections that can change.
const (
	ClaimsPath  = "/api/v1/persistentvolumeclaims"
	VolumesPath = "/api/v1/persistentvolumes"
	NodesPath   = "/api/v1/nodes"
)

// bookmarks come about as often as those of an API server.
const bookmarks = time.Minute

// Cluster is an API server. A watch gets the objects of its collection first and
// then the changes; one that goes on where another ended is told that this is too
// long ago, so that it starts anew. It is safe for concurrent use.
type Cluster struct {
	collections map[string]*collection
	revision    atomic.Int64
	// uid is that of a cluster of a fleet, which answers more than watches; empty
	// for the others.
	uid string

	mu     sync.Mutex
	writes map[string]int
}

// collection is how many objects of a kind there are, and the i-th of them.
type collection struct {
	apiVersion, kind string
	size             int
	object           func(i int) runtime.Object

	mu       sync.Mutex
	watchers map[chan []byte]struct{}
}

// backlog is how many changes a watch may be late before it is ended.
const backlog = 1024

// New returns a cluster with so many claims, each with its volume and its pod.
func New(claims int) *Cluster {
	return newCluster(map[string]*collection{
		ClaimsPath:                               {apiVersion: "v1", kind: "PersistentVolumeClaim", size: claims, object: claimObject},
		VolumesPath:                              {apiVersion: "v1", kind: "PersistentVolume", size: claims, object: volumeObject},
		NodesPath:                                {apiVersion: "v1", kind: "Node", size: Nodes, object: nodeObject},
		"/api/v1/pods":                           {apiVersion: "v1", kind: "Pod", size: claims, object: podObject},
		"/apis/storage.k8s.io/v1/csinodes":       {apiVersion: "storage.k8s.io/v1", kind: "CSINode", size: Nodes, object: csiNodeObject},
		"/api/v1/namespaces":                     {apiVersion: "v1", kind: "Namespace", size: 1, object: namespaceObject},
		"/apis/storage.k8s.io/v1/storageclasses": {apiVersion: "storage.k8s.io/v1", kind: "StorageClass", size: 1, object: classObject},
		"/apis/storage.k8s.io/v1/csistoragecapacities": {apiVersion: "storage.k8s.io/v1", kind: "CSIStorageCapacity"},
		"/apis/lodestone.dev/v1alpha1/remoteclusters":  {apiVersion: v1alpha1.GroupVersion.String(), kind: "RemoteCluster", size: RemoteClusters, object: clusterObject},
	}, "")
}

func newCluster(collections map[string]*collection, uid string) *Cluster {
	c := &Cluster{collections: collections, uid: uid, writes: map[string]int{}}
	for _, collection := range c.collections {
		collection.watchers = map[chan []byte]struct{}{}
	}
	c.revision.Store(1)
	return c
}

// ServeHTTP implements http.Handler.
func (c *Cluster) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	collection, ok := c.collections[r.URL.Path]
	query := r.URL.Query()
	switch {
	case c.uid != "" && (!ok || r.Method != http.MethodGet):
		c.answer(w, r)
	case !ok:
		http.NotFound(w, r)
	case query.Get("sendInitialEvents") == "true":
		c.stream(w, r, collection)
	case query.Get("watch") != "":
		refuse(w, apierrors.NewResourceExpired("this is too long ago"))
	case query.Get("labelSelector") != "":
		c.list(w, r, collection)
	default:
		refuse(w, apierrors.NewBadRequest("only streams of the initial state and lists by label are served here"))
	}
}

// list answers with the objects of a collection that have the labels asked for.
func (c *Cluster) list(w http.ResponseWriter, r *http.Request, collection *collection) {
	selector, err := labels.Parse(r.URL.Query().Get("labelSelector"))
	if err != nil {
		refuse(w, apierrors.NewBadRequest(err.Error()))
		return
	}
	items := []runtime.Object{}
	for i := range collection.size {
		object := collection.object(i)
		if accessor, ok := object.(metav1.Object); ok && selector.Matches(labels.Set(accessor.GetLabels())) {
			items = append(items, object)
		}
	}
	reply(w, http.StatusOK, map[string]any{"apiVersion": collection.apiVersion, "kind": collection.kind + "List",
		"metadata": metav1.ListMeta{ResourceVersion: fmt.Sprint(c.revision.Load())}, "items": items})
}

func refuse(w http.ResponseWriter, problem *apierrors.StatusError) {
	status := problem.Status()
	status.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(int(status.Code))
	// Whoever hung up needs no answer.
	_ = json.NewEncoder(w).Encode(status)
}

// Change tells the watches of a collection that its i-th object, which need not be
// one of those that a new watch gets, was added, modified or deleted.
func (c *Cluster) Change(path string, what watch.EventType, i int) error {
	collection, ok := c.collections[path]
	if !ok || collection.object == nil {
		return fmt.Errorf("change object of %s: there is no such collection", path)
	}
	line, err := c.event(collection, what, collection.object(i))
	if err != nil {
		return err
	}
	collection.tell(line)
	return nil
}

// tell sends a line to all watches, and ends those that are too late.
func (c *collection) tell(line []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for watcher := range c.watchers {
		select {
		case watcher <- line:
		default:
			delete(c.watchers, watcher)
			close(watcher)
		}
	}
}

// event returns the line that tells a watch of an object.
func (c *Cluster) event(collection *collection, what watch.EventType, object runtime.Object) ([]byte, error) {
	object.GetObjectKind().SetGroupVersionKind(schema.FromAPIVersionAndKind(collection.apiVersion, collection.kind))
	if object, ok := object.(metav1.Object); ok {
		object.SetResourceVersion(fmt.Sprint(c.revision.Add(1)))
	}
	line, err := json.Marshal(map[string]any{"type": what, "object": object})
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", collection.kind, err)
	}
	return append(line, '\n'), nil
}

func (c *Cluster) stream(w http.ResponseWriter, r *http.Request, collection *collection) {
	w.Header().Set("Content-Type", "application/json")
	changes := collection.watch()
	defer collection.unwatch(changes)
	send := func(what watch.EventType, object runtime.Object) {
		if line, err := c.event(collection, what, object); err == nil {
			// A watcher that is gone ends the request.
			_, _ = w.Write(line)
		}
	}
	for i := range collection.size {
		send(watch.Added, collection.object(i))
	}
	send(watch.Bookmark, &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"},
	}})
	flusher := http.NewResponseController(w)
	_ = flusher.Flush()
	bookmark := time.NewTicker(bookmarks)
	defer bookmark.Stop()
	for {
		select {
		case line, ok := <-changes:
			if !ok {
				return
			}
			_, _ = w.Write(line)
		case <-bookmark.C:
			send(watch.Bookmark, &metav1.PartialObjectMetadata{})
		case <-r.Context().Done():
			return
		}
		_ = flusher.Flush()
	}
}

func (c *collection) watch() chan []byte {
	changes := make(chan []byte, backlog)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.watchers[changes] = struct{}{}
	return changes
}

func (c *collection) unwatch(changes chan []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.watchers, changes)
}
