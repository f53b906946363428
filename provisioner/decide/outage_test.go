package decide_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/stretchr/testify/require"
)

// outages are how long west is away; 0: only that one request is lost.
var outages = []time.Duration{0, time.Second, 30 * time.Second, 2 * time.Minute, 10 * time.Minute}

// requests is how many requests one step makes in west at most.
const requests = 2

// TestOutagesAtEachStep takes west away at each step of each flow that has to do with it:
// before each request of the step, and after it with its answer lost, and in each second
// of the flow. Whenever it comes back, the flow must end as its user asked.
//
// Without E2E_LONG two of the lengths stand for all.
func TestOutagesAtEachStep(t *testing.T) {
	t.Parallel()
	outages := outages
	if os.Getenv("E2E_LONG") == "" {
		outages = []time.Duration{0, 2 * time.Minute}
	}
	var text strings.Builder
	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	head := "flow\twest goes away at"
	for _, length := range outages {
		head += "\t" + length.String()
	}
	fmt.Fprintln(table, head)
	tried := 0
	for _, flow := range outageFlows() {
		usual := play(t, flow, outage{step: -1, second: -1})
		row := func(name string, cases []outage) {
			line := flow.name + "\t" + name
			for _, length := range outages {
				count, slowest := 0, time.Duration(0)
				for _, c := range cases {
					c.length = length
					if x := play(t, flow, c); x.met {
						count++
						slowest = max(slowest, x.worked.Sub(x.back))
					}
				}
				line += fmt.Sprintf("\t%d, %v", count, slowest)
				tried += count
			}
			fmt.Fprintln(table, line)
		}
		for n, step := range usual.steps {
			var cases []outage
			for cut := range requests + 1 {
				if cut == 0 || step.Cluster == "west" {
					cases = append(cases, outage{step: n, cut: cut, second: -1})
				}
			}
			row(fmt.Sprintf("%d %s, %s", n+1, step.Verb, step.Cluster), cases)
		}
		var cases []outage
		for second := time.Duration(0); second <= max(0, usual.worked.Sub(usual.acted))+2*time.Second; second += time.Second {
			cases = append(cases, outage{step: -1, second: second})
		}
		row("any second", cases)
		row("before it begins", []outage{{step: -1, second: -1, early: true}})
	}
	require.NoError(t, table.Flush())
	t.Logf("cases that ended well, and how long after west was back the slowest did:\n%s\n%d cases tried, all survived", text.String(), tried)
	require.Greater(t, tried, 120*len(outages))
}
