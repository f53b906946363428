package stale_test

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/must"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
)

// boundInWest makes a claim with its data in west and waits until the extender
// knows.
func boundInWest(t *testing.T, namespace string) {
	t.Helper()
	bind(t, makeClaim(t, namespace, "early"))
	awaitOnlyWest(t, namespace, "early")
}

func awaitOnlyWest(t *testing.T, namespace, claim string) {
	t.Helper()
	await.Until(t, "the extender knows where the data of claim "+claim+" is", func() bool {
		return assert.ObjectsAreEqual([]string{westNode}, nodesFor(t, namespace, claim))
	}, func() any { return explained(t, namespace, claim) })
}

func TestRestartOfTheAPIServer(t *testing.T) {
	testbed.Require(t)
	namespace := newNamespace(t)
	boundInWest(t, namespace)
	assert.NotContains(t, explained(t, namespace, "early"), `"stale"`)

	require.NoError(t, bed.StopAPIServer(t.Context()))
	awaitNotReady(t, "")
	assert.Equal(t, []string{westNode}, nodesFor(t, namespace, "early"), "data does not move while nobody looks")
	assert.Contains(t, explained(t, namespace, "early"), `"stale"`)
	_, metrics := get(t, "/metrics")
	assert.Contains(t, metrics, `lodestone_extender_watch_connected{kind="persistentvolumes"} 0`)
	code, _ := get(t, "/healthz")
	assert.Equal(t, http.StatusOK, code, "a restart would only lose what is known")
	code, body := get(t, "/readyz/serving")
	assert.Equal(t, http.StatusOK, code, "all replicas are as blind, and callers are better off with one than with none: "+body)

	require.NoError(t, bed.StartAPIServer(t.Context()))
	awaitReady(t)
	assert.Equal(t, []string{westNode}, nodesFor(t, namespace, "early"))
	bind(t, makeClaim(t, namespace, "later"))
	awaitOnlyWest(t, namespace, "later")
	_, metrics = get(t, "/metrics")
	assert.Contains(t, metrics, `lodestone_extender_watch_connected{kind="persistentvolumes"} 1`)
	assert.Contains(t, metrics, `lodestone_extender_snapshot_age_seconds{kind="persistentvolumes"} 0`)
}

func TestClaimThatBindsDuringAGap(t *testing.T) {
	for name, gap := range map[string]func(){
		"the network is cut":                           func() { bed.line.HangUp(true) },
		"connections stay open and carry nothing more": func() { bed.line.Freeze() },
	} {
		t.Run(name, func(t *testing.T) {
			testbed.Require(t)
			namespace := newNamespace(t)
			boundInWest(t, namespace)
			late := makeClaim(t, namespace, "late")
			await.Until(t, "the extender knows the claim", func() bool { return len(nodesFor(t, namespace, "late")) == 2 })

			gap()
			bind(t, late)
			awaitNotReady(t, "")
			assert.Equal(t, []string{westNode}, nodesFor(t, namespace, "early"))
			// kube-scheduler's own filter keeps the pod to where the volume is.
			assert.Equal(t, []string{homeNode, westNode}, nodesFor(t, namespace, "late"))
			assert.Contains(t, explained(t, namespace, "late"), `"stale"`)

			bed.line.Mend()
			awaitReady(t)
			awaitOnlyWest(t, namespace, "late")
			assert.Equal(t, []string{westNode}, nodesFor(t, namespace, "early"))
		})
	}
}

func TestRightsThatAreTakenAway(t *testing.T) {
	testbed.Require(t)
	namespace := newNamespace(t)
	boundInWest(t, namespace)
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
	bed.line.HangUp(false)
	awaitNotReady(t, "persistentvolumes")
	assert.Equal(t, []string{westNode}, nodesFor(t, namespace, "early"))

	require.NoError(t, json.Unmarshal(given, &role.Rules))
	must.Update(t, roles, role)
	awaitReady(t)
	bind(t, makeClaim(t, namespace, "later"))
	awaitOnlyWest(t, namespace, "later")
}
