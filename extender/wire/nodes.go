package wire

import (
	"encoding/json"
	"fmt"

	"github.com/lodestone-storage/lodestone/extender/snapshot"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/locality"
)

type nodesJSON struct {
	Items []json.RawMessage `json:"items"`
}

type nodeJSON struct {
	Metadata struct {
		Name   string            `json:"name"`
		Labels map[string]string `json:"labels"`
	} `json:"metadata"`
}

func decodeNodes(request Request, items []json.RawMessage) (Request, error) {
	request.NodeMode = true
	request.Names = make([]string, 0, len(items))
	request.Nodes = make([]Node, 0, len(items))
	for i, raw := range items {
		var node nodeJSON
		if err := json.Unmarshal(raw, &node); err != nil {
			return Request{}, fmt.Errorf("item %d of Nodes is not a Node: send what kube-scheduler sends: %w", i, err)
		}
		if node.Metadata.Name == "" {
			return Request{}, fmt.Errorf("item %d of Nodes has no name: send what kube-scheduler sends", i)
		}
		request.addNode(node.Metadata.Name, locality.OfNode(node.Metadata.Labels), raw)
	}
	return request, nil
}

func (r *Request) addNode(name, cluster string, raw []byte) {
	r.Names = append(r.Names, name)
	r.Nodes = append(r.Nodes, Node{Raw: raw, Node: snapshot.Node{Name: name, Cluster: cluster, Known: true}})
}

// nodes consumes a NodeList.
func (s *scanner) nodes(to *Request) bool {
	to.Nodes = []Node{}
	return s.object(member{"items", func() bool {
		return s.null() || s.list(func() bool { return s.node(to) })
	}})
}

func (s *scanner) node(to *Request) bool {
	s.next()
	start := s.at
	var name string
	var labels map[string]string
	ok := s.object(member{"metadata", func() bool {
		return s.object(
			member{"name", func() bool { return s.into(&name) }},
			member{"labels", func() bool {
				cluster, found, ok := s.entry(keys.Cluster)
				if found {
					labels = map[string]string{keys.Cluster: cluster}
				}
				return ok
			}},
		)
	}})
	if !ok || name == "" {
		return false
	}
	to.addNode(name, locality.OfNode(labels), s.text[start:s.at:s.at])
	return true
}
