package filter_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/lodestone-storage/lodestone/extender/filter"
	"github.com/lodestone-storage/lodestone/extender/snapshot"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/locality"
)

// BenchmarkPlanOf500Nodes judges nodes of home, each with volumes of ten pods, for a pod with an
// unbound claim: without attach limits, with limits that are far off, and with limits that are
// close, so that volumes are counted.
func BenchmarkPlanOf500Nodes(b *testing.B) {
	const nodes, volumes = 500, 10
	for name, limit := range map[string]int{"no limits": 0, "far from the limit": 25, "at the limit": volumes} {
		view := world()
		realClasses(view)
		candidates := make([]snapshot.Node, nodes)
		for i := range nodes {
			candidates[i] = snapshot.Node{Name: fmt.Sprintf("node-%d", i), Cluster: keys.Home, Known: true}
			if limit > 0 {
				view.Limits.Set(candidates[i].Name, snapshot.Limits{"disk": limit})
			}
			for j := range volumes {
				claim := fmt.Sprintf("claim-%d-%d", i, j)
				bind(claim, snapshot.Claim{}, snapshot.Volume{Driver: "disk"})(view)
				view.Assigned.Set("app/"+claim, snapshot.Use{Node: candidates[i].Name, Claims: []string{"app/" + claim}})
			}
		}
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				plan := filter.NewPlan(view, pod("unbound"), now)
				for _, node := range candidates {
					plan.Judge(node)
				}
			}
		})
	}
}

// BenchmarkPlanOfAPodThatWasRefused judges 5,000 nodes for a pod with 500 claims, each of which has
// as many refusals as an annotation can hold.
func BenchmarkPlanOfAPodThatWasRefused(b *testing.B) {
	view := world()
	realClasses(view)
	var names []string
	for i := range 500 {
		claim := &snapshot.Claim{UID: fmt.Sprint(i), ClassName: "lodestone"}
		for j := range 32 {
			claim.Refusals = append(claim.Refusals, locality.Refusal{Cluster: keys.Home, Node: fmt.Sprintf("gone-%d-%d", i, j),
				Until: now.Add(time.Hour)})
		}
		names = append(names, fmt.Sprintf("claim-%d", i))
		view.Claims.Set("app/"+names[i], claim)
	}
	candidates := make([]snapshot.Node, 5000)
	for i := range candidates {
		candidates[i] = snapshot.Node{Name: fmt.Sprintf("node-%d", i), Cluster: keys.Home, Known: true}
		view.Limits.Set(candidates[i].Name, snapshot.Limits{"disk": 1000})
	}
	b.ReportAllocs()
	for b.Loop() {
		plan := filter.NewPlan(view, pod(names...), now)
		for _, node := range candidates {
			plan.Judge(node)
		}
	}
}
