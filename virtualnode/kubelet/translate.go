package kubelet

import (
	"fmt"
	"net/url"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
)

// call is a request of the kubelet API that concerns one pod.
type call struct {
	namespace, pod, container string
	// uid is the UID of the pod, empty where the caller does not say.
	uid types.UID
	// subresource is that of pods in the remote cluster, query its parameters.
	subresource string
	query       url.Values
	// stream: the connection is upgraded.
	stream bool
}

// logParameters are those of logs; kubelet and API server name them alike.
var logParameters = []string{"follow", "previous", "sinceSeconds", "sinceTime", "timestamps", "tailLines", "limitBytes", "stream"}

// streamParameters are those of exec and attach: as kubelet names them, and as the
// API server does.
var streamParameters = map[string]string{"input": "stdin", "output": "stdout", "error": "stderr", "tty": "tty"}

// translate reads the path and the parameters of a kubelet request. Parameters
// that it does not know do not travel. ok is false if the path is not one of
// a pod.
func translate(path string, query url.Values) (_ call, ok bool, _ error) {
	verb, rest, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	parts := strings.Split(rest, "/")
	var c call
	switch verb {
	case "containerLogs":
		c = call{subresource: "log", query: url.Values{}}
		for _, name := range logParameters {
			keep(c.query, name, query[name])
		}
	case "exec", "attach":
		c = call{subresource: verb, query: url.Values{}, stream: true}
		for theirs, ours := range streamParameters {
			// The API server writes 1, clients of the API true.
			if value := query.Get(theirs); value == "1" || value == "true" {
				c.query.Set(ours, "true")
			}
		}
		if verb == "exec" {
			keep(c.query, "command", query["command"])
		}
	case "portForward":
		c = call{subresource: "portforward", query: url.Values{}, stream: true}
		keep(c.query, "ports", query["port"])
	default:
		return call{}, false, nil
	}
	hasContainer := verb != "portForward"
	if len(parts) < 2 {
		return call{}, true, fmt.Errorf("the path %q names no pod", path)
	}
	c.namespace, c.pod, parts = parts[0], parts[1], parts[2:]
	if hasContainer && len(parts) > 0 {
		c.container, parts = parts[len(parts)-1], parts[:len(parts)-1]
	}
	if len(parts) > 0 {
		c.uid, parts = types.UID(parts[0]), parts[1:]
	}
	return c, true, c.check(hasContainer, len(parts))
}

// check refuses what would mean another path in the remote cluster.
func (c *call) check(hasContainer bool, more int) error {
	switch {
	case len(validation.IsDNS1123Label(c.namespace)) > 0 || len(validation.IsDNS1123Subdomain(c.pod)) > 0 || more > 0:
		return fmt.Errorf("the path names no pod")
	case hasContainer && len(validation.IsDNS1123Label(c.container)) > 0:
		return fmt.Errorf("the path names no container")
	case c.subresource == "exec" && len(c.query["command"]) == 0:
		return fmt.Errorf("there is no command to run")
	}
	if hasContainer {
		c.query.Set("container", c.container)
	}
	return nil
}

func keep(to url.Values, name string, values []string) {
	if len(values) > 0 {
		to[name] = slices.Clone(values)
	}
}

// location is the path of a call in the remote cluster.
func (c *call) location(namespace string) string {
	return "/api/v1/namespaces/" + namespace + "/pods/" + c.pod + "/" + c.subresource
}
