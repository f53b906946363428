package capacity

import (
	"fmt"
	"testing"

	storagev1 "k8s.io/api/storage/v1"
)

// A driver that tells of each of 5,000 nodes, and two virtual classes: what one
// look at everything costs where nothing is to be written.
func BenchmarkLookAtFiveThousandNodes(b *testing.B) {
	w := World{Classes: []*storagev1.StorageClass{virtual("v"), virtual("w"), defaulted(real("std"))}, Drivers: []*storagev1.CSIDriver{telling(true)}}
	for i := range 5000 {
		w.Capacities = append(w.Capacities, told("std", fmt.Sprintf("node-%d", i), "100Gi", ""))
	}
	have := published(w)
	b.ReportAllocs()
	for b.Loop() {
		if changes := Compare(Plan(w), have, namespace); len(changes.Create) > 0 {
			b.Fatal("something is to be written")
		}
	}
}
