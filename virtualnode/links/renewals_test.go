package links

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestAClockThatIsWrongPartsNothing(t *testing.T) {
	for name, wrong := range map[string]time.Duration{"an hour late": -time.Hour, "an hour early": time.Hour, "right": 0} {
		t.Run(name, func(t *testing.T) {
			var r renewals
			remote := side("w1", "10.2.0.9")
			round := func(at, written time.Duration) string {
				home := side("h1", "10.1.0.9")
				home.Status.Gateways[0].RenewTime = metav1.NewTime(now.Add(wrong + written))
				home.Status.Probes[0].RenewTime = metav1.NewTime(now.Add(wrong + written))
				seen := r.local("west", home, now.Add(at))
				assert.Equal(t, metav1.NewTime(now.Add(wrong+written)), home.Status.Probes[0].RenewTime, "what was read is not changed")
				return ready("west", terms{}, seen, remote, now.Add(at)).Reason
			}
			first := round(0, -time.Second)
			if wrong == -time.Hour {
				assert.Equal(t, "NoGateway", first, "it may be as old as it says")
			} else {
				assert.Equal(t, "Probed", first)
			}
			for at := 3 * time.Second; at < time.Minute; at += 3 * time.Second {
				reason := round(at, at.Truncate(20*time.Second))
				if at > 20*time.Second {
					assert.Equal(t, "Probed", reason, at)
				}
			}
			assert.Equal(t, "Probed", round(100*time.Second, 40*time.Second), "seen to be renewed 58 seconds ago")
			assert.Equal(t, "NotProbed", round(103*time.Second, 40*time.Second), "nobody probes any more")
			assert.Equal(t, "NoGateway", round(20*time.Minute, 40*time.Second))
		})
	}
}

func TestOfLinksThatAreGoneNothingIsRemembered(t *testing.T) {
	var r renewals
	r.local("west", side("h1", "10.1.0.9"), now)
	assert.Len(t, r.seen, 1)
	assert.Nil(t, r.local("west", nil, now))
	assert.Empty(t, r.seen)
}
