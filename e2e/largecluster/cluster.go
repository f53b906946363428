// Package largecluster is the API server of a large cluster, as far as programs under test ask
// one: it streams objects of ordinary size to watches, makes them from their numbers instead of
// holding them, and tells of changes on demand. cluster.go has the server, fleet.go, pods.go and
// agent.go the objects, and bed.go runs a program with such clusters.
package largecluster

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/apimachinery/pkg/watch"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
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
	// bodies are the beginnings of what was written last, by kind of write.
	bodies map[string]string
	// kept are the objects that were written, by path; nil if none are kept.
	kept map[string]runtime.Object
	// wrote, if not nil, is called with each object that was written.
	wroteObject func(path string, object runtime.Object)
	// refuses are the answers to requests to create objects, by path, that are not taken.
	refuses map[string]*apierrors.StatusError
}

// collection is how many objects of a kind there are, and the i-th of them.
type collection struct {
	apiVersion, kind string
	size             int
	object           func(i int) runtime.Object

	// numbers are those of the objects by their names.
	numbers func() map[string]int

	mu       sync.Mutex
	watchers map[chan []byte]struct{}
}

// numbered returns the numbers of all objects by their names.
func (c *collection) numbered() map[string]int {
	numbers := make(map[string]int, c.size)
	for i := range c.size {
		if object, ok := c.object(i).(metav1.Object); ok {
			numbers[object.GetNamespace()+"/"+object.GetName()] = i
		}
	}
	return numbers
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
		"/apis/lodestone.dev/v1alpha1/remoteclusters": {apiVersion: v1alpha1.GroupVersion.String(), kind: "RemoteCluster", size: RemoteClusters,
			object: clusterObject},
	}, "")
}

func newCluster(collections map[string]*collection, uid string) *Cluster {
	c := &Cluster{collections: collections, uid: uid, writes: map[string]int{}, bodies: map[string]string{}}
	for _, collection := range c.collections {
		collection.watchers = map[chan []byte]struct{}{}
		collection.numbers = sync.OnceValue(collection.numbered)
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

// stream tells a watch of the objects that have the labels asked for, and then of changes, whatever labels they have.
func (c *Cluster) stream(w http.ResponseWriter, r *http.Request, collection *collection) {
	selector, err := labels.Parse(r.URL.Query().Get("labelSelector"))
	if err != nil {
		refuse(w, apierrors.NewBadRequest(err.Error()))
		return
	}
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
		object := collection.object(i)
		if accessor, ok := object.(metav1.Object); ok && selector.Matches(labels.Set(accessor.GetLabels())) {
			send(watch.Added, object)
		}
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

// codecs read what is written to the clusters of a fleet.
var codecs = newCodecs()

func newCodecs() serializer.CodecFactory {
	scheme := runtime.NewScheme()
	for _, register := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme, remotev1alpha1.AddToScheme} {
		if err := register(scheme); err != nil {
			panic(err) // two types of one name
		}
	}
	return serializer.NewCodecFactory(scheme)
}

// Writes returns how often each kind of write was asked for, as "method path",
// questions about rights and events left out.
func (c *Cluster) Writes() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.writes)
}

// answer serves what a cluster of a fleet is asked beside its collections.
func (c *Cluster) answer(w http.ResponseWriter, r *http.Request) {
	switch {
	case c.kept != nil && (r.Method == http.MethodGet || r.Method == http.MethodPatch) && c.found(r.URL.Path) != nil:
		c.serveKept(w, r)
	case r.URL.Path == "/readyz":
		_, _ = io.WriteString(w, "ok")
	case r.URL.Path == "/version":
		reply(w, http.StatusOK, version.Info{GitVersion: "v1.36.3"})
	case r.URL.Path == "/api/v1/namespaces/"+metav1.NamespaceSystem:
		reply(w, http.StatusOK, &corev1.Namespace{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"},
			ObjectMeta: metav1.ObjectMeta{Name: metav1.NamespaceSystem, UID: types.UID(c.uid)}})
	case r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/events"):
		c.noEvents(w, r)
	case r.Method == http.MethodGet:
		http.NotFound(w, r)
	default:
		c.write(w, r)
	}
}

// noEvents answers as where nothing is said: with an empty list, or a watch that tells of nothing.
func (c *Cluster) noEvents(w http.ResponseWriter, r *http.Request) {
	if r.URL.Query().Get("watch") == "" {
		reply(w, http.StatusOK, &corev1.EventList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "EventList"},
			ListMeta: metav1.ListMeta{ResourceVersion: fmt.Sprint(c.revision.Load())}})
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = http.NewResponseController(w).Flush()
	<-r.Context().Done()
}

// write takes what is written: questions about rights are answered, and all else is
// said to be done. Watches are told of new objects and new status; nothing is kept.
func (c *Cluster) write(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	object, _, err := codecs.UniversalDeserializer().Decode(body, nil, nil)
	if err != nil {
		// A patch, which the objects of a fleet need none of.
		c.wrote(r, body)
		http.Error(w, err.Error(), http.StatusUnprocessableEntity)
		return
	}
	if review, ok := object.(*authorizationv1.SelfSubjectAccessReview); ok {
		// Nobody makes namespaces there on request.
		review.Status.Allowed = review.Spec.ResourceAttributes == nil || review.Spec.ResourceAttributes.Resource != "namespacerequests"
		reply(w, http.StatusCreated, review)
		return
	}
	if refusal := c.refuses[r.URL.Path]; refusal != nil {
		refuse(w, refusal)
		return
	}
	if r.URL.Query().Get("dryRun") != "" {
		reply(w, http.StatusCreated, object)
		return
	}
	if _, ok := object.(*corev1.Event); !ok {
		c.wrote(r, body)
	}
	path, what := r.URL.Path, watch.Added
	if r.Method == http.MethodPut {
		what = watch.Modified
		path = strings.TrimSuffix(path, "/status")
		path = path[:strings.LastIndex(path, "/")] // the name
	}
	if accessor, ok := object.(metav1.Object); ok {
		if accessor.GetUID() == "" {
			accessor.SetUID(types.UID(fmt.Sprintf("00000000-0000-4000-e000-%012d", c.revision.Add(1))))
		}
		if accessor.GetName() == "" {
			accessor.SetName(accessor.GetGenerateName() + fmt.Sprint(c.revision.Add(1)))
		}
		c.tell(path, accessor, object, what)
		c.remember(path, accessor, object)
	}
	code := http.StatusOK
	if r.Method == http.MethodPost {
		code = http.StatusCreated
	}
	reply(w, code, object)
}

// tell tells the watches of the collection that a path is in, with or without
// a namespace, of an object.
func (c *Cluster) tell(path string, at metav1.Object, object runtime.Object, what watch.EventType) {
	path = strings.TrimSuffix(path, "/"+at.GetName())
	whole := strings.Replace(path, "/namespaces/"+at.GetNamespace(), "", 1)
	for _, path := range []string{path, whole} {
		if collection, ok := c.collections[path]; ok {
			if line, err := c.event(collection, what, object); err == nil {
				collection.tell(line)
			}
			return
		}
	}
}

// longestBody is how much of what was written is kept, in bytes.
const longestBody = 1000

func (c *Cluster) wrote(r *http.Request, body []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	what := r.Method + " " + r.URL.Path
	c.writes[what]++
	c.bodies[what] = string(body[:min(len(body), longestBody)])
}

// Body returns the beginning of what was written last by a kind of write that Writes has.
func (c *Cluster) Body(what string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.bodies[what]
}

func reply(w http.ResponseWriter, code int, answer any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	// Whoever hung up needs no answer.
	_ = json.NewEncoder(w).Encode(answer)
}

const (
	// Namespace is where all claims are.
	Namespace = "shop"
	// Nodes is how many there are.
	Nodes = 5000
	// RemoteClusters is how many there are.
	RemoteClusters = 10
)

// NodeName is about as long as cloud providers make them.
func NodeName(i int) string {
	return fmt.Sprintf("ip-10-%d-%d-%d.eu-central-1.compute.internal", i/65536, i/256%256, i%256)
}

// ClusterOf puts every tenth node into one of the remote clusters.
func ClusterOf(i int) string {
	if i%10 != 0 {
		return keys.Home
	}
	return fmt.Sprintf("remote-%d", i/10%RemoteClusters)
}

// UID is that of the i-th claim.
func UID(i int) types.UID { return types.UID(fmt.Sprintf("00000000-0000-4000-8000-%012d", i)) }

// ClaimName is that of the i-th claim.
func ClaimName(i int) string { return fmt.Sprintf("data-database-%d", i) }

// VolumeName is that of the i-th claim's volume.
func VolumeName(i int) string { return "pvc-" + string(UID(i)) }

// Unbound says whether the i-th claim waits for a pod: every tenth does.
func Unbound(i int) bool { return i%10 == 5 }

// Ready says whether the i-th remote cluster is ready: every second is.
func Ready(i int) bool { return i%2 == 0 }

// WriteKubeconfig writes a kubeconfig at path for a cluster that is served at url.
func WriteKubeconfig(path, url string) error {
	config := clientcmdapi.NewConfig()
	config.Clusters["home"] = &clientcmdapi.Cluster{Server: url}
	config.Contexts["home"] = &clientcmdapi.Context{Cluster: "home"}
	config.CurrentContext = "home"
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		return fmt.Errorf("write kubeconfig: %w", err)
	}
	return nil
}

// FreeAddresses returns n addresses on loopback that nobody listens on.
func FreeAddresses(ctx context.Context, n int) ([]string, error) {
	var addresses []string
	var listeners []net.Listener
	defer func() {
		for _, listener := range listeners {
			_ = listener.Close()
		}
	}()
	for range n {
		listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
		if err != nil {
			return nil, fmt.Errorf("find a free port: %w", err)
		}
		listeners = append(listeners, listener)
		addresses = append(addresses, listener.Addr().String())
	}
	return addresses, nil
}
