package score_test

import (
	"fmt"
	"testing"

	"github.com/lodestone-storage/lodestone/extender/score"
	"github.com/lodestone-storage/lodestone/extender/snapshot"
)

// BenchmarkGravity measures the most expensive case: 16 new claims of a StatefulSet's pod with 128
// siblings each, and 64 claims that it wants to be near, for 5,000 nodes of 50 clusters.
func BenchmarkGravity(b *testing.B) {
	view := snapshot.New()
	pod := snapshot.Pod{Namespace: "app", Name: "web-64", StatefulSet: "web"}
	for c := range 16 {
		class := fmt.Sprintf("c%d", c)
		addClass(b, view, class, nil)
		for i := range 129 {
			bound(view, fmt.Sprintf("%s-web-%d", class, i), snapshot.Volume{Cluster: fmt.Sprint(i % 50), Bytes: gi})
		}
		pod.Volumes = append(pod.Volumes, member(b, view, 64, class).Volumes...)
	}
	for i := range 64 {
		name := fmt.Sprintf("near-%d", i)
		bound(view, name, snapshot.Volume{Cluster: fmt.Sprint(i % 50), Bytes: gi})
		pod.Near = append(pod.Near, name)
	}
	candidates := make([]string, 5000)
	for i := range candidates {
		candidates[i] = fmt.Sprint(i % 50)
	}
	for i := range 50 {
		offer(view, fmt.Sprint(i), "ssd", int64(i)*gi)
	}
	b.ReportAllocs()
	for b.Loop() {
		if scale := score.NewGravity(view, pod).Scale(candidates); len(scale) != 50 {
			b.Fatalf("%d clusters", len(scale))
		}
	}
}
