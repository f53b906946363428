// Package wire reads and writes the messages between kube-scheduler and an extender
// (k8s.io/kube-scheduler/extender/v1), without decoding more of a pod or a node than a decision
// needs. Scan is the fast way to read a request, Decode the general one; the Append functions write
// answers. Read decode.go first. It is pure.
package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
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

// Scan reads an ExtenderArgs in the form that kube-scheduler writes; it returns false for any other
// body, which Decode must read. Its result is that of Decode, in a fraction of the time and with
// memory of a few times the body. names, which may be nil, is an empty slice whose capacity is used
// for the names of the request.
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
	// If the body has both lists, Decode decides which of them counts.
	if !ok || !s.end() || !hasPod || hasNames == request.NodeMode {
		return Request{}, false
	}
	request.Pod = podOf(&pod)
	return request, true
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

func (s *scanner) pod(to *podJSON) bool {
	return s.object(
		member{"metadata", func() bool { return s.podMeta(&to.Metadata) }},
		member{"spec", func() bool { return s.podSpec(&to.Spec) }},
	)
}

func (s *scanner) podSpec(to *podSpecJSON) bool {
	return s.object(
		member{"volumes", func() bool {
			return s.list(func() bool { return s.volume(&to.Volumes) })
		}},
		member{"affinity", func() bool {
			return s.object(member{"podAntiAffinity", func() bool {
				return s.object(
					member{"requiredDuringSchedulingIgnoredDuringExecution", func() bool { return s.count(&to.Affinity.Apart.Required) }},
					member{"preferredDuringSchedulingIgnoredDuringExecution", func() bool { return s.count(&to.Affinity.Apart.Preferred) }},
				)
			}})
		}},
		member{"topologySpreadConstraints", func() bool { return s.count(&to.Spread) }},
	)
}

// count consumes a list of objects of which only the number counts.
func (s *scanner) count(to *[]struct{}) bool {
	return s.list(func() bool {
		*to = append(*to, struct{}{})
		return s.next() == '{' && s.skip()
	})
}

func (s *scanner) podMeta(to *podMetaJSON) bool {
	return s.object(
		member{"namespace", func() bool { return s.into(&to.Namespace) }},
		member{"name", func() bool { return s.into(&to.Name) }},
		member{"uid", func() bool { return s.into(&to.UID) }},
		member{"annotations", func() bool {
			value, found, ok := s.entry(keys.Near)
			if found {
				to.Annotations = map[string]string{keys.Near: value}
			}
			return ok
		}},
		member{"ownerReferences", func() bool {
			return s.list(func() bool { return s.owner(&to.Owners) })
		}},
	)
}

func (s *scanner) owner(to *[]ownerJSON) bool {
	var owner ownerJSON
	ok := s.object(
		member{"apiVersion", func() bool { return s.into(&owner.APIVersion) }},
		member{"kind", func() bool { return s.into(&owner.Kind) }},
		member{"name", func() bool { return s.into(&owner.Name) }},
		member{"controller", func() bool {
			owner.Controller = s.next() == 't'
			return s.word("true") || s.word("false")
		}},
	)
	if owner.Controller {
		*to = append(*to, owner)
	}
	return ok
}

func (s *scanner) volume(to *[]volumeJSON) bool {
	var volume volumeJSON
	ok := s.object(
		member{"name", func() bool { return s.into(&volume.Name) }},
		member{"persistentVolumeClaim", func() bool {
			volume.Claim = &claimJSON{}
			return s.object(member{"claimName", func() bool { return s.into(&volume.Claim.ClaimName) }})
		}},
		member{"ephemeral", func() bool {
			volume.Ephemeral = &struct{}{}
			return s.next() == '{' && s.skip()
		}},
	)
	if volume.Claim != nil || volume.Ephemeral != nil {
		*to = append(*to, volume)
	}
	return ok
}

// minName is the least number of bytes of a node name in a list, with quotes and comma.
const minName = 4

// names consumes a list of plain node names. They are most of a request.
func (s *scanner) names(to *Request) bool {
	s.next()
	start := s.at
	rest := s.text[start:]
	// One string is made of the list and all names are substrings of it. In a request of
	// kube-scheduler only the list is left here, and no name contains a comma.
	text := string(rest)
	names := slices.Grow(to.Names, min(bytes.Count(rest, []byte(",")), len(rest)/minName)+1)
	if !s.take('[') {
		return false
	}
	for more := !s.take(']'); more; {
		name, plain := s.plain()
		if !plain || len(name) == 0 {
			return false
		}
		end := s.at - 1 - start
		names = append(names, text[end-len(name):end])
		if more = s.take(','); !more && !s.take(']') {
			return false
		}
	}
	to.Names, to.list = names, s.text[start:s.at]
	return true
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

// ScanPreempt reads an ExtenderPreemptionArgs in the form that kube-scheduler writes, as Scan does
// an ExtenderArgs; false for any other body, which DecodePreempt must read.
func ScanPreempt(body []byte, names []string) (PreemptRequest, bool) {
	var pod podJSON
	var found []candidate
	var hasPod bool
	lists := 0
	s := &scanner{text: body}
	list := func(uid func(to *string) bool) func() bool {
		return func() bool {
			if s.null() {
				return true
			}
			lists++
			return s.candidates(&found, uid)
		}
	}
	ok := s.object(
		member{"Pod", func() bool { hasPod = true; return s.pod(&pod) }},
		member{"NodeNameToVictims", list(s.uidOfPod)},
		member{"NodeNameToMetaVictims", list(s.uidOfMetaPod)},
	)
	if !ok || !s.end() || !hasPod || lists != 1 {
		return PreemptRequest{}, false
	}
	slices.SortFunc(found, func(a, b candidate) int { return strings.Compare(a.name, b.name) })
	request := PreemptRequest{Pod: podOf(&pod), Names: slices.Grow(names, len(found)), Victims: make([]Victims, 0, len(found))}
	for i, c := range found {
		if i > 0 && c.name == found[i-1].name {
			return PreemptRequest{}, false
		}
		request.Names, request.Victims = append(request.Names, c.name), append(request.Victims, c.victims)
	}
	return request, true
}

type candidate struct {
	name    string
	victims Victims
}

// candidates consumes the victims of all candidates. uid consumes one victim.
func (s *scanner) candidates(to *[]candidate, uid func(to *string) bool) bool {
	return s.keys(func(name []byte) bool {
		found := candidate{name: string(name), victims: Victims{UIDs: []string{}}}
		ok := s.object(
			member{"Pods", func() bool {
				return s.null() || s.list(func() bool {
					var id string
					ok := uid(&id) && id != ""
					found.victims.UIDs = append(found.victims.UIDs, id)
					return ok
				})
			}},
			member{"NumPDBViolations", func() bool { return s.integer(&found.victims.NumPDBViolations) }},
		)
		*to = append(*to, found)
		return ok
	})
}

func (s *scanner) uidOfMetaPod(to *string) bool {
	return s.object(member{"UID", func() bool { return s.into(to) }})
}

func (s *scanner) uidOfPod(to *string) bool {
	return s.object(member{"metadata", func() bool {
		return s.object(member{"uid", func() bool { return s.into(to) }})
	}})
}

// integer consumes a number that is an int64.
func (s *scanner) integer(to *int64) bool {
	s.next()
	start := s.at
	if !s.skipNumber() {
		return false
	}
	number, err := strconv.ParseInt(string(s.text[start:s.at]), 10, 64)
	*to = number
	return err == nil
}
