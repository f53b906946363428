package crash

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lodestone-storage/lodestone/e2e/mover/harness"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
)

// A fixed choice of what `make crash` sweeps.
func TestSampleOfTheCrashSweepSurvives(t *testing.T) {
	testbed.Require(t)
	// Of imports e2e/plugin has some.
	swept := slices.DeleteFunc(Flows(), func(f Flow) bool { return f.Of == Plugin })
	o := Options{Sample: true}
	for _, f := range swept {
		o.Flows = append(o.Flows, f.Name)
	}
	outcomes, err := world.Sweep(t.Context(), o)
	require.NoError(t, err)
	require.NoError(t, Print(os.Stderr, outcomes))
	flows, faults := map[string]bool{}, map[Fault]bool{}
	for _, o := range outcomes {
		require.NoError(t, o.Err, o.String())
		if o.Met {
			flows[o.Flow], faults[o.Fault] = true, true
		}
	}
	for _, f := range swept {
		assert.Contains(t, flows, f.Name, "no fault was met in this flow")
	}
	for _, f := range Faults() {
		assert.Contains(t, faults, f, "this fault was met in no flow")
	}
}

// A fixed choice of what `make crash-move` sweeps. It takes control planes of its own and
// dozens of moves, so it runs with E2E_LONG alone.
func TestSampleOfTheCrashSweepOfMovesSurvives(t *testing.T) {
	testbed.Require(t)
	harness.Require(t)
	if os.Getenv("E2E_LONG") == "" {
		t.Skip("it takes ten minutes: set E2E_LONG")
	}
	moves, err := NewMovesWorld(t.Context(), func(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) })
	require.NoError(t, err)
	defer moves.Stop()
	outcomes, err := moves.Sweep(t.Context(),
		Options{Sample: true, AtOnce: 6, Flows: []string{"move-home", "move-group", "move-abort-final", "move-rollback"}})
	require.NoError(t, err)
	require.NoError(t, Print(os.Stderr, outcomes))
	require.NotEmpty(t, outcomes)
	for _, o := range outcomes {
		require.NoError(t, o.Err, o.String())
	}
}

// world is nil without control planes, so that tests get as far as to skip.
var world *World

func TestMain(m *testing.M) {
	testbed.Main(m, func(ctx context.Context) (err error) {
		world, err = NewWorld(ctx, func(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) })
		return err
	})
}

func TestAllThatACommandAsksCounts(t *testing.T) {
	var got []string
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = append(got, r.URL.Path) }))
	defer server.Close()
	target, err := url.Parse(server.URL)
	require.NoError(t, err)
	l := newLedger()
	c := newCase(&Flow{Name: "f", Of: Plugin}, StopBefore, Call{Cluster: "home", Verb: "list", Object: "real-volume", Nth: 1},
		"crash-abcdefgh")
	l.add(c)
	c.act(nil)
	w := &way{gate: &gate{number: 1, ledger: l}, cluster: "home", target: target, transport: http.DefaultTransport}
	w.proxy = newProxy(target, http.DefaultTransport)
	killed := false
	c.setKill(func() { killed = true })
	ask := func(method, path string) (aborted bool) {
		defer func() { aborted = recover() != nil }()
		w.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(method, path, strings.NewReader("{}")))
		return false
	}
	const of = administered + "crash-abcdefgh"
	assert.False(t, ask("GET", of+"/apis/remote.lodestone.dev/v1alpha1"))
	assert.False(t, ask("POST", of+"/api/v1/namespaces/crash-abcdefgh/persistentvolumeclaims?dryRun=All"))
	assert.False(t, killed)
	assert.True(t, ask("GET", of+"/api/v1/persistentvolumes"))
	assert.True(t, killed && c.faultHappened())
	assert.True(t, ask("GET", of+"/api/v1/nodes"), "it was killed")
	assert.Equal(t, []string{"/apis/remote.lodestone.dev/v1alpha1", "/api/v1/namespaces/crash-abcdefgh/persistentvolumeclaims"}, got)
	var made []string
	for _, call := range c.made() {
		made = append(made, call.String())
	}
	assert.Equal(t, []string{"home/get/discovery/1", "home/create/claim.trial/1", "home/list/real-volume/1"}, made)
}

func TestEachFlowIsSweptInAWorldThatSuitsIt(t *testing.T) {
	flows := func(o Options, one string, moves bool) (all [][]string) {
		parts, err := Split(o, one, moves)
		require.NoError(t, err)
		for _, part := range parts {
			all = append(all, part.Flows)
		}
		return all
	}
	every := flows(Options{}, "", false)
	require.Len(t, every, 2)
	assert.Contains(t, every[0], "import-remote")
	assert.Equal(t, []string{"agent-heal", "agent-heal-namespace"}, every[1])
	every = flows(Options{}, "", true)
	require.Len(t, every, 2)
	assert.Contains(t, every[0], "move-store")
	assert.Equal(t, []string{"move-between"}, every[1])
	assert.Equal(t, [][]string{{"delete-local"}, {"agent-heal"}}, flows(Options{Flows: []string{"agent-heal", "delete-local"}}, "", false))
	assert.Equal(t, [][]string{{"agent-heal"}}, flows(Options{}, "agent-heal,lost,west/get/shadow/1", false))
	assert.Equal(t, [][]string{{"move-between"}}, flows(Options{}, "move-between,lost,reads", true))
	_, err := Split(Options{Flows: []string{"none"}}, "", false)
	require.ErrorContains(t, err, "none")
	_, err = Split(Options{Flows: []string{"move-out"}}, "", false)
	assert.ErrorContains(t, err, "make crash-move")
}
