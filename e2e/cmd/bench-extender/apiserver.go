package main

import (
	"encoding/json"
	"net/http"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
)

const (
	// changeRate is how many objects of a changing cluster change in a second; half of
	// them are claims, half volumes.
	changeRate = 1000
	// pace is the time between two lots of changes.
	pace = 10 * time.Millisecond
	// steady is how many claims, and volumes, never change: calls are about them.
	steady = 10
)

// collection is how many objects of a kind there are, and the i-th of them in its
// n-th version.
type collection struct {
	apiVersion, kind string
	size             int
	object           func(i, version int) runtime.Object
	changes          bool
}

// largeCluster streams the objects of a large home cluster to watches that ask for
// the initial state. After that nothing happens, unless it is told to change.
type largeCluster struct {
	collections map[string]collection
	changing    atomic.Bool
	// changed counts the objects that have changed.
	changed atomic.Int64
}

func newLargeCluster(claims int) *largeCluster {
	return &largeCluster{collections: map[string]collection{
		"/api/v1/persistentvolumeclaims":               {apiVersion: "v1", kind: "PersistentVolumeClaim", size: claims, object: claimObject, changes: true},
		"/api/v1/persistentvolumes":                    {apiVersion: "v1", kind: "PersistentVolume", size: claims, object: volumeObject, changes: true},
		"/api/v1/nodes":                                {apiVersion: "v1", kind: "Node", size: allNodes, object: nodeObject},
		"/api/v1/namespaces":                           {apiVersion: "v1", kind: "Namespace", size: 1, object: namespaceObject},
		"/api/v1/pods":                                 {apiVersion: "v1", kind: "Pod"},
		"/apis/storage.k8s.io/v1/storageclasses":       {apiVersion: "storage.k8s.io/v1", kind: "StorageClass", size: 2, object: classObject},
		"/apis/storage.k8s.io/v1/csinodes":             {apiVersion: "storage.k8s.io/v1", kind: "CSINode"},
		"/apis/storage.k8s.io/v1/csistoragecapacities": {apiVersion: "storage.k8s.io/v1", kind: "CSIStorageCapacity"},
		"/apis/lodestone.dev/v1alpha1/remoteclusters":  {apiVersion: v1alpha1.GroupVersion.String(), kind: "RemoteCluster", size: allClusters, object: clusterObject},
	}}
}

// ServeHTTP implements http.Handler.
func (l *largeCluster) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	collection, ok := l.collections[r.URL.Path]
	switch {
	case !ok:
		http.NotFound(w, r)
	case r.URL.Query().Get("sendInitialEvents") != "true":
		http.Error(w, "only streams of the initial state are served here", http.StatusBadRequest)
	default:
		l.stream(w, r, collection)
	}
}

func (l *largeCluster) stream(w http.ResponseWriter, r *http.Request, c collection) {
	w.Header().Set("Content-Type", "application/json")
	encoder := json.NewEncoder(w)
	send := func(kind string, object runtime.Object) {
		object.GetObjectKind().SetGroupVersionKind(schema.FromAPIVersionAndKind(c.apiVersion, c.kind))
		// A watcher that is gone ends the request.
		_ = encoder.Encode(map[string]any{"type": kind, "object": object})
	}
	for i := range c.size {
		send("ADDED", c.object(i, 0))
	}
	send("BOOKMARK", &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		ResourceVersion: "1",
		Annotations:     map[string]string{metav1.InitialEventsAnnotationKey: "true"},
	}})
	_ = http.NewResponseController(w).Flush()
	if !c.changes {
		<-r.Context().Done()
		return
	}
	tick := time.NewTicker(pace)
	defer tick.Stop()
	for version, next := 1, steady; ; {
		select {
		case <-r.Context().Done():
			return
		case <-tick.C:
		}
		if !l.changing.Load() {
			continue
		}
		const lot = changeRate / 2 * pace / time.Second
		for range lot {
			send("MODIFIED", c.object(next, version))
			if next++; next == c.size {
				next, version = steady, version+1
			}
		}
		l.changed.Add(int64(lot))
		_ = http.NewResponseController(w).Flush()
	}
}
