package kind

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/e2e/measure"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
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
// pod in the cluster that it went to: a move may take 3 s more, and where the volume has to leave a node of home first, once the time
// that detaching and attaching it takes there. No other test runs beside. With E2E_BENCH set it fails when a move took longer.
func TestAMoveBesideAPlainRestart(t *testing.T) {
	testbed.NotInShort(t)
	var results []measure.Result
	unattached := 0.0
	for _, volume := range []struct {
		name string
		db   keepers
	}{{name: "a directory"}, {name: "a disk", db: keepers{class: diskClass, size: "512Mi"}}} {
		volume.db.namespace, volume.db.name, volume.db.replicas, volume.db.spec = namespace(t), "db", 1, atHome
		var found []measure.Result
		found, unattached = besideARestart(t, volume.name, volume.db, unattached)
		results = append(results, found...)
	}
	err := measure.Conclude(os.Stdout, results)
	if os.Getenv("E2E_BENCH") != "" {
		require.NoError(t, err)
	}
}

// besideARestart moves a volume to west and back, and restarts its pod in both clusters. A plain restart at home, whose time it returns,
// takes unattached with a volume that is not attached: a disk may wait there, too, until the kubelet has told that it is used.
func besideARestart(t *testing.T, volume string, db keepers, unattached float64) (results []measure.Result, plain float64) {
	t.Helper()
	home.apply(t, beating.Replace(db.manifest()))
	db.unpin(t)
	starts := 2
	after := func(restart func()) float64 {
		before := db.ready(t, 1)[0]
		restart()
		requireReplaced(t, before)
		starts++
		return db.gapBefore(t, starts)
	}
	restart := func() { home.kubectl(t, "rollout", "restart", "statefulset", db.name, "-n", db.namespace) }
	var phases []measure.Result
	moveTo := func(cluster string) float64 {
		done := requireMoved(t, move(t, db.namespace, db.claim(0), cluster))
		phases = append(phases, phaseFigures(t, volume, done)...)
		starts++
		return db.gapBefore(t, starts)
	}
	plainHome, detaching := after(restart), 0.0
	if db.class == diskClass {
		detaching = max(after(func() { db.restartDetached(t) })-unattached, 0)
	}
	toWest := moveTo("west")
	plainWest := after(restart)
	toHome := moveTo(keys.Home)
	away := "writer to " + volume + " away for "
	return append(phases,
		measure.Figure(away+"a plain restart at home", plainHome, "s"),
		measure.Figure(away+"a plain restart in west", plainWest, "s"),
		measure.Figure(away+"detaching and attaching at home, beyond that", detaching, "s"),
		measure.AtMost(away+"a move to west", toWest, plainWest+detaching+3, "s"),
		measure.AtMost(away+"a move to home", toHome, plainHome+3, "s"),
	), plainHome
}

// phaseFigures are the phases that wait for storage and for Kubernetes: how long a move was in each of them.
func phaseFigures(t *testing.T, volume string, done *v1alpha1.VolumeMove) (found []measure.Result) {
	t.Helper()
	began := done.Status.Phases
	for i := range began[:len(began)-1] {
		if phase := began[i].Phase; phase == v1alpha1.MoveProvision || phase == v1alpha1.MoveCommit {
			found = append(found, measure.Figure(fmt.Sprintf("move of %s to %s in %s for", volume, done.Status.Target.Cluster, phase),
				began[i+1].Since.Sub(began[i].Since.Time).Seconds(), "s"))
		}
	}
	require.Len(t, found, 2)
	return found
}

// restartDetached restarts the keeper, and has its volume detached between.
func (k keepers) restartDetached(t *testing.T) {
	t.Helper()
	of := volumeOf(t, k.namespace, k.claim(0))
	home.kubectl(t, "scale", "statefulset", k.name, "-n", k.namespace, "--replicas=0")
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		attached, err := of.in.client.StorageV1().VolumeAttachments().List(t.Context(), metav1.ListOptions{})
		require.NoError(c, err)
		for _, one := range attached.Items {
			name := one.Spec.Source.PersistentVolumeName
			require.False(c, name != nil && (*name == of.real || *name == of.virtual), "%s is attached", *name)
		}
	}, long, 50*time.Millisecond)
	home.kubectl(t, "scale", "statefulset", k.name, "-n", k.namespace, "--replicas=1")
}
