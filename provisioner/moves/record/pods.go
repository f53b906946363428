package record

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// Node is a node of a cluster.
type Node struct {
	Cluster string `json:"cluster"`
	Name    string `json:"name"`
}

// Pod is one that is bound to a node.
type Pod struct {
	// Cluster is the remote cluster where it is; empty: home.
	Cluster string    `json:"cluster,omitempty"`
	UID     types.UID `json:"uid"`
	Name    string    `json:"name"`
	Node    string    `json:"node"`
	// Grace is how many seconds its containers may take to end.
	Grace int64 `json:"grace"`
	// Gone is since when the pod is known to be gone and its node to be ready; zero
	// while either is not so.
	Gone time.Time `json:"gone,omitzero"`
}

// On is the node of a pod.
func (p Pod) On() Node {
	if p.Cluster == "" {
		return Node{Cluster: keys.Home, Name: p.Node}
	}
	return Node{Cluster: p.Cluster, Name: p.Node}
}

// MostPods is how many pods a record has room for.
const MostPods = 500
