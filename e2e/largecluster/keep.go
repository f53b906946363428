package largecluster

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/apimachinery/pkg/watch"
)

// keep makes the cluster keep what is written: each object can be read and patched from then on. Watches are told of
// it, but one that begins later is not.
func (c *Cluster) keep() { c.kept = map[string]runtime.Object{} }

// OnWrite has a function called with each object that is written from now on.
func (c *Cluster) OnWrite(wrote func(path string, object runtime.Object)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wroteObject = wrote
}

// Put writes an object into the collection of a path, as a client would.
func (c *Cluster) Put(path string, what watch.EventType, object runtime.Object) error {
	accessor, ok := object.(metav1.Object)
	if !ok {
		return fmt.Errorf("write to %s: %T is no object", path, object)
	}
	c.tell(path, accessor, object, what)
	c.remember(path, accessor, object)
	return nil
}

func (c *Cluster) remember(path string, at metav1.Object, object runtime.Object) {
	c.mu.Lock()
	if c.kept != nil {
		c.kept[strings.TrimSuffix(path, "/"+at.GetName())+"/"+at.GetName()] = object.DeepCopyObject()
	}
	wrote := c.wroteObject
	c.mu.Unlock()
	if wrote != nil {
		wrote(path, object)
	}
}

// found returns the object of a path, nil if there is none.
func (c *Cluster) found(path string) runtime.Object {
	path = strings.TrimSuffix(path, "/status")
	c.mu.Lock()
	object := c.kept[path]
	c.mu.Unlock()
	if object != nil {
		return object.DeepCopyObject()
	}
	end := strings.LastIndex(path, "/")
	within, name := path[:end], path[end+1:]
	namespace := ""
	if _, rest, ok := strings.Cut(within, "/namespaces/"); ok {
		namespace, _, _ = strings.Cut(rest, "/")
	}
	for _, within := range []string{within, strings.Replace(within, "/namespaces/"+namespace, "", 1)} {
		collection, ok := c.collections[within]
		if !ok {
			continue
		}
		for _, namespace := range []string{namespace, ""} {
			i, ok := collection.numbers()[namespace+"/"+name]
			if !ok {
				continue
			}
			object := collection.object(i)
			if accessor, ok := object.(metav1.Object); ok {
				accessor.SetResourceVersion("1")
			}
			object.GetObjectKind().SetGroupVersionKind(schema.FromAPIVersionAndKind(collection.apiVersion, collection.kind))
			return object
		}
	}
	return nil
}

// serveKept answers a get or a patch of an object that there is.
func (c *Cluster) serveKept(w http.ResponseWriter, r *http.Request) {
	object := c.found(r.URL.Path)
	if r.Method == http.MethodGet {
		reply(w, http.StatusOK, object)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	patched, err := patch(object, types.PatchType(r.Header.Get("Content-Type")), body)
	if err != nil {
		refuse(w, apierrors.NewBadRequest(err.Error()))
		return
	}
	c.wrote(r, body)
	path := strings.TrimSuffix(r.URL.Path, "/status")
	if accessor, ok := patched.(metav1.Object); ok {
		c.tell(path, accessor, patched, watch.Modified)
		c.remember(path, accessor, patched)
	}
	reply(w, http.StatusOK, patched)
}

// patch returns an object with a patch applied.
func patch(object runtime.Object, kind types.PatchType, body []byte) (runtime.Object, error) {
	before, err := json.Marshal(object)
	if err != nil {
		return nil, fmt.Errorf("encode object: %w", err)
	}
	var after []byte
	switch kind {
	case types.StrategicMergePatchType:
		after, err = strategicpatch.StrategicMergePatch(before, body, object)
	case types.MergePatchType:
		var have, change map[string]any
		if err := json.Unmarshal(before, &have); err != nil {
			return nil, fmt.Errorf("decode object: %w", err)
		}
		if err := json.Unmarshal(body, &change); err != nil {
			return nil, fmt.Errorf("decode patch: %w", err)
		}
		merge(have, change)
		after, err = json.Marshal(have)
	default:
		err = fmt.Errorf("patches of type %s are not served here", kind)
	}
	if err != nil {
		return nil, err
	}
	patched, _, err := codecs.UniversalDeserializer().Decode(after, nil, nil)
	return patched, err
}

// merge applies a JSON merge patch.
func merge(have, change map[string]any) {
	for key, value := range change {
		inner, ok := value.(map[string]any)
		had, both := have[key].(map[string]any)
		switch {
		case value == nil:
			delete(have, key)
		case ok && both:
			merge(had, inner)
		default:
			have[key] = value
		}
	}
}
