package largecluster

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/apimachinery/pkg/watch"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
)

// codecs read what is written to the clusters of a fleet.
var codecs = newCodecs()

func newCodecs() serializer.CodecFactory {
	scheme := runtime.NewScheme()
	for _, register := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme} {
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
	writes := map[string]int{}
	for what, n := range c.writes {
		writes[what] = n
	}
	return writes
}

// answer serves what a cluster of a fleet is asked beside its collections.
func (c *Cluster) answer(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.URL.Path == "/version":
		reply(w, http.StatusOK, version.Info{GitVersion: "v1.36.3"})
	case r.URL.Path == "/api/v1/namespaces/"+metav1.NamespaceSystem:
		reply(w, http.StatusOK, &corev1.Namespace{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"},
			ObjectMeta: metav1.ObjectMeta{Name: metav1.NamespaceSystem, UID: types.UID(c.uid)}})
	case r.Method == http.MethodGet:
		http.NotFound(w, r)
	default:
		c.write(w, r)
	}
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
		c.wrote(r)
		http.Error(w, err.Error(), http.StatusUnprocessableEntity)
		return
	}
	if review, ok := object.(*authorizationv1.SelfSubjectAccessReview); ok {
		// Nobody makes namespaces there on request.
		review.Status.Allowed = review.Spec.ResourceAttributes == nil || review.Spec.ResourceAttributes.Resource != "namespacerequests"
		reply(w, http.StatusCreated, review)
		return
	}
	if _, ok := object.(*corev1.Event); !ok {
		c.wrote(r)
	}
	path, what := r.URL.Path, watch.Added
	if r.Method == http.MethodPut {
		what = watch.Modified
		path = path[:strings.LastIndex(path, "/")] // the name, or status
	}
	if accessor, ok := object.(metav1.Object); ok {
		if accessor.GetUID() == "" {
			accessor.SetUID(types.UID(fmt.Sprintf("00000000-0000-4000-e000-%012d", c.revision.Add(1))))
		}
		if accessor.GetName() == "" {
			accessor.SetName(accessor.GetGenerateName() + fmt.Sprint(c.revision.Add(1)))
		}
		c.tell(path, accessor, object, what)
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

func (c *Cluster) wrote(r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.writes[r.Method+" "+r.URL.Path]++
}

func reply(w http.ResponseWriter, code int, answer any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	// Whoever hung up needs no answer.
	_ = json.NewEncoder(w).Encode(answer)
}
