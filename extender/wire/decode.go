// Package wire reads and writes the messages between kube-scheduler and an extender
// (k8s.io/kube-scheduler/extender/v1), without decoding more of a pod or a node than a decision
// needs. Scan (scan.go) is the fast way to read a request, Decode the general one; the Append functions
// write answers. Read decode.go first. It is pure.
package wire

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/lodestone-storage/lodestone/extender/snapshot"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/locality"
)

// Request is kube-scheduler's request for filter and prioritize. It shares memory with the body
// that it was decoded from.
type Request struct {
	Pod snapshot.Pod
	// Names are the candidate nodes, in the order of the request. They do not
	// share memory with the body.
	Names []string
	// Nodes is set in node mode only, one for each name: the candidate as it was sent.
	Nodes []Node
	// NodeMode says that the request has whole nodes, and so must the answer.
	NodeMode bool

	// list is the array of Names as it was sent; nil in node mode, and if it must be encoded again.
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

// Decode reads any ExtenderArgs that encoding/json can read, which may need many times the memory
// of the body. An error is one sentence for the sender.
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

const (
	// maxNear limits how many claims a pod can be near to: its user writes the list.
	maxNear = 64
	// maxName limits the name of a pod, as Kubernetes does.
	maxName = 253
)

type podJSON struct {
	Metadata podMetaJSON `json:"metadata"`
	Spec     podSpecJSON `json:"spec"`
}

type podMetaJSON struct {
	Namespace   string            `json:"namespace"`
	Name        string            `json:"name"`
	UID         string            `json:"uid"`
	Annotations map[string]string `json:"annotations"`
	Owners      []ownerJSON       `json:"ownerReferences"`
}

type ownerJSON struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Name       string `json:"name"`
	Controller bool   `json:"controller"`
}

type podSpecJSON struct {
	Volumes  []volumeJSON `json:"volumes"`
	Affinity affinityJSON `json:"affinity"`
	// What a spread constraint or a term of anti-affinity says is kube-scheduler's business.
	Spread []struct{} `json:"topologySpreadConstraints"`
}

type affinityJSON struct {
	Apart apartJSON `json:"podAntiAffinity"`
}

type apartJSON struct {
	Required  []struct{} `json:"requiredDuringSchedulingIgnoredDuringExecution"`
	Preferred []struct{} `json:"preferredDuringSchedulingIgnoredDuringExecution"`
}

// spreads reports whether the pod asks to be spread or kept apart, in whatever way.
func (p *podSpecJSON) spreads() bool {
	return len(p.Spread)+len(p.Affinity.Apart.Required)+len(p.Affinity.Apart.Preferred) > 0
}

type volumeJSON struct {
	Name      string     `json:"name"`
	Claim     *claimJSON `json:"persistentVolumeClaim"`
	Ephemeral *struct{}  `json:"ephemeral"`
}

type claimJSON struct {
	ClaimName string `json:"claimName"`
}

func podOf(sent *podJSON) snapshot.Pod {
	pod := snapshot.Pod{
		Namespace: sent.Metadata.Namespace,
		Name:      sent.Metadata.Name,
		UID:       sent.Metadata.UID,
		Near:      near(sent.Metadata.Annotations[keys.Near]),
		Spreads:   sent.Spec.spreads(),
	}
	for _, owner := range sent.Metadata.Owners {
		if !owner.Controller || !strings.HasPrefix(owner.APIVersion, "apps/") {
			continue
		}
		switch owner.Kind {
		case "DaemonSet":
			pod.Daemon = true
		case "StatefulSet":
			pod.StatefulSet = owner.Name
		}
	}
	for _, volume := range sent.Spec.Volumes {
		switch {
		case volume.Claim != nil:
			pod.Volumes = append(pod.Volumes, snapshot.PodVolume{ClaimName: volume.Claim.ClaimName})
		case volume.Ephemeral != nil:
			pod.Volumes = append(pod.Volumes, snapshot.PodVolume{ClaimName: ephemeralClaim(pod.Name, volume.Name), Ephemeral: true})
		}
	}
	return pod
}

// ephemeralClaim returns the name of the claim that is made for a volume of a pod; empty if the
// pod's name is too long to exist, since it would be repeated for each volume.
func ephemeralClaim(pod, volume string) string {
	if len(pod) > maxName {
		return ""
	}
	return pod + "-" + volume
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

// PreemptRequest is kube-scheduler's request for preempt: from which of the candidate nodes may it
// evict the victims to make room for the pod.
type PreemptRequest struct {
	Pod snapshot.Pod
	// Names are the candidates, in alphabetical order.
	Names []string
	// Victims has the victims of each candidate.
	Victims []Victims
}

// Candidates returns the names of the nodes that the request is about.
func (r PreemptRequest) Candidates() []string { return r.Names }

// Items returns how many nodes and volumes the request is about.
func (r PreemptRequest) Items() int { return len(r.Names) + len(r.Pod.Volumes) }

// Victims are the pods that would be evicted from one node.
type Victims struct {
	UIDs             []string
	NumPDBViolations int64
}

type preemptJSON struct {
	Pod *podJSON
	// One of the two is set: whole pods if the extender has no cache of its own, else their UIDs.
	NodeNameToVictims     map[string]*victimsJSON[*victimPodJSON]
	NodeNameToMetaVictims map[string]*victimsJSON[*metaPodJSON]
}

type victimsJSON[P interface{ uid() string }] struct {
	Pods             []P
	NumPDBViolations int64
}

type victimPodJSON struct {
	Metadata struct {
		UID string `json:"uid"`
	} `json:"metadata"`
}

func (p *victimPodJSON) uid() string {
	if p == nil {
		return ""
	}
	return p.Metadata.UID
}

type metaPodJSON struct{ UID string }

func (p *metaPodJSON) uid() string {
	if p == nil {
		return ""
	}
	return p.UID
}

// DecodePreempt reads any ExtenderPreemptionArgs that encoding/json can read, as Decode does an
// ExtenderArgs. An error is one sentence for the sender.
func DecodePreempt(body []byte) (PreemptRequest, error) {
	if len(body) == 0 {
		return PreemptRequest{}, errors.New("the request has no body: send ExtenderPreemptionArgs as kube-scheduler does")
	}
	var args preemptJSON
	if err := json.Unmarshal(body, &args); err != nil {
		return PreemptRequest{}, fmt.Errorf("the request is not ExtenderPreemptionArgs in JSON: send what kube-scheduler sends: %w", err)
	}
	if args.Pod == nil {
		return PreemptRequest{}, errors.New("the request names no Pod: send ExtenderPreemptionArgs as kube-scheduler does")
	}
	request := PreemptRequest{Pod: podOf(args.Pod)}
	switch {
	case args.NodeNameToMetaVictims != nil:
		return withVictims(request, args.NodeNameToMetaVictims)
	case args.NodeNameToVictims != nil:
		return withVictims(request, args.NodeNameToVictims)
	}
	return PreemptRequest{}, errors.New("the request has neither NodeNameToMetaVictims nor NodeNameToVictims: send one of them, as " +
		"kube-scheduler does")
}

func withVictims[P interface{ uid() string }](request PreemptRequest, sent map[string]*victimsJSON[P]) (PreemptRequest, error) {
	request.Names = slices.Sorted(maps.Keys(sent))
	request.Victims = make([]Victims, 0, len(sent))
	for _, name := range request.Names {
		node := sent[name]
		if node == nil {
			return PreemptRequest{}, fmt.Errorf("candidate node %q has no Victims: send what kube-scheduler sends", name)
		}
		victims := Victims{UIDs: make([]string, 0, len(node.Pods)), NumPDBViolations: node.NumPDBViolations}
		for i, pod := range node.Pods {
			uid := pod.uid()
			if uid == "" {
				// kube-scheduler identifies the pod only by its UID.
				return PreemptRequest{}, fmt.Errorf("victim %d of candidate node %q has no UID: send what kube-scheduler sends", i, name)
			}
			victims.UIDs = append(victims.UIDs, uid)
		}
		request.Victims = append(request.Victims, victims)
	}
	return request, nil
}
