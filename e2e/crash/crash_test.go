package crash

import (
	"errors"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestRequestsAreToldApart(t *testing.T) {
	const uid = "11111111-2222-3333-4444-555555555555"
	l := newLedger()
	c := newCase(&Flow{Name: "f"}, "", Call{}, "crash-abcdefgh")
	l.add(c)
	require.Same(t, c, l.owns("crash-abcdefgh", uid, true))
	for name, test := range map[string]struct {
		method, path, body string
		cluster            string
		want               string
		others             bool
	}{
		"a claim":                         {method: "PATCH", path: "/api/v1/namespaces/crash-abcdefgh/persistentvolumeclaims/data", cluster: "home", want: "patch claim"},
		"a claim's status":                {method: "PATCH", path: "/api/v1/namespaces/crash-abcdefgh/persistentvolumeclaims/data/status", cluster: "home", want: "patch claim.status"},
		"a twin, by its name":             {method: "DELETE", path: "/api/v1/namespaces/lodestone-storage/persistentvolumeclaims/pvc-" + uid, cluster: "home", want: "delete twin"},
		"a twin, by what is in it":        {method: "POST", path: "/api/v1/namespaces/lodestone-storage/persistentvolumeclaims", body: "x crash-abcdefgh/data x", cluster: "home", want: "create twin"},
		"a shadow":                        {method: "GET", path: "/api/v1/namespaces/crash-abcdefgh/persistentvolumeclaims/data", cluster: "west", want: "get shadow"},
		"a virtual volume":                {method: "PATCH", path: "/api/v1/persistentvolumes/pvc-" + uid, cluster: "home", want: "patch volume"},
		"a real volume in west":           {method: "GET", path: "/api/v1/persistentvolumes/pvc-" + uid, cluster: "west", want: "get real-volume"},
		"who uses a volume":               {method: "GET", path: "/api/v1/namespaces/crash-abcdefgh/pods", cluster: "home", want: "list pod"},
		"who may use it in west":          {method: "GET", path: "/apis/remote.lodestone.dev/v1alpha1/namespaces/crash-abcdefgh/shadowpods?labelSelector=a%3Db", cluster: "west", want: "list shadowpod"},
		"an event about a volume":         {method: "POST", path: "/api/v1/namespaces/default/events", body: "pvc-" + uid, cluster: "home", want: "create event"},
		"what belongs to none":            {method: "GET", path: "/api/v1/namespaces/other/persistentvolumeclaims/data", cluster: "home", want: "get claim", others: true},
		"a RemoteCluster names all cases": {method: "PUT", path: "/apis/lodestone.dev/v1alpha1/remoteclusters/west/status", body: "crash-abcdefgh", cluster: "home", want: "update remotecluster.status", others: true},
	} {
		t.Run(name, func(t *testing.T) {
			asked, err := url.Parse(test.path)
			require.NoError(t, err)
			r, ok := parse(test.method, asked)
			require.True(t, ok)
			assert.Equal(t, test.want, r.verb+" "+r.object(test.cluster, l.isVirtual(r.name)))
			found := l.find(r, test.path, []byte(test.body))
			if test.others {
				assert.Nil(t, found)
				return
			}
			assert.Same(t, c, found)
		})
	}
	for _, path := range []string{"/api/v1/persistentvolumeclaims", "/readyz", "/api/v1/pods", "/api/v1/namespaces/x/persistentvolumeclaims",
		"/api/v1/namespaces/x/pods?watch=true", "/api/v1/namespaces/x/pods?limit=500&resourceVersion=0", "/api/v1/nodes?fieldSelector=metadata.name%3Dn"} {
		asked, err := url.Parse(path)
		require.NoError(t, err)
		_, ok := parse("GET", asked)
		assert.False(t, ok, "%s is a list, a watch or no object", path)
	}
}

func TestCaseMeetsItsFaultOnceAndIsCutOffFromThen(t *testing.T) {
	call := Call{Cluster: "home", Verb: "patch", Object: "twin", Nth: 2}
	c := newCase(&Flow{Name: "f"}, StopBefore, call, "crash-abcdefgh")
	assert.Equal(t, pass, c.enter(1, true, call), "before the act")
	c.act(nil)
	assert.Equal(t, pass, c.enter(1, true, call), "the first of its kind")
	assert.Equal(t, strike, c.enter(1, true, call))
	assert.Equal(t, refuse, c.enter(1, true, call))
	assert.Equal(t, pass, c.enter(2, true, call), "the second replica")
	c.revive()
	assert.Equal(t, pass, c.enter(1, true, call), "the next program")
	assert.True(t, c.struck())
}

func TestCallsAreReadAsTheyArePrinted(t *testing.T) {
	call := Call{Cluster: "west", Verb: "patch", Object: "claim.status", Nth: 3}
	for _, call := range []Call{call, {Cluster: "home", Verb: "update", Object: "record", Nth: 2, Phase: "Fence"}} {
		read, err := ParseCall(call.String())
		require.NoError(t, err)
		assert.Equal(t, call, read)
	}
	for _, wrong := range []string{"", "home/get/twin", "home/get/twin/0", "home/get/twin/x", "home/get/twin/Fence.", "home/get/twin/.x"} {
		_, err := ParseCall(wrong)
		assert.Error(t, err, wrong)
	}
}

func TestSampleHasEachFlowAndEachFault(t *testing.T) {
	calls := map[string][]Call{}
	for _, f := range Flows() {
		calls[f.Name] = []Call{
			{Cluster: "home", Verb: "get", Object: "twin", Nth: 1}, {Cluster: "home", Verb: "patch", Object: "twin", Nth: 1}, {Cluster: "home", Verb: "create", Object: "event", Nth: 1},
		}
	}
	flows, faults := map[string]bool{}, map[Fault]bool{}
	for _, c := range (Options{Sample: true}).plan(Flows(), calls) {
		assert.True(t, c.Fault.meets(c.Call), c.String())
		flows[c.Flow.Name], faults[c.Fault] = true, true
	}
	assert.Len(t, flows, len(Flows()))
	assert.Len(t, faults, len(Faults()))
}

func TestOfReadsThatRepeatEachFaultMeetsSome(t *testing.T) {
	calls := []Call{{Cluster: "west", Verb: "patch", Object: "shadow", Nth: 1}, {Cluster: "west", Verb: "patch", Object: "shadow", Nth: 2}}
	for n := range 20 {
		calls = append(calls, Call{Cluster: "west", Verb: "get", Object: "shadow", Nth: n + 1})
	}
	met := map[int]bool{}
	for _, c := range (Options{}).plan([]Flow{{Name: "f", Reads: 4}}, map[string][]Call{"f": calls}) {
		if !c.Call.writes() {
			met[c.Call.Nth] = true
		}
	}
	assert.Greater(t, len(met), 12, "one fault meets others than another")
	first := Flow{Name: "move", Reads: 1, Moves: true}
	for turn := range 3 {
		assert.Equal(t, calls[:3], first.few(calls, turn), "the first of each phase")
	}
}

func TestTableSaysWhatDidNotSurvive(t *testing.T) {
	call := Call{Cluster: "home", Verb: "create", Object: "twin", Nth: 1}
	outcomes := []Outcome{
		{Flow: "delete-local", Fault: Lost, Call: call, Met: true},
		{Flow: "delete-local", Fault: Lost, Call: call, Met: true, Err: errors.New("left over"), Case: "delete-local,lost," + call.String()},
		{Flow: "provision-local", Fault: Lost, Call: call},
	}
	var out strings.Builder
	require.NoError(t, Print(&out, outcomes))
	assert.Contains(t, out.String(), "1 of 2")
	assert.Contains(t, out.String(), "2 cases tried, 1 survived; 1 more ended well")
	failed := Failed(outcomes)
	require.Len(t, failed, 1)
	assert.Contains(t, failed[0].String(), "make crash ARGS='--case=delete-local,lost,home/create/twin/1'")
}

func TestAChoiceOfCallsIsSpreadEvenly(t *testing.T) {
	var calls []Call
	for n := range 100 {
		calls = append(calls, Call{Cluster: "home", Verb: "update", Object: "record", Nth: n})
	}
	assert.Equal(t, calls, spread(calls, 0, 3))
	assert.Equal(t, calls[:5], spread(calls[:5], 10, 3))
	numbers := func(calls []Call) (all []int) {
		for _, call := range calls {
			all = append(all, call.Nth)
		}
		return all
	}
	assert.Equal(t, []int{0, 25, 50, 75}, numbers(spread(calls, 4, 0)))
	assert.Equal(t, []int{12, 37, 62, 87}, numbers(spread(calls, 4, len(Faults())/2)))
}

func TestALogContinuesWhatWasWrittenBefore(t *testing.T) {
	for name, row := range map[string]struct {
		log, source string
		lines       int
		fails       bool
	}{
		"nothing new":                         {log: "1 a\n2 a\n", source: "1 a\n2 a\n", lines: 2},
		"counted on by another":               {log: "1 a\n2 a\n3 b\n", source: "1 a\n2 a\n", lines: 3},
		"a line that was not whole":           {log: "1 a\n2 b\n", source: "1 a\n2", lines: 2},
		"a lost line":                         {log: "1 a\n", source: "1 a\n2 a\n", fails: true},
		"a lost line that another wrote anew": {log: "1 a\n2 b\n3 b\n", source: "1 a\n2 a\n", fails: true},
		"a gap":                               {log: "1 a\n3 b\n", source: "1 a\n", fails: true},
		"a number twice":                      {log: "1 a\n1 b\n", source: "1 a\n", fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			lines, err := continues(row.log, row.source)
			assert.Equal(t, row.fails, err != nil, "%v", err)
			assert.Equal(t, row.lines, lines)
		})
	}
}
