package wire

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/lodestone-storage/lodestone/extender/snapshot"
)

// PreemptRequest is what kube-scheduler asks with preempt: on which of the
// candidate nodes it may evict the victims to make room for the pod.
type PreemptRequest struct {
	Pod snapshot.Pod
	// Names are the candidates, in alphabetical order.
	Names []string
	// Victims holds those of each candidate.
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
	// One of the two is set: whole pods where the extender has no cache of its
	// own, else their UIDs.
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

// DecodePreempt reads any ExtenderPreemptionArgs that encoding/json can read, as
// Decode does an ExtenderArgs. An error is one sentence for whoever sent it.
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
	return PreemptRequest{}, errors.New("the request has neither NodeNameToMetaVictims nor NodeNameToVictims: send one of them, as kube-scheduler does")
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
				// kube-scheduler finds the pod by nothing else.
				return PreemptRequest{}, fmt.Errorf("victim %d of candidate node %q has no UID: send what kube-scheduler sends", i, name)
			}
			victims.UIDs = append(victims.UIDs, uid)
		}
		request.Victims = append(request.Victims, victims)
	}
	return request, nil
}
