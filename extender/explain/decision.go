package explain

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"time"

	"github.com/lodestone-storage/lodestone/extender/filter"
	"github.com/lodestone-storage/lodestone/extender/score"
	"github.com/lodestone-storage/lodestone/extender/snapshot"
	"github.com/lodestone-storage/lodestone/pkg/refusal"
)

// Decision is the outcome of one call for one pod. It must not be changed once
// it is in a Journal.
type Decision struct {
	Time time.Time `json:"time"`
	// Verb is filter, prioritize or preempt.
	Verb   string  `json:"verb"`
	Claims []Claim `json:"claims"`
	// Nodes says what became of the candidates of filter and preempt.
	Nodes []Verdict `json:"nodes,omitempty"`
	// Scores says what prioritize gave the nodes of each candidate cluster.
	Scores []score.Mark `json:"scores,omitempty"`
	// Stale is for how long changes had not arrived when this was decided; empty
	// while they arrived.
	Stale string `json:"stale,omitempty"`
	// Omitted is how many items of the lists were left out.
	Omitted int `json:"omitted,omitempty"`

	bytes int
}

// Claim is what was known of one claim of the pod.
type Claim struct {
	Name string `json:"name"`
	// Unknown: the claim did not exist as far as was known.
	Unknown bool `json:"unknown,omitempty"`
	// Near: the pod does not mount the claim but wants to be near it.
	Near         bool   `json:"near,omitempty"`
	StorageClass string `json:"storageClass,omitempty"`
	Volume       string `json:"volume,omitempty"`
	// DataIn is the cluster that holds the data; empty without data, and where it
	// is not confined to a cluster.
	DataIn string `json:"dataIn,omitempty"`
	// Prefers is, for data that is not confined, the cluster that an administrator
	// labelled its volume with.
	Prefers string `json:"prefers,omitempty"`
	// Bytes is the capacity of the volume.
	Bytes int64 `json:"bytes,omitempty"`
	// CopyOf is the claim that the volume is to be a copy of.
	CopyOf string `json:"copyOf,omitempty"`
	// Moving: a move holds the claim.
	Moving bool `json:"moving,omitempty"`
	// Refusals are the places that refused to make the volume.
	Refusals []refusal.Refusal `json:"refusals,omitempty"`
}

// Verdict is what became of the candidate nodes of one cluster.
type Verdict struct {
	// Cluster is empty for nodes that were not known yet.
	Cluster string
	// Reason is why these nodes were refused, or Accepted.
	Reason filter.Reason
	Nodes  int
	// Examples are the first few of the refused nodes.
	Examples []string
}

// MarshalJSON implements json.Marshaler.
func (v Verdict) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Cluster  string   `json:"cluster,omitempty"`
		Reason   string   `json:"reason"`
		Sentence string   `json:"sentence,omitempty"`
		Nodes    int      `json:"nodes"`
		Examples []string `json:"examples,omitempty"`
	}{Cluster: v.Cluster, Reason: v.Reason.String(), Sentence: v.Reason.Sentence(), Nodes: v.Nodes, Examples: v.Examples})
}

// Claims returns the facts of a pod's claims. found are those that are known;
// those that only the pod's volumes name are unknown.
func Claims(pod snapshot.Pod, found []snapshot.PodClaim) []Claim {
	claims := make([]Claim, 0, len(found))
	for _, known := range found {
		claim := Claim{
			Name: known.Name, Near: known.Near, StorageClass: known.ClassName, Volume: known.VolumeName,
			CopyOf: known.Source, Moving: known.Moving, Refusals: known.Refusals,
		}
		if known.Volume != nil {
			claim.DataIn, claim.Prefers, claim.Bytes = known.Volume.Cluster, known.Volume.Prefers, known.Volume.Bytes
		}
		claims = append(claims, claim)
	}
	for _, volume := range pod.Volumes {
		if len(claims) > maxDecision/overhead {
			break
		}
		if !slices.ContainsFunc(claims, func(c Claim) bool { return c.Name == volume.ClaimName && !c.Near }) {
			claims = append(claims, Claim{Name: volume.ClaimName, Unknown: true})
		}
	}
	return claims
}

// Scores returns the marks of clusters, the highest score first.
func Scores(scale score.Scale) []score.Mark {
	return slices.SortedFunc(maps.Values(scale), func(a, b score.Mark) int {
		return cmp.Or(cmp.Compare(b.Score, a.Score), cmp.Compare(a.Cluster, b.Cluster))
	})
}
