package clients

import (
	"encoding/json"
	"reflect"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/klog/v2"
)

// readable decodes lists and watch events of which single objects cannot be decoded, such as one with a
// duration of "1d": whoever may write one object must not hide all others, of all namespaces, from a program
// that lists them. What cannot be decoded is as if it were not there, and logged. The schemas of our kinds let no such
// value pass, but what an older schema has let pass may still be stored.
type readable struct{ runtime.NegotiatedSerializer }

// DecoderToVersion implements runtime.NegotiatedSerializer.
func (r readable) DecoderToVersion(serializer runtime.Decoder, gv runtime.GroupVersioner) runtime.Decoder {
	return readableDecoder{r.NegotiatedSerializer.DecoderToVersion(serializer, gv)}
}

type readableDecoder struct{ runtime.Decoder }

// Decode implements runtime.Decoder.
func (d readableDecoder) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object,
) (runtime.Object, *schema.GroupVersionKind, error) {
	object, kind, err := d.Decoder.Decode(data, defaults, into)
	switch {
	case err == nil:
		return object, kind, nil
	case into == nil:
		// Nobody says what an event is to be.
		if metadata := metadataOnly(data, err); metadata != nil {
			return metadata, kind, nil
		}
	case meta.IsListType(into):
		if readable, left := d.withoutUnreadable(data, into); left {
			return d.Decoder.Decode(readable, defaults, into)
		}
	}
	return object, kind, err
}

// withoutUnreadable returns an encoded list without the items that cannot be decoded; false if there are none.
func (d readableDecoder) withoutUnreadable(data []byte, into runtime.Object) ([]byte, bool) {
	pointer, err := meta.GetItemsPtr(into)
	if err != nil {
		return nil, false
	}
	item := reflect.TypeOf(pointer).Elem().Elem()
	var fields map[string]json.RawMessage
	var items, kept []json.RawMessage
	if json.Unmarshal(data, &fields) != nil || json.Unmarshal(fields["items"], &items) != nil {
		return nil, false
	}
	for _, encoded := range items {
		if err := json.Unmarshal(encoded, reflect.New(item).Interface()); err != nil {
			metadataOnly(encoded, err)
			continue
		}
		kept = append(kept, encoded)
	}
	if fields["items"], err = json.Marshal(kept); err != nil {
		return nil, false
	}
	list, err := json.Marshal(fields)
	return list, err == nil && len(kept) < len(items)
}

// metadataOnly returns what can be decoded of an object, and logs that the rest is left out; nil if nothing can. The type of the
// result says that there is more.
func metadataOnly(data []byte, why error) *metav1.PartialObjectMetadata {
	object := &metav1.PartialObjectMetadata{}
	if json.Unmarshal(data, object) != nil || object.Name == "" {
		return nil
	}
	klog.TODO().Error(why, "An object that cannot be read is left out: correct or delete it", "kind", object.Kind,
		"object", klog.KRef(object.Namespace, object.Name))
	return object
}

// withoutUnreadable has the watch of objects like example say that an object is gone that cannot be read any more.
func withoutUnreadable(events watch.Interface, example runtime.Object) watch.Interface {
	return watch.Filter(events, func(event watch.Event) (watch.Event, bool) {
		metadata, ok := event.Object.(*metav1.PartialObjectMetadata)
		if !ok {
			return event, true
		}
		object := reflect.New(reflect.TypeOf(example).Elem()).Interface().(interface {
			runtime.Object
			metav1.Object
		})
		object.SetNamespace(metadata.Namespace)
		object.SetName(metadata.Name)
		object.SetUID(metadata.UID)
		object.SetResourceVersion(metadata.ResourceVersion)
		return watch.Event{Type: watch.Deleted, Object: object}, true
	})
}
