package locality

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/lodestone-storage/lodestone/pkg/sentence"
)

// Refusal says that a cluster, or one node, could not take a claim. An annotation of the virtual claim holds
// Refusals: the provisioner adds them (AddRefusal, EncodeRefusals), and the extender reads them (DecodeRefusals,
// RefusalOf) and filters those clusters and nodes out until they end.
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
// 256 KiB. maxAnnotation is more than EncodeRefusals makes within those limits, with names of 253 bytes and
// a message of which each byte is escaped.
const (
	maxRefusals   = 32
	maxMessage    = 512
	maxAnnotation = maxRefusals * (6*maxMessage + 1024)
)

// DecodeRefusals reads the annotation. Users can write the annotation, so text that cannot be read counts
// as no refusal; so does text that EncodeRefusals never writes because it is too long or has too many
// refusals, which would take long to read.
func DecodeRefusals(annotation string) []Refusal {
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

// EncodeRefusals writes the annotation; it is empty for no refusals.
func EncodeRefusals(refusals []Refusal) (string, error) {
	if len(refusals) == 0 {
		return "", nil
	}
	data, err := json.Marshal(refusals)
	if err != nil {
		return "", fmt.Errorf("encode refusals: %w", err)
	}
	return string(data), nil
}

// AddRefusal returns the refusals that have not ended at now, with r instead of an earlier one for the
// same cluster and node. If there are too many, the oldest are dropped.
func AddRefusal(refusals []Refusal, r Refusal, now time.Time) []Refusal {
	r.Message = sentence.Cut(r.Message, maxMessage)
	r.Until = r.Until.UTC().Truncate(time.Second)
	var kept []Refusal
	for _, old := range ActiveRefusals(refusals, now) {
		if old.Cluster != r.Cluster || old.Node != r.Node {
			kept = append(kept, old)
		}
	}
	kept = append(kept, r)
	return kept[max(0, len(kept)-maxRefusals):]
}

// ActiveRefusals returns the refusals that have not ended at now.
func ActiveRefusals(refusals []Refusal, now time.Time) []Refusal {
	var active []Refusal
	for _, r := range refusals {
		if now.Before(r.Until) {
			active = append(active, r)
		}
	}
	return active
}

// RefusalOf returns the refusal that holds at now for a node of a cluster: of the whole
// cluster or of that node.
func RefusalOf(refusals []Refusal, cluster, node string, now time.Time) (Refusal, bool) {
	for _, r := range refusals {
		if r.Cluster == cluster && (r.Node == "" || r.Node == node) && now.Before(r.Until) {
			return r, true
		}
	}
	return Refusal{}, false
}
