package healing

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lodestone-storage/lodestone/remoteagent/policy"
)

func TestWhatIsToldOfAVolume(t *testing.T) {
	metrics, err := NewMetrics(prometheus.NewRegistry())
	require.NoError(t, err)
	told, now := newTold(metrics.unhealed), time.Unix(1_000_000, 0)
	count := func(reason string) int { return int(testutil.ToFloat64(metrics.unhealed.WithLabelValues(reason))) }
	quota, taken := policy.Refusal{Reason: "NotHealed", Message: "quota"}, policy.Refusal{Reason: "NameTaken", Message: "name"}

	assert.True(t, told.news("a", quota, now))
	assert.False(t, told.news("a", quota, now.Add(59*time.Minute)), "not the same again")
	assert.True(t, told.news("a", quota, now.Add(61*time.Minute)), "but when its event is gone")
	assert.False(t, told.news("a", quota, now.Add(90*time.Minute)))
	assert.True(t, told.news("b", quota, now), "each volume has its own")
	assert.Equal(t, 2, count("NotHealed"))
	assert.True(t, told.news("a", taken, now), "what is new is told")
	assert.Equal(t, 1, count("NotHealed"))
	assert.Equal(t, 1, count("NameTaken"))
	told.forget("a")
	told.forget("a")
	told.forget("unknown")
	assert.Equal(t, 0, count("NameTaken"))
	assert.Equal(t, 1, count("NotHealed"))
	assert.True(t, told.news("a", taken, now), "after it was forgotten it is news")
}
