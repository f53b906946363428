package move

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

func TestAClusterIsGivenUpOnlyIfItIsAway(t *testing.T) {
	now := time.Now()
	seen := func(status metav1.ConditionStatus, ago time.Duration) *v1alpha1.RemoteCluster {
		return &v1alpha1.RemoteCluster{Status: v1alpha1.RemoteClusterStatus{Conditions: []metav1.Condition{
			{Type: v1alpha1.Reachable, Status: status, LastTransitionTime: metav1.NewTime(now.Add(-ago))},
		}}}
	}
	for name, row := range map[string]struct {
		remote  *v1alpha1.RemoteCluster
		problem string
	}{
		"it was removed":            {nil, ""},
		"it is long away":           {seen(metav1.ConditionFalse, 2*time.Hour), ""},
		"it went away just now":     {seen(metav1.ConditionFalse, time.Minute), "short outage"},
		"it answers":                {seen(metav1.ConditionTrue, 2*time.Hour), "answers"},
		"nobody knows":              {seen(metav1.ConditionUnknown, 2*time.Hour), "not known"},
		"nobody has looked at that": {&v1alpha1.RemoteCluster{}, "not known"},
	} {
		err := checkGone("west", row.remote, time.Hour, now)
		if row.problem == "" {
			assert.NoError(t, err, name)
		} else {
			require.Error(t, err, name)
			assert.Contains(t, err.Error(), row.problem, name)
		}
	}
}

func TestWhatAMoveNeedsAndLeaves(t *testing.T) {
	from := func(source, target string, phase v1alpha1.MovePhase) *v1alpha1.VolumeMove {
		move := moveIn(phase)
		move.Status.Claims = []v1alpha1.MovedClaim{{Name: "data", Source: &v1alpha1.MovePlace{Cluster: source},
			Target: &v1alpha1.MovePlace{Cluster: target}}}
		return move
	}
	for name, row := range map[string]struct {
		move  *v1alpha1.VolumeMove
		needs []string
		says  string
	}{
		"out, before commit":  {from(keys.Home, "west", v1alpha1.MoveRollBack), []string{"west"}, "stay at the source"},
		"out, in commit":      {from(keys.Home, "west", v1alpha1.MoveCommit), []string{"west"}, "go on at the source"},
		"on, in commit":       {from("east", "west", v1alpha1.MoveCommit), []string{"west", "east"}, "go on at the source"},
		"out, after it":       {from(keys.Home, "west", v1alpha1.MoveRetain), nil, ""},
		"home, before commit": {from("west", keys.Home, v1alpha1.MoveFinalSync), []string{"west"}, "lost with it"},
		"home, after it":      {from("west", keys.Home, v1alpha1.MoveFinalize), []string{"west"}, "was kept there"},
		"on, before commit":   {from("east", "west", v1alpha1.MovePreCopy), []string{"west", "east"}, "stay at the source"},
		"on, after it":        {from("east", "west", v1alpha1.MoveRetain), []string{"east"}, "was kept there"},
		"within":              {from("west", "west", v1alpha1.MovePreCopy), []string{"west"}, "lost with it"},
	} {
		assert.Equal(t, row.needs, clustersNeeded(row.move), name)
		if len(row.needs) > 0 {
			assert.Contains(t, consequences(row.move, row.needs[0]), row.says, name)
		}
	}
	assert.NotEmpty(t, whyForbidden(moveIn(v1alpha1.MoveAborted), v1alpha1.ActionGiveUp), "it is over")
}
