package crash

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/util/uuid"
)

// object is what an API server has answered.
type object = map[string]any

// lie makes an object untrue; nil: there is none.
type lie func(o object) object

func absent(object) object { return nil }

func another(o object) object {
	metadata(o)["uid"] = string(uuid.NewUUID())
	return o
}

// bare leaves an object its name alone.
func bare(o object) object {
	m, kept := metadata(o), object{}
	for _, field := range []string{"name", "namespace", "uid", "resourceVersion"} {
		if value, ok := m[field]; ok {
			kept[field] = value
		}
	}
	return object{"kind": o["kind"], "apiVersion": o["apiVersion"], "metadata": kept, "spec": object{}}
}

func ending(o object) object {
	metadata(o)["deletionTimestamp"] = time.Now().UTC().Format(time.RFC3339)
	return o
}

func metadata(o object) object {
	m, ok := o["metadata"].(object)
	if !ok {
		m = object{}
		o["metadata"] = m
	}
	return m
}

// about returns a lie about an answer, an object or a list: nil for that there is none. false
// if there is nothing to lie about.
func (l lie) about(o object) (_ object, told bool) {
	items, list := o["items"].([]any)
	if !list {
		return l(o), true
	}
	lies := []any{}
	for _, item := range items {
		if one, ok := item.(object); ok {
			if one = l(one); one != nil {
				lies = append(lies, one)
			}
		}
	}
	o["items"] = lies
	return o, len(items) > 0
}

// belie carries a read out, and lies in the answer; false if it found nothing to lie about.
// What failed is told as it is.
func (h *held) belie(l lie, answer http.ResponseWriter) (told bool) {
	code, text := h.ask()
	var asked object
	switch {
	case code == 0:
		abort()
	case code == http.StatusOK && json.Unmarshal(text, &asked) == nil:
		if asked, told = l.about(asked); asked == nil {
			reply(answer, http.StatusNotFound)
			return told
		}
		text, _ = json.Marshal(asked)
	}
	answer.Header().Set("Content-Type", "application/json")
	answer.WriteHeader(code)
	_, _ = answer.Write(text)
	return told
}

// ask carries a request out and returns the answer; 0 is none.
func (h *held) ask() (code int, text []byte) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(h.request.Context()), 10*time.Second)
	defer cancel()
	out := h.request.Clone(ctx)
	out.RequestURI = ""
	out.URL.Scheme, out.URL.Host, out.Host = h.way.target.Scheme, h.way.target.Host, h.way.target.Host
	out.Body = io.NopCloser(bytes.NewReader(h.body))
	// The transport unpacks what nobody asked for packed.
	out.Header.Del("Accept-Encoding")
	response, err := h.way.transport.RoundTrip(out)
	if err != nil {
		return 0, nil
	}
	defer response.Body.Close()
	text, err = io.ReadAll(response.Body)
	if err != nil {
		return 0, nil
	}
	return response.StatusCode, text
}
