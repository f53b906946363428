package replicas

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/provisioner/replicas/decide"
)

// TestWhatAnAgentWroteCountsFromWhenItWasSeenToChange: an agent that has died leaves what it wrote, and its clock may be any.
func TestWhatAnAgentWroteCountsFromWhenItWasSeenToChange(t *testing.T) {
	home := &remotev1alpha1.HomeCluster{Spec: remotev1alpha1.HomeClusterSpec{
		Probes: []remotev1alpha1.ClusterProbe{{Cluster: "west", Server: "https://192.0.2.1:6443"},
			{Cluster: "south", Server: "https://192.0.2.2"}},
	}}
	start := time.Now()
	a := &automatic{probes: map[string]*probing{"east": {failed: true}, "west": {}, "none": {}}}
	east := a.probes["east"]
	answering := []string{"east", "none", "unknown", "west"}
	says := func(after time.Duration, want ...decide.Probe) {
		t.Helper()
		assert.Equal(t, want, a.probesOf("west", answering, start.Add(after)))
	}
	reads := func(after time.Duration, answers bool, written int64) {
		home.Status.Probes = []remotev1alpha1.ProbeResult{{Cluster: "west", Answers: answers, LastProbe: metav1.Unix(written, 0)},
			{Cluster: "gone", Answers: true}}
		east.failed, east.found = false, east.next(home, start.Add(after))
	}
	says(0, decide.Probe{By: "east"}) // It could not be asked.

	east.failed, east.found = false, east.next(home, start)
	says(0, decide.Probe{By: "east"}) // It is to probe, and has not yet.
	reads(time.Second, false, 9000)
	says(time.Second, decide.Probe{By: "east", Fresh: true}) // The first result was seen to come.

	// A home that has just started finds what was written at some time.
	east.found = nil
	reads(2*time.Second, false, 9000)
	says(2*time.Second, decide.Probe{By: "east"})
	reads(20*time.Second, false, 20) // A clock that was set back.
	says(21*time.Second, decide.Probe{By: "east", Fresh: true})
	reads(50*time.Second, false, 20)
	says(79*time.Second, decide.Probe{By: "east", Fresh: true})
	says(81*time.Second, decide.Probe{By: "east"})
	reads(90*time.Second, true, 40)
	says(3*time.Hour, decide.Probe{By: "east", Answers: true})
	east.failed = true
	says(3*time.Hour, decide.Probe{By: "east"})

	home.Spec.Probes = nil
	reads(4*time.Hour, true, 50)
	says(4 * time.Hour)
	assert.Empty(t, a.probesOf("south", answering, start))
}
