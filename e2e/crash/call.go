package crash

import (
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/lodestone-storage/lodestone/e2e/fabric"
)

// Call is one kind of request that the provisioner makes for a claim: Nth is 1
// for the first of its kind since the user's act, and of a move since its phase began.
type Call struct {
	Cluster, Verb, Object string
	Nth                   int
	// Phase is that of a move, as recorded last; empty before the first record, and where
	// nothing is moved.
	Phase string
}

// String returns the call as ParseCall takes it, as home/create/twin/1, or in a phase of a
// move home/get/claim/Fence.1.
func (c Call) String() string {
	if c.Phase != "" {
		return fmt.Sprintf("%s/%s/%s/%s.%d", c.Cluster, c.Verb, c.Object, c.Phase, c.Nth)
	}
	return fmt.Sprintf("%s/%s/%s/%d", c.Cluster, c.Verb, c.Object, c.Nth)
}

// ParseCall is the inverse of String.
func ParseCall(text string) (Call, error) {
	parts := strings.Split(text, "/")
	if len(parts) != 4 {
		return Call{}, fmt.Errorf("%q is no call: give cluster/verb/object/number", text)
	}
	phase, number, in := strings.Cut(parts[3], ".")
	if !in {
		phase, number = "", parts[3]
	}
	nth, err := strconv.Atoi(number)
	if err != nil || nth < 1 {
		return Call{}, fmt.Errorf("%q is no call: its number must be 1 or more", text)
	}
	return Call{Cluster: parts[0], Verb: parts[1], Object: parts[2], Nth: nth, Phase: phase}, nil
}

func (c Call) writes() bool { return c.Verb != "get" && c.Verb != "list" }

// request is what the path of a request says.
type request struct {
	verb, namespace, resource, name, subresource string
}

var verbs = map[string]string{
	http.MethodGet: "get", http.MethodPost: "create", http.MethodPut: "update", http.MethodPatch: "patch", http.MethodDelete: "delete",
}

// parse returns what a request asks for; false for watches, for lists but those by which a
// move looks who uses a volume, and for what is no object.
func parse(method string, asked *url.URL) (request, bool) {
	parts := strings.Split(strings.Trim(asked.Path, "/"), "/")
	switch {
	case len(parts) > 2 && parts[0] == "api":
		parts = parts[2:]
	case len(parts) > 3 && parts[0] == "apis":
		parts = parts[3:]
	default:
		return request{}, false
	}
	r := request{verb: verbs[method]}
	if len(parts) > 2 && parts[0] == "namespaces" {
		r.namespace, parts = parts[1], parts[2:]
	}
	r.resource = parts[0]
	if len(parts) > 1 {
		r.name = parts[1]
	}
	if len(parts) > 2 {
		r.subresource = parts[2]
	}
	if r.looks(asked.Query()) {
		r.verb = "list"
	}
	named := r.name != "" || r.verb == "create" || r.verb == "list"
	return r, r.verb != "" && named
}

// looks says whether a request lists the pods of a namespace as they are now, which a move
// does in each turn. Caches, and whoever looks at all that there is, ask otherwise.
func (r request) looks(query url.Values) bool {
	if r.verb != "get" || r.namespace == "" || r.name != "" || r.resource != "pods" && r.resource != "shadowpods" {
		return false
	}
	return !query.Has("watch") && !query.Has("resourceVersion") && !query.Has("limit")
}

// counted says whether a request is one that a flow may consist of; see the
// package's comment.
func (r request) counted(of Subject) bool {
	switch r.resource {
	case "leases", "selfsubjectaccessreviews", "selfsubjectrulesreviews", "csistoragecapacities", "csidrivers":
		return false
	case "serviceaccounts":
		// Its own credentials in the remote cluster.
		return false
	case "namespaces":
		// The provisioner asks for them at each look at a remote cluster, too.
		return of != Provisioner
	}
	return true
}

// object names what a request is about. virtual says whether a volume of home
// is one that the provisioner made.
func (r request) object(cluster string, virtual bool) string {
	object := strings.TrimSuffix(r.resource, "s")
	switch r.resource {
	case "persistentvolumeclaims":
		switch {
		case cluster != "home":
			object = "shadow"
		case r.namespace == fabric.Storage:
			object = "twin"
		default:
			object = "claim"
		}
	case "pods":
		if r.namespace == fabric.Storage {
			object = "mover"
		}
	case "shadowpods":
		if r.verb != "list" {
			object = "mover"
		}
	case "secrets":
		object = "mover-keys"
		if r.namespace == fabric.System {
			object = "record"
		}
	case "persistentvolumes":
		object = "real-volume"
		if cluster == "home" && (virtual || r.verb == "create") {
			object = "volume"
		}
	}
	if r.subresource != "" {
		object += "." + r.subresource
	}
	return object
}
