package snapshot

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
)

func use(node string, claims int) Use {
	made := Use{Node: node}
	for i := range claims {
		made.Claims = append(made.Claims, fmt.Sprintf("app/claim-%d", i))
	}
	return made
}

// The peak spares a look at the volumes of each node, so it must be no higher than
// what nodes really have, and never lower.
func TestPeakFollowsTheNodesThatHaveALimit(t *testing.T) {
	s := New()
	s.Limits.Set("node", Limits{"disk": 25})
	s.InFlight.Set("app/invented", use("invented", 30))
	assert.Equal(t, 0, s.InFlight.atMost(), "whoever makes claims can name a node that does not exist")
	s.InFlight.Set("app/a", use("node", 3))
	assert.Equal(t, 3, s.InFlight.atMost())
	s.Limits.Set("invented", Limits{"disk": 25})
	assert.Equal(t, 30, s.InFlight.atMost(), "its limit becomes known")
	s.InFlight.Set("app/invented", use("invented", 2))
	assert.Equal(t, 3, s.InFlight.atMost(), "the node that had most has less")
	s.InFlight.Delete("app/a")
	assert.Equal(t, 2, s.InFlight.atMost())
	s.Limits.Delete("invented")
	assert.Equal(t, 0, s.InFlight.atMost())

	s.Limits.Replace(map[string]Limits{"invented": {"disk": 25}, "other": {"disk": 25}})
	assert.Equal(t, 2, s.InFlight.atMost())
	s.InFlight.Replace(map[string]Use{"app/a": use("node", 9), "app/b": use("other", 4)})
	assert.Equal(t, 4, s.InFlight.atMost(), "node has no limit any more")
	s.Limits.Replace(map[string]Limits{"node": {"disk": 25}})
	assert.Equal(t, 9, s.InFlight.atMost())
	s.InFlight.Replace(nil)
	assert.Equal(t, 0, s.InFlight.atMost())
	assert.Equal(t, 0, s.Assigned.atMost())
}
