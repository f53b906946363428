// Package refusal stores, in an annotation of a virtual claim, which clusters and nodes could not
// take it lately. The provisioner adds refusals (Add, Encode); the extender reads them (Decode, Of)
// and filters those clusters and nodes out until the refusal ends. It is pure: callers pass the
// time.
package refusal

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// Refusal says that a cluster, or one node, could not take a claim.
type Refusal struct {
	// Cluster is the ID of the cluster.
	Cluster string `json:"cluster"`
	// Node is set when only this node refused.
	Node string `json:"node,omitempty"`
	// Reason is one word, Message one sentence for the user.
	Reason  string `json:"reason"`
	Message string `json:"message"`
	// Until is when the refusal ends and the cluster or node may be tried again.
	Until time.Time `json:"until"`
}

// maxRefusals and maxMessage limit the annotation: all annotations of an object together may hold
// 256 KiB. maxAnnotation is more than Encode makes within those limits, with names of 253 bytes and
// a message of which each byte is escaped.
const (
	maxRefusals   = 32
	maxMessage    = 512
	maxAnnotation = maxRefusals * (6*maxMessage + 1024)
)

// Decode reads the annotation. Users can write the annotation, so text that cannot be read counts
// as no refusal; so does text that Encode never writes because it is too long or has too many
// refusals, which would take long to read.
func Decode(annotation string) []Refusal {
	if annotation == "" || len(annotation) > maxAnnotation {
		return nil
	}
	decoder := json.NewDecoder(strings.NewReader(annotation))
	if start, err := decoder.Token(); err != nil || start != json.Delim('[') {
		return nil
	}
	var refusals []Refusal
	for decoder.More() {
		var r Refusal
		if len(refusals) == maxRefusals || decoder.Decode(&r) != nil {
			return nil
		}
		refusals = append(refusals, r)
	}
	if _, err := decoder.Token(); err != nil || decoder.More() {
		return nil
	}
	return refusals
}

// Encode writes the annotation; it is empty for no refusals.
func Encode(refusals []Refusal) (string, error) {
	if len(refusals) == 0 {
		return "", nil
	}
	data, err := json.Marshal(refusals)
	if err != nil {
		return "", fmt.Errorf("encode refusals: %w", err)
	}
	return string(data), nil
}

// Add returns the refusals that have not ended at now, with r instead of an earlier one for the
// same cluster and node. If there are too many, the oldest are dropped.
func Add(refusals []Refusal, r Refusal, now time.Time) []Refusal {
	if len(r.Message) > maxMessage {
		r.Message = strings.ToValidUTF8(r.Message[:maxMessage], "")
	}
	r.Until = r.Until.UTC().Truncate(time.Second)
	var kept []Refusal
	for _, old := range Active(refusals, now) {
		if old.Cluster != r.Cluster || old.Node != r.Node {
			kept = append(kept, old)
		}
	}
	kept = append(kept, r)
	return kept[max(0, len(kept)-maxRefusals):]
}

// Active returns the refusals that have not ended at now.
func Active(refusals []Refusal, now time.Time) []Refusal {
	var active []Refusal
	for _, r := range refusals {
		if now.Before(r.Until) {
			active = append(active, r)
		}
	}
	return active
}

// Of returns the refusal that holds at now for a node of a cluster: of the whole
// cluster or of that node.
func Of(refusals []Refusal, cluster, node string, now time.Time) (Refusal, bool) {
	for _, r := range refusals {
		if r.Cluster == cluster && (r.Node == "" || r.Node == node) && now.Before(r.Until) {
			return r, true
		}
	}
	return Refusal{}, false
}
