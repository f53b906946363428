package moves

import (
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/lodestone-storage/lodestone/e2e/measure"
	"github.com/lodestone-storage/lodestone/e2e/must"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// gap watches a claim and the pods of its namespace during one move.
type gap struct {
	mu sync.Mutex
	// ended is when the last pod was gone that had a node before the gate opened, opened when the gate opened.
	ended, opened time.Time
	locked        bool
}

// watchGap watches until the test ends.
func watchGap(t *testing.T, namespace, claim string) *gap {
	t.Helper()
	g := &gap{}
	core := bed.Home.Client().CoreV1()
	each := func(w watch.Interface, err error, note func(watch.Event)) {
		require.NoError(t, err)
		t.Cleanup(w.Stop)
		go func() {
			for event := range w.ResultChan() {
				g.mu.Lock()
				note(event)
				g.mu.Unlock()
			}
		}()
	}
	pods, err := core.Pods(namespace).Watch(t.Context(), metav1.ListOptions{})
	each(pods, err, func(event watch.Event) {
		if pod, ok := event.Object.(*corev1.Pod); ok && event.Type == watch.Deleted && pod.Spec.NodeName != "" && g.opened.IsZero() {
			g.ended = time.Now()
		}
	})
	claims, err := core.PersistentVolumeClaims(namespace).Watch(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=" + claim})
	each(claims, err, func(event watch.Event) {
		now, ok := event.Object.(*corev1.PersistentVolumeClaim)
		switch {
		case !ok:
		case now.Labels[keys.Moving] != "":
			g.locked = true
		case g.locked && g.opened.IsZero():
			g.opened = time.Now()
		}
	})
	return g
}

// report prints how long the claim was locked after the last pod that used it was gone: all of it is the move's own. It fails for no
// time; that no step waits long meanwhile is tested where steps are decided, TestWhilePodsStandStillNoStepWaitsLong.
func (g *gap) report(t *testing.T, done *v1alpha1.VolumeMove) {
	t.Helper()
	g.mu.Lock()
	defer g.mu.Unlock()
	require.False(t, g.ended.IsZero() || g.opened.IsZero(), "the stop was not seen")
	t.Log("to", done.Status.Target.Cluster, "downtime", done.Status.Downtime.Duration, spans(done))
	require.NoError(t, measure.Figure("from the end of the last pod to the opening of the gate, to "+done.Status.Target.Cluster,
		g.opened.Sub(g.ended).Seconds(), "s").Write(os.Stdout))
}

// requireNoAlarm checks that Kubernetes has not said of a claim that its data is lost.
func requireNoAlarm(t *testing.T, namespace, claim string) {
	t.Helper()
	events := must.List(t, bed.Home.Client().CoreV1().Events(namespace), metav1.ListOptions{
		FieldSelector: "involvedObject.kind=PersistentVolumeClaim,involvedObject.name=" + claim})
	for _, event := range events.Items {
		assert.NotContains(t, []string{"ClaimLost", "ClaimMisbound", "VolumeMismatch"}, event.Reason, event.Message)
	}
}
