package snapshot_test

import (
	"fmt"
	"testing"

	"github.com/lodestone-storage/lodestone/extender/snapshot"
)

// BenchmarkTable measures a table of 5,000 nodes with different numbers of
// shards: how long a decision takes to look them all up, and what a change costs.
func BenchmarkTable(b *testing.B) {
	names := make([]string, 5000)
	entries := map[string]string{}
	for i := range names {
		names[i] = fmt.Sprintf("node-%d.region.internal", i)
		entries[names[i]] = "home"
	}
	for _, shards := range []int{1, 16, 1024} {
		table := snapshot.NewTable[string](shards)
		table.Replace(entries)
		b.Run(fmt.Sprintf("lookups/shards=%d", shards), func(b *testing.B) {
			for b.Loop() {
				for _, name := range names {
					if _, ok := table.Get(name); !ok {
						b.Fatal(name)
					}
				}
			}
		})
		b.Run(fmt.Sprintf("change/shards=%d", shards), func(b *testing.B) {
			cluster := "home"
			for b.Loop() {
				cluster, entries[names[0]] = entries[names[0]], cluster
				table.Set(names[0], fmt.Sprint(cluster))
				table.Set(names[0], "west")
			}
		})
	}
}
