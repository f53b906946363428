package kind

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/e2e/measure"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// beating has keepers of a few KiB write ten times a second since when the machine runs, which is the same in both clusters.
var beating = strings.NewReplacer("bs=64k count=64", "bs=1k count=4", "sleep 1 &", "sleep 0.1 &",
	`>>rows\n`, `>>rows\n  echo $start $(cut -d' ' -f1 /proc/uptime) >>beats\n`)

// gapBefore waits until a writer has started for the given time, and returns how many seconds there are between the last beat
// before that start and the first one after it.
func (k keepers) gapBefore(t *testing.T, start int) float64 {
	t.Helper()
	var gap float64
	eventually(t, "the writer has started again and writes", func(c *assert.CollectT) {
		pod, err := home.client.CoreV1().Pods(k.namespace).Get(t.Context(), k.pod(0), metav1.GetOptions{})
		require.NoError(c, err)
		require.True(c, pod.DeletionTimestamp == nil && pod.Status.Phase == corev1.PodRunning && isReady(pod))
		out, err := home.try(t.Context(), "", "exec", "-n", k.namespace, k.pod(0), "--", "cat", "/data/beats")
		require.NoError(c, err)
		starts, last := 0, ""
		var before float64
		for line := range strings.Lines(out) {
			fields := strings.Fields(line)
			if len(fields) != 2 {
				continue // it is being written
			}
			at, err := strconv.ParseFloat(fields[1], 64)
			require.NoError(c, err)
			if fields[0] != last {
				if starts++; starts == start {
					gap = at - before
				}
			}
			last, before = fields[0], at
		}
		require.Equal(c, start, starts)
	})
	return gap
}

// TestAMoveBesideAPlainRestart prints how long a writer to a volume of a few KiB was away for a move, and for a plain restart of its
// pod in the cluster that it went to: a move may take 3 s more. No other test runs beside.
func TestAMoveBesideAPlainRestart(t *testing.T) {
	db := keepers{namespace: namespace(t), name: "db", replicas: 1, spec: atHome}
	home.apply(t, beating.Replace(db.manifest()))
	db.unpin(t)
	starts := 2
	restart := func() float64 {
		before := db.ready(t, 1)[0]
		home.kubectl(t, "rollout", "restart", "statefulset", db.name, "-n", db.namespace)
		requireReplaced(t, before)
		starts++
		return db.gapBefore(t, starts)
	}
	there := func(cluster string) float64 {
		requireMoved(t, move(t, db.namespace, db.claim(0), cluster))
		starts++
		return db.gapBefore(t, starts)
	}
	atHome := restart()
	for _, way := range []struct {
		cluster string
		restart func() float64
	}{{"west", restart}, {keys.Home, func() float64 { return atHome }}} {
		moved := there(way.cluster)
		plain := way.restart()
		require.NoError(t, measure.Figure("writer away for a plain restart in "+way.cluster, plain, "s").Write(os.Stdout))
		require.NoError(t, measure.AtMost("writer away for a move to "+way.cluster, moved, plain+3, "s").Write(os.Stdout))
	}
}
