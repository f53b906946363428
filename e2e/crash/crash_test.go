package crash

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
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
		"a claim": {method: "PATCH", path: "/api/v1/namespaces/crash-abcdefgh/persistentvolumeclaims/data",
			cluster: "home", want: "patch claim"},
		"a claim's status": {method: "PATCH", path: "/api/v1/namespaces/crash-abcdefgh/persistentvolumeclaims/data/status",
			cluster: "home", want: "patch claim.status"},
		"a twin, by its name": {method: "DELETE", path: "/api/v1/namespaces/lodestone-storage/persistentvolumeclaims/pvc-" + uid,
			cluster: "home", want: "delete twin"},
		"a twin, by what is in it": {method: "POST", path: "/api/v1/namespaces/lodestone-storage/persistentvolumeclaims",
			body: "x crash-abcdefgh/data x", cluster: "home", want: "create twin"},
		"a shadow": {method: "GET", path: "/api/v1/namespaces/crash-abcdefgh/persistentvolumeclaims/data", cluster: "west",
			want: "get shadow"},
		"a virtual volume": {method: "PATCH", path: "/api/v1/persistentvolumes/pvc-" + uid, cluster: "home", want: "patch volume"},
		"a real volume in west": {method: "GET", path: "/api/v1/persistentvolumes/pvc-" + uid, cluster: "west",
			want: "get real-volume"},
		"who uses a volume": {method: "GET", path: "/api/v1/namespaces/crash-abcdefgh/pods", cluster: "home", want: "list pod"},
		"who may use it in west": {method: "GET",
			path: "/apis/remote.lodestone.dev/v1alpha1/namespaces/crash-abcdefgh/shadowpods?labelSelector=a%3Db", cluster: "west",
			want: "list shadowpod"},
		"an event about a volume": {method: "POST", path: "/api/v1/namespaces/default/events", body: "pvc-" + uid, cluster: "home",
			want: "create event"},
		"what belongs to none": {method: "GET", path: "/api/v1/namespaces/other/persistentvolumeclaims/data", cluster: "home",
			want: "get claim", others: true},
		"a RemoteCluster names all cases": {method: "PUT", path: "/apis/lodestone.dev/v1alpha1/remoteclusters/west/status",
			body: "crash-abcdefgh", cluster: "home", want: "update remotecluster.status", others: true},
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
		"/api/v1/namespaces/x/pods?watch=true", "/api/v1/namespaces/x/pods?limit=500&resourceVersion=0",
		"/api/v1/nodes?fieldSelector=metadata.name%3Dn"} {
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
	assert.Equal(t, meetFault, c.enter(1, true, call))
	assert.Equal(t, refuse, c.enter(1, true, call))
	assert.Equal(t, pass, c.enter(2, true, call), "the second replica")
	c.readmit()
	assert.Equal(t, pass, c.enter(1, true, call), "the next program")
	assert.True(t, c.faultHappened())
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
			{Cluster: "home", Verb: "get", Object: "twin", Nth: 1}, {Cluster: "home", Verb: "patch", Object: "twin", Nth: 1},
			{Cluster: "home", Verb: "create", Object: "event", Nth: 1},
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

func TestALieIsToldOnceAndOnlyByARemoteCluster(t *testing.T) {
	const claim = `{"kind":"PersistentVolumeClaim","apiVersion":"v1","metadata":{"name":"data","uid":"u","labels":{"a":"b"}},"spec":{"volumeName":"v"},"status":{"phase":"Bound"}}`
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer := claim
		if r.URL.Path == "/api/v1/namespaces/crash-abcdefgh/pods" {
			answer = `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"7"},"items":[` + claim + `]}`
		}
		_, _ = w.Write([]byte(answer))
	}))
	defer server.Close()
	target, err := url.Parse(server.URL)
	require.NoError(t, err)
	const one, all = "/api/v1/namespaces/crash-abcdefgh/persistentvolumeclaims/data", "/api/v1/namespaces/crash-abcdefgh/pods"
	for _, test := range []struct {
		fault      Fault
		path, kind string
		code       int
		holds      string
		lacks      string
	}{
		{Absent, one, "shadow", http.StatusNotFound, `"reason":"NotFound"`, `"uid"`},
		{Another, one, "shadow", http.StatusOK, `"volumeName":"v"`, `"uid":"u"`},
		{Bare, one, "shadow", http.StatusOK, `"uid":"u"`, `volumeName`},
		{Ending, one, "shadow", http.StatusOK, `"deletionTimestamp":"20`, `"reason"`},
		{Absent, all, "pod", http.StatusOK, `"items":[]`, `"uid"`},
		{Another, all, "pod", http.StatusOK, `"resourceVersion":"7"`, `"uid":"u"`},
	} {
		l := newLedger()
		verb := "get"
		if test.path == all {
			verb = "list"
		}
		c := newCase(&Flow{Name: "f", Lied: true}, test.fault, Call{Cluster: "west", Verb: verb, Object: test.kind, Nth: 1}, "crash-abcdefgh")
		require.True(t, test.fault.meets(c.Call))
		l.add(c)
		c.act(nil)
		w := &way{gate: &gate{number: 1, ledger: l}, cluster: "west", target: target, transport: http.DefaultTransport}
		w.proxy = newProxy(target, http.DefaultTransport)
		ask := func() *httptest.ResponseRecorder {
			answer, request := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, test.path, http.NoBody)
			request.Header.Set("User-Agent", "lodestone-provisioner")
			w.ServeHTTP(answer, request)
			return answer
		}
		lie := ask()
		assert.Equal(t, test.code, lie.Code)
		assert.True(t, json.Valid(lie.Body.Bytes()))
		assert.Contains(t, lie.Body.String(), test.holds, "%s of %s", test.fault, test.path)
		assert.NotContains(t, lie.Body.String(), test.lacks, "%s of %s", test.fault, test.path)
		assert.True(t, c.faultHappened())
		truth := ask()
		assert.Equal(t, http.StatusOK, truth.Code)
		assert.Contains(t, truth.Body.String(), claim, "once")
	}
	_, told := lie(absent).about(object{"items": []any{}})
	assert.False(t, told, "who is told of none is told no lie")
	for _, call := range []Call{{Cluster: "home", Verb: "get", Object: "claim"}, {Cluster: "west", Verb: "patch", Object: "shadow"}} {
		assert.False(t, Absent.meets(call), "%v", call)
	}
	assert.NotContains(t, Faults(), Absent)
	assert.Contains(t, MoveFaults(), Absent)
}

// at is a call of a kind in a phase.
func at(phase, verb, object string, nth int) Call {
	return Call{Cluster: "home", Verb: verb, Object: object, Nth: nth, Phase: phase}
}

func TestEachCallOfAVolleyMeetsItsFaultOnce(t *testing.T) {
	first, second := at("Fence", "patch", "claim", 1), at("Fence", "patch", "claim", 2)
	for fault, verdicts := range map[Fault][]verdict{
		// What was refused is asked again, and gets through.
		Broken: {meetFault, pass, meetFault, pass, pass},
		Lost:   {meetFault, meetFault, pass, pass, pass},
	} {
		c := newCase(&Flow{Name: "f", Moves: true}, fault, Call{}, "crash-abcdefgh")
		c.Series, c.moving.phase = []Call{first, second, at("Commit", "patch", "claim", 1)}, "Fence"
		c.act(nil)
		for i, want := range verdicts {
			assert.Equal(t, want, c.enter(1, true, at("", "patch", "claim", 0)), "%s, request %d", fault, i)
		}
		assert.Equal(t, []Call{at("Commit", "patch", "claim", 1)}, c.retry().Series)
		told := c.outcomes(nil)
		require.Len(t, told, 3)
		assert.True(t, told[1].Met)
		assert.False(t, told[2].Met)
		assert.Equal(t, "Commit", told[2].Phase)
		assert.Equal(t, "f,"+string(fault)+",writes", told[2].Case)
	}
}

func TestAWholeSweepOfMovesMeetsEachCall(t *testing.T) {
	calls := []Call{
		at("Fence", "get", "claim", 1), at("Fence", "get", "claim", 2), at("Fence", "get", "volume", 1), at("Fence", "update", "record", 1),
		at("Fence", "update", "volumemove.status", 1), at("Fence", "update", "volumemove.status", 2), at("Commit", "get", "claim", 1),
		at("Commit", "create", "event", 1),
		at("Retain", "update", "record", 1), {Cluster: "west", Verb: "get", Object: "shadow", Phase: "Fence", Nth: 1},
	}
	flows := moveFlows()[:1]
	planned := map[Fault][]Call{}
	moves := map[Fault]int{}
	for _, c := range (Options{}).plan(flows, map[string][]Call{flows[0].Name: calls}) {
		moves[c.Fault]++
		planned[c.Fault] = append(planned[c.Fault], c.Series...)
		if len(c.Series) == 0 {
			planned[c.Fault] = append(planned[c.Fault], c.Call)
		}
	}
	assert.Equal(t, 2, moves[Broken], "one for the reads, one for the writes")
	assert.Equal(t, 1, moves[Conflict], "a read knows none")
	assert.ElementsMatch(t, append([]Call{calls[0]}, calls[2:]...), planned[Broken], "each read of a phase once")
	assert.ElementsMatch(t, []Call{calls[0], calls[3], calls[4], calls[6], calls[8]}, planned[StopBefore],
		"each write, and a read of each phase")
	assert.ElementsMatch(t, []Call{calls[3], calls[4], calls[5]}, planned[KillSource], "where movers run, and in the middle of what they do")
	assert.Equal(t, calls[9:], planned[Absent], "where another cluster is asked")
	assert.Len(t, MoveFaults(), len(moves), "each fault is met")
}

func TestAProgramMeetsItsEndAtSeveralCallsOfOneMove(t *testing.T) {
	var calls []Call
	for n := range 2*maxEndsPerMove + 1 {
		calls = append(calls, at("Commit", "update", "record", n+1))
	}
	cases := endedCases(&Flow{Name: "f", Moves: true}, StopBefore, calls)
	require.Len(t, cases, 3, "no move meets it more than %d times", maxEndsPerMove)
	var met []Call
	for _, c := range cases {
		met = append(met, c.Series...)
	}
	assert.ElementsMatch(t, calls, met, "each call in one of them")
	assert.Equal(t, []Call{calls[0], calls[3], calls[6], calls[9], calls[12]}, cases[0].Series, "far from each other")

	c := cases[0]
	c.moving.phase = "Commit"
	c.act(nil)
	kind := at("", "update", "record", 0)
	assert.Equal(t, meetFault, c.enter(1, true, kind))
	assert.Equal(t, refuse, c.enter(1, true, kind), "it is cut off")
	c.readmit()
	for n := 1; n < 4; n++ {
		assert.Equal(t, pass, c.enter(1, true, kind), "call %d", n)
	}
	assert.Equal(t, meetFault, c.enter(1, true, kind), "the fourth, and not that which was asked again")
	assert.True(t, c.isCut())
	assert.Equal(t, []Call{calls[6], calls[9], calls[12]}, c.unmet())

	named := c.retry().String()
	assert.Equal(t, "f,stop-before,home/update/record/Commit.7+home/update/record/Commit.10+home/update/record/Commit.13", named)
	read, err := parseCalls(strings.SplitN(named, ",", 3)[2])
	require.NoError(t, err)
	assert.Equal(t, c.unmet(), read)
	_, err = parseCalls("home/update/record/1+none")
	assert.Error(t, err)
}

func TestAMoverThatDidNotRunHasNotMetItsFault(t *testing.T) {
	call := at("PreCopy", "update", "volumemove.status", 2)
	c := newCase(&Flow{Name: "f", Moves: true}, CutStream, Call{}, "crash-abcdefgh")
	c.Series, c.moving.phase = []Call{call}, "PreCopy"
	c.act(nil)
	kind := at("", "update", "volumemove.status", 0)
	assert.Equal(t, pass, c.enter(1, true, kind))
	assert.Equal(t, meetFault, c.enter(1, true, kind))
	c.faultMissed(kind)
	assert.Equal(t, []Call{call}, c.unmet())
}

func TestAPhaseThatWasNotRecordedDoesNotCount(t *testing.T) {
	c := newCase(&Flow{Name: "f", Moves: true}, StopBefore, Call{}, "crash-abcdefgh")
	record := at("", "update", "record", 0)
	c.note(record, []byte(`{"phase":"Fence","began":{}}`))
	undo := c.note(record, []byte(`{"phase":"FinalSync","began":{}}`))
	assert.Equal(t, "FinalSync", c.moving.phase)
	undo()
	assert.Equal(t, "Fence", c.moving.phase)

	asked := 0
	c.moving.abort = &abortion{phase: "Fence", object: "volume", ask: func() error { asked++; return nil }}
	for _, call := range []Call{at("", "get", "volume", 0), at("", "update", "claim", 0), at("", "delete", "volume", 0),
		at("", "delete", "volume", 0)} {
		c.abortAt(call)
	}
	assert.Equal(t, 1, asked, "the user aborts at the first write of the volume, once")
	assert.True(t, c.moving.aborted)
}
