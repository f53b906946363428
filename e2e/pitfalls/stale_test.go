package pitfalls

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/faultynetwork"
	"github.com/lodestone-storage/lodestone/e2e/must"
	"github.com/lodestone-storage/lodestone/extender/app"
)

// These tests are about an extender that cannot see what happens in the cluster: it answers from what it knew, says so, and catches up
// by itself.

// watcher is an extender that a line joins to the API server.
type watcher struct {
	*extender
	*shop
	line  *faultynetwork.Line
	verbs string
}

// newWatcher runs an extender, and has it know a claim "early" with its data in west. It is ready before and after the test.
func newWatcher(t *testing.T) *watcher {
	t.Helper()
	w := &watcher{verbs: address(t), shop: newShop(t, open)}
	w.extender = runExtender(t, w.verbs, "lodestone-extender", func(c *app.Config) {
		c.MaxStaleness = time.Second
		var err error
		w.line, err = faultynetwork.New(t.Context(), strings.TrimPrefix(c.Home.Host, "https://"))
		require.NoError(t, err)
		c.Home.Host = w.line.URL()
	})
	t.Cleanup(w.line.Mend)
	w.dataIn("early", west)
	w.awaitOnlyWest("early")
	return w
}

func (w *watcher) get(path string) (int, string) {
	w.t.Helper()
	return get(w.t, w.status+path)
}

func (w *watcher) awaitReady() {
	w.t.Helper()
	await.Until(w.t, "the extender is ready", func() bool {
		code, _ := w.get("/readyz")
		return code == http.StatusOK
	}, func() any { _, body := w.get("/readyz"); return body })
}

// awaitNotReady waits until the extender says that a kind, any if it is empty, is out
// of sight.
func (w *watcher) awaitNotReady(kind string) {
	w.t.Helper()
	await.Until(w.t, "the extender is not ready", func() bool {
		code, body := w.get("/readyz")
		return code == http.StatusServiceUnavailable && strings.Contains(body, kind+" cannot be watched for ")
	}, func() any { _, body := w.get("/readyz"); return body })
}

// nodesFor returns the nodes that the extender keeps for a pod with a claim.
func (w *watcher) nodesFor(claim string) []string {
	w.t.Helper()
	pod := newPod("pod-of-"+claim, claim)
	pod.Namespace = w.name
	var result extenderv1.ExtenderFilterResult
	ask(w.t, http.DefaultClient, "http://"+w.verbs+"/filter",
		extenderv1.ExtenderArgs{Pod: pod, NodeNames: &[]string{homeNodes[0], westNode}}, &result)
	require.Empty(w.t, result.Error)
	require.NotNil(w.t, result.NodeNames)
	return *result.NodeNames
}

// explained returns the last decision on the pod of a claim.
func (w *watcher) explained(claim string) string {
	w.t.Helper()
	code, body := w.get("/explain?namespace=" + w.name + "&pod=pod-of-" + claim)
	require.Equal(w.t, http.StatusOK, code, body)
	return body
}

func (w *watcher) awaitOnlyWest(claim string) {
	w.t.Helper()
	await.Until(w.t, "the extender knows where the data of claim "+claim+" is", func() bool {
		return assert.ObjectsAreEqual([]string{westNode}, w.nodesFor(claim))
	}, func() any { return w.explained(claim) })
}

func TestRestartOfTheAPIServer(t *testing.T) {
	w := newWatcher(t)
	assert.NotContains(t, w.explained("early"), `"stale"`)

	require.NoError(t, bed.StopAPIServer(t.Context()))
	w.awaitNotReady("")
	assert.Equal(t, []string{westNode}, w.nodesFor("early"), "data does not move while nobody looks")
	assert.Contains(t, w.explained("early"), `"stale"`)
	_, metrics := w.get("/metrics")
	assert.Contains(t, metrics, `lodestone_extender_watch_connected{kind="persistentvolumes"} 0`)
	code, _ := w.get("/healthz")
	assert.Equal(t, http.StatusOK, code, "a restart would only lose what is known")
	code, body := w.get("/readyz/serving")
	assert.Equal(t, http.StatusOK, code, "all replicas are as blind, and callers are better off with one than with none: "+body)

	require.NoError(t, bed.StartAPIServer(t.Context()))
	w.awaitReady()
	assert.Equal(t, []string{westNode}, w.nodesFor("early"))
	w.dataIn("later", west)
	w.awaitOnlyWest("later")
	_, metrics = w.get("/metrics")
	assert.Contains(t, metrics, `lodestone_extender_watch_connected{kind="persistentvolumes"} 1`)
	assert.Contains(t, metrics, `lodestone_extender_snapshot_age_seconds{kind="persistentvolumes"} 0`)
}

func TestClaimThatBindsDuringAGap(t *testing.T) {
	for name, gap := range map[string]func(*faultynetwork.Line){
		"the network is cut":                           func(line *faultynetwork.Line) { line.HangUp(true) },
		"connections stay open and carry nothing more": (*faultynetwork.Line).Freeze,
	} {
		t.Run(name, func(t *testing.T) {
			w := newWatcher(t)
			late := w.claim("late", nil)
			await.Until(t, "the extender knows the claim", func() bool { return len(w.nodesFor("late")) == 2 })

			gap(w.line)
			w.bind(late, west)
			w.awaitNotReady("")
			assert.Equal(t, []string{westNode}, w.nodesFor("early"))
			// kube-scheduler's own filter keeps the pod to where the volume is.
			assert.Equal(t, []string{homeNodes[0], westNode}, w.nodesFor("late"))
			assert.Contains(t, w.explained("late"), `"stale"`)

			w.line.Mend()
			w.awaitReady()
			w.awaitOnlyWest("late")
			assert.Equal(t, []string{westNode}, w.nodesFor("early"))
		})
	}
}

func TestRightsThatAreTakenAway(t *testing.T) {
	w := newWatcher(t)
	roles := bed.Client().RbacV1().ClusterRoles()
	role := must.Get(t, roles, "lodestone-extender")
	given, err := json.Marshal(role.Rules)
	require.NoError(t, err)
	for i, rule := range role.Rules {
		for j, resource := range rule.Resources {
			if resource == "persistentvolumes" {
				role.Rules[i].Resources[j] = "nothing"
			}
		}
	}
	role = must.Update(t, roles, role)
	// A watch that goes on keeps its right until it ends.
	w.line.HangUp(false)
	w.awaitNotReady("persistentvolumes")
	assert.Equal(t, []string{westNode}, w.nodesFor("early"))

	require.NoError(t, json.Unmarshal(given, &role.Rules))
	must.Update(t, roles, role)
	w.awaitReady()
	w.dataIn("later", west)
	w.awaitOnlyWest("later")
}
