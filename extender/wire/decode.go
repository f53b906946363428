package wire

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/lodestone-storage/lodestone/extender/snapshot"
)

// Request is what kube-scheduler asks with filter and prioritize. It shares
// memory with the body that it was decoded from.
type Request struct {
	Pod snapshot.Pod
	// Names are the candidate nodes, in the order of the request. They do not
	// share memory with the body.
	Names []string
	// Nodes is set in node mode only, one for each name: the candidate as it was
	// sent.
	Nodes []Node
	// NodeMode: the request holds whole nodes, and so must the answer.
	NodeMode bool

	// list is the array of Names as it was sent; nil in node mode, and where it
	// must be written anew.
	list []byte
}

// Candidates returns the names of the nodes that the request is about.
func (r Request) Candidates() []string { return r.Names }

// Items returns how many nodes and volumes the request is about.
func (r Request) Items() int { return len(r.Names) + len(r.Pod.Volumes) }

// Node is a candidate in node mode.
type Node struct {
	snapshot.Node
	// Raw is the whole object as JSON, so that the answer can repeat it.
	Raw json.RawMessage
}

type argsJSON struct {
	Pod       *podJSON
	Nodes     *nodesJSON
	NodeNames *[]string
}

// Scan reads an ExtenderArgs as kube-scheduler writes it; false for any other
// body, which Decode must read. What Scan accepts it reads as Decode does, in a
// fraction of the time and in memory of a few times the body. names, which may be
// nil, is an empty list whose room the names of the request may take.
func Scan(body []byte, names []string) (Request, bool) {
	request := Request{Names: names}
	var pod podJSON
	var hasPod, hasNames bool
	s := &scanner{text: body}
	ok := s.object(
		member{"Pod", func() bool { hasPod = true; return s.pod(&pod) }},
		member{"Nodes", func() bool {
			request.NodeMode = !s.null()
			return !request.NodeMode || s.nodes(&request)
		}},
		member{"NodeNames", func() bool {
			hasNames = !s.null()
			return !hasNames || s.names(&request)
		}},
	)
	// If both lists are there, Decode knows which of them counts.
	if !ok || !s.end() || !hasPod || hasNames == request.NodeMode {
		return Request{}, false
	}
	request.Pod = podOf(&pod)
	return request, true
}

// Decode reads any ExtenderArgs that encoding/json can read, which may take many
// times the memory of the body. An error is one sentence for whoever sent it.
func Decode(body []byte) (Request, error) {
	if len(body) == 0 {
		return Request{}, errors.New("the request has no body: send ExtenderArgs as kube-scheduler does")
	}
	var args argsJSON
	if err := json.Unmarshal(body, &args); err != nil {
		return Request{}, fmt.Errorf("the request is not ExtenderArgs in JSON: send what kube-scheduler sends: %w", err)
	}
	if args.Pod == nil {
		return Request{}, errors.New("the request names no Pod: send ExtenderArgs as kube-scheduler does")
	}
	request := Request{Pod: podOf(args.Pod)}
	switch {
	case args.NodeNames != nil:
		request.Names = *args.NodeNames
		return request, nil
	case args.Nodes != nil:
		return decodeNodes(request, args.Nodes.Items)
	}
	return Request{}, errors.New("the request has neither NodeNames nor Nodes: send one of them, as kube-scheduler does")
}
