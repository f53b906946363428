package app_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lodestone-storage/lodestone/extender/app"
)

// Only a preference needs to know how much room there is.
func TestRunIsReadyWhereRoomMayNotBeRead(t *testing.T) {
	api := newAPIServer(t)
	api.remove(roomPath)
	r := startWith(t, api, func(config *app.Config) { config.MaxStaleness = 200 * time.Millisecond })
	r.waitUntilReady()
	require.Eventually(t, func() bool {
		_, metrics := r.get("/metrics")
		return strings.Contains(metrics, `lodestone_extender_watch_connected{kind="csistoragecapacities"} 0`)
	}, soon, 10*time.Millisecond, "it can be seen")
	time.Sleep(2 * 200 * time.Millisecond)
	_, body := r.get("/readyz")
	assert.Equal(t, "ok\n", body)
}
