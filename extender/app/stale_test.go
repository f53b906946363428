package app_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lodestone-storage/lodestone/extender/app"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

func TestRunAnswersFromWhatItKnewDuringAnOutage(t *testing.T) {
	api := newAPIServer(t)
	claim, volume := dataIn("west")
	api.set(claimsPath, claim)
	api.set(volumesPath, volume)
	api.set(nodesPath, node("home-1", keys.Home), node("west", "west"))
	api.set(namespacesPath, opened("app"))
	r := startWith(t, api, func(config *app.Config) { config.MaxStaleness = 200 * time.Millisecond })
	r.waitUntilReady()
	assert.Equal(t, []string{"west"}, r.filter("home-1", "west"))
	_, explanation := r.get("/explain?namespace=app&pod=web")
	assert.NotContains(t, explanation, `"stale"`)

	api.remove(volumesPath)
	api.CloseClientConnections()
	require.Eventually(t, func() bool {
		code, body := r.get("/readyz")
		return code == http.StatusServiceUnavailable && strings.HasPrefix(body, "not ready: persistentvolumes cannot be watched for ")
	}, soon, 10*time.Millisecond)
	code, body := r.get("/readyz/serving")
	assert.Equal(t, http.StatusOK, code, "its Service must not drop it: "+body)
	require.Eventually(t, func() bool {
		kept := r.filter("home-1", "west")
		_, explanation := r.get("/explain?namespace=app&pod=web")
		return assert.ObjectsAreEqual([]string{"west"}, kept) && strings.Contains(explanation, `"stale": "1s"`)
	}, soon, 50*time.Millisecond, "an explanation says that it is from old knowledge")
	require.Eventually(t, func() bool {
		_, metrics := r.get("/metrics")
		return strings.Contains(metrics, `lodestone_extender_watch_connected{kind="persistentvolumes"} 0`) &&
			strings.Contains(metrics, `lodestone_extender_watch_connected{kind="nodes"} 1`)
	}, soon, 10*time.Millisecond, "only one kind is affected")

	// What changed in the meantime is known before the program is ready again.
	_, moved := dataIn(keys.Home)
	moved.ResourceVersion = "2"
	api.set(volumesPath, moved)
	r.waitUntilReady()
	assert.Equal(t, []string{"home-1"}, r.filter("home-1", "west"))
	_, explanation = r.get("/explain?namespace=app&pod=web")
	decisions := strings.Split(explanation, `"time"`)
	assert.NotContains(t, decisions[len(decisions)-1], `"stale"`)
}
