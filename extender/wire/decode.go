package wire

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/lodestone-storage/lodestone/extender/snapshot"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/locality"
)

// maxNear bounds how many claims a pod can be near to: its user writes the list.
const maxNear = 64

// Request is what kube-scheduler asks with filter and prioritize.
type Request struct {
	Pod snapshot.Pod
	// Names are the candidate nodes, in the order of the request.
	Names []string
	// Nodes is set in node mode only, one for each name: the candidate as it was
	// sent.
	Nodes []Node
	// NodeMode: the request holds whole nodes, and so must the answer.
	NodeMode bool
}

// Node is a candidate in node mode.
type Node struct {
	snapshot.Node
	// Raw is the whole object as JSON, so that the answer can repeat it.
	Raw json.RawMessage
}

type argsJSON struct {
	Pod       *podJSON
	Nodes     *nodesJSON
	NodeNames *names
}

type podJSON struct {
	Metadata struct {
		Namespace   string            `json:"namespace"`
		Name        string            `json:"name"`
		UID         string            `json:"uid"`
		Annotations map[string]string `json:"annotations"`
		Owners      []struct {
			APIVersion string `json:"apiVersion"`
			Kind       string `json:"kind"`
			Controller bool   `json:"controller"`
		} `json:"ownerReferences"`
	} `json:"metadata"`
	Spec struct {
		Volumes []struct {
			Name  string `json:"name"`
			Claim *struct {
				ClaimName string `json:"claimName"`
			} `json:"persistentVolumeClaim"`
			Ephemeral *struct{} `json:"ephemeral"`
		} `json:"volumes"`
	} `json:"spec"`
}

type nodesJSON struct {
	Items []json.RawMessage `json:"items"`
}

type nodeJSON struct {
	Metadata struct {
		Name   string            `json:"name"`
		Labels map[string]string `json:"labels"`
	} `json:"metadata"`
}

// Decode reads an ExtenderArgs. An error is one sentence for whoever sent it.
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
		request.Names = append(request.Names, node.Metadata.Name)
		request.Nodes = append(request.Nodes, Node{Raw: raw, Node: snapshot.Node{
			Name:    node.Metadata.Name,
			Cluster: locality.OfNode(node.Metadata.Labels),
			Known:   true,
		}})
	}
	return request, nil
}

func podOf(sent *podJSON) snapshot.Pod {
	pod := snapshot.Pod{
		Namespace: sent.Metadata.Namespace,
		Name:      sent.Metadata.Name,
		UID:       sent.Metadata.UID,
		Near:      near(sent.Metadata.Annotations[keys.Near]),
	}
	for _, owner := range sent.Metadata.Owners {
		pod.Daemon = pod.Daemon || (owner.Controller && owner.Kind == "DaemonSet" && strings.HasPrefix(owner.APIVersion, "apps/"))
	}
	for _, volume := range sent.Spec.Volumes {
		switch {
		case volume.Claim != nil:
			pod.Volumes = append(pod.Volumes, snapshot.PodVolume{ClaimName: volume.Claim.ClaimName})
		case volume.Ephemeral != nil:
			pod.Volumes = append(pod.Volumes, snapshot.PodVolume{ClaimName: pod.Name + "-" + volume.Name, Ephemeral: true})
		}
	}
	return pod
}

func near(annotation string) []string {
	var names []string
	for name := range strings.SplitSeq(annotation, ",") {
		if name = strings.TrimSpace(name); name != "" && len(names) < maxNear {
			names = append(names, name)
		}
	}
	return names
}
