// Package largecluster is the API server of a large home cluster, as far as the
// extender asks one: it streams objects of ordinary size to watches, makes them
// from their numbers instead of holding them, and tells of changes on demand.
package largecluster

import (
	"fmt"

	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/pkg/keys"
)

const (
	// Namespace is where all claims are.
	Namespace = "shop"
	// Nodes is how many there are.
	Nodes = 5000
	// RemoteClusters is how many there are.
	RemoteClusters = 10
)

// NodeName is about as long as cloud providers make them.
func NodeName(i int) string {
	return fmt.Sprintf("ip-10-%d-%d-%d.eu-central-1.compute.internal", i/65536, i/256%256, i%256)
}

// ClusterOf puts every tenth node into one of the remote clusters.
func ClusterOf(i int) string {
	if i%10 != 0 {
		return keys.Home
	}
	return fmt.Sprintf("remote-%d", i/10%RemoteClusters)
}

// UID is that of the i-th claim.
func UID(i int) types.UID { return types.UID(fmt.Sprintf("00000000-0000-4000-8000-%012d", i)) }

// ClaimName is that of the i-th claim.
func ClaimName(i int) string { return fmt.Sprintf("data-database-%d", i) }

// VolumeName is that of the i-th claim's volume.
func VolumeName(i int) string { return "pvc-" + string(UID(i)) }

// Unbound says whether the i-th claim waits for a pod: every tenth does.
func Unbound(i int) bool { return i%10 == 5 }

// Ready says whether the i-th remote cluster is ready: every second is.
func Ready(i int) bool { return i%2 == 0 }
