package network

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/lodestone-storage/lodestone/pkg/pathcheck"
)

// tried are the results of a way on which those fail that bad says.
func tried(bad func(r pathcheck.Result) string) Way {
	way := Way{From: "home", To: "west"}
	for _, r := range []pathcheck.Result{{Protocol: "UDP", Bytes: 64}, {Protocol: "UDP", Bytes: 850}, {Protocol: "UDP", Bytes: 1400},
		{Protocol: "UDP", Bytes: 9000}, {Protocol: "TCP", Bytes: 64}, {Protocol: "TCP", Bytes: 131072}} {
		if r.Problem = bad(r); r.Problem == "" {
			r.Microseconds = 400
		}
		way.Results = append(way.Results, r)
	}
	return way
}

func TestWhatIsWrongIsOneSentence(t *testing.T) {
	lost := func(which func(r pathcheck.Result) bool) func(pathcheck.Result) string {
		return func(r pathcheck.Result) string {
			if which(r) {
				return "no answer"
			}
			return ""
		}
	}
	for _, row := range []struct {
		name string
		bad  func(pathcheck.Result) string
		says string
	}{
		{"all comes through", lost(func(pathcheck.Result) bool { return false }), ""},
		{"nothing does", lost(func(pathcheck.Result) bool { return true }), "nothing comes through from home to west: no answer"},
		{"UDP does not", lost(func(r pathcheck.Result) bool { return r.Protocol == "UDP" }),
			"TCP comes through from home to west, but UDP does not: see NetworkPolicies and firewalls"},
		{"TCP does not", lost(func(r pathcheck.Result) bool { return r.Protocol == "TCP" }),
			"UDP comes through from home to west, but TCP does not: see NetworkPolicies and firewalls"},
		{"fragments do not", lost(func(r pathcheck.Result) bool { return r.Bytes == 9000 }),
			"UDP with 1400 bytes comes through from home to west, but with 9000 does not: something on the way drops packets that are large, or " +
				"in pieces; compare the MTU of kubectl lodestone network status with that of the networks between the nodes"},
		{"full segments do not", lost(func(r pathcheck.Result) bool { return r.Protocol == "TCP" && r.Bytes > 64 }),
			"TCP with 64 bytes comes through from home to west, but with 131072 does not: something on the way drops packets that are large, or " +
				"in pieces; compare the MTU of kubectl lodestone network status with that of the networks between the nodes"},
		{"some do not", lost(func(r pathcheck.Result) bool { return r.Bytes == 850 }), "packets get lost from home to west: no answer"},
		{"addresses are translated", func(pathcheck.Result) string { return "pod b sees address x and not y" },
			"from home to west: pod b sees address x and not y"},
	} {
		t.Run(row.name, func(t *testing.T) {
			assert.Equal(t, row.says, wrong([]Way{tried(row.bad)}, ""))
		})
	}
	well, badly := tried(func(pathcheck.Result) string { return "" }), tried(func(pathcheck.Result) string { return "no answer" })
	back := badly
	back.From, back.To = "west", "home"
	assert.Empty(t, wrong([]Way{well, well}, "no lane is up"), "what a condition says that is late is not what is seen")
	assert.Equal(t, "nothing comes through from home to west: no answer; nothing comes through from west to home: no answer; "+
		"NetworkReady says: no lane is up", wrong([]Way{badly, back}, "no lane is up"))
}
