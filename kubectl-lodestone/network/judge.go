package network

import (
	"fmt"
	"strings"

	"github.com/lodestone-storage/lodestone/pkg/pathcheck"
)

// Trial is what -o json and -o yaml write of a test.
type Trial struct {
	Cluster string `json:"cluster"`
	// Other is the other cluster: home, or another remote one.
	Other     string `json:"other"`
	Namespace string `json:"namespace"`
	// Works: all of it came through, in both directions.
	Works bool `json:"works"`
	// Problem is what is wrong, in a sentence.
	Problem string `json:"problem,omitempty"`
	Ways    []Way  `json:"ways"`
}

// Way is one direction.
type Way struct {
	// From and To are home or the name of a remote cluster.
	From string `json:"from"`
	To   string `json:"to"`
	// FromAddress and ToAddress are those by which the other pod reaches each.
	FromAddress string             `json:"fromAddress"`
	ToAddress   string             `json:"toAddress"`
	Results     []pathcheck.Result `json:"results"`
}

// wrong says in a sentence what is wrong, empty if nothing is. not is why the condition NetworkReady of the cluster is not True, empty if
// it is or there is none. It is pure.
func wrong(ways []Way, not string) string {
	var problems []string
	for _, way := range ways {
		if problem := way.wrong(); problem != "" {
			problems = append(problems, problem)
		}
	}
	if len(problems) == 0 {
		return ""
	}
	sentence := strings.Join(problems, "; ")
	if not != "" {
		sentence += fmt.Sprintf("; NetworkReady says: %s", not)
	}
	return sentence
}

// wrong says what is wrong with one direction.
func (w Way) wrong() string {
	var failed []pathcheck.Result
	came := map[string]int{} // how many of a protocol came through, and the largest of them
	largest := map[string]int{}
	for _, r := range w.Results {
		if r.Problem != "" {
			failed = append(failed, r)
			continue
		}
		came[r.Protocol]++
		largest[r.Protocol] = max(largest[r.Protocol], r.Bytes)
	}
	way := fmt.Sprintf("from %s to %s", w.From, w.To)
	switch {
	case len(failed) == 0:
		return ""
	case strings.Contains(failed[0].Problem, "sees address"):
		return way + ": " + failed[0].Problem
	case len(failed) == len(w.Results):
		return fmt.Sprintf("nothing comes through %s: %s", way, failed[0].Problem)
	case came["UDP"] == 0:
		return fmt.Sprintf("TCP comes through %s, but UDP does not: see NetworkPolicies and firewalls", way)
	case came["TCP"] == 0:
		return fmt.Sprintf("UDP comes through %s, but TCP does not: see NetworkPolicies and firewalls", way)
	case failed[0].Bytes > largest[failed[0].Protocol]:
		return fmt.Sprintf("%s with %d bytes comes through %s, but with %d does not: something on the way drops packets that are large, or "+
			"in pieces; compare the MTU of kubectl lodestone network status with that of the networks between the nodes",
			failed[0].Protocol, largest[failed[0].Protocol], way, failed[0].Bytes)
	}
	return fmt.Sprintf("packets get lost %s: %s", way, failed[0].Problem)
}
