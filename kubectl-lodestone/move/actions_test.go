package move

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/cli"
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

func TestTheMoveThatAUserMeans(t *testing.T) {
	at := func(name string, minute int, phase v1alpha1.MovePhase, conditions ...metav1.Condition) v1alpha1.VolumeMove {
		move := *moveIn(phase)
		move.Name, move.Spec.Claims = name, []string{"data", "wal"}
		move.CreationTimestamp = metav1.NewTime(time.Unix(int64(minute)*60, 0))
		move.Status.Conditions = conditions
		return move
	}
	ofOther := func(move v1alpha1.VolumeMove) v1alpha1.VolumeMove {
		move.Spec.Claims = []string{"log"}
		return move
	}
	committed := metav1.Condition{Type: v1alpha1.MoveCommitted, Status: metav1.ConditionTrue}
	notAccepted := metav1.Condition{Type: v1alpha1.MoveAccepted, Status: metav1.ConditionFalse, Message: "no"}
	for name, row := range map[string]struct {
		moves []v1alpha1.VolumeMove
		means cli.Reference
		want  string
		says  string
	}{
		"the one that runs, whatever was refused since": {
			moves: []v1alpha1.VolumeMove{at("runs", 1, v1alpha1.MovePreCopy), at("typo", 2, v1alpha1.MoveFailed, notAccepted)},
			means: cli.Reference{Name: "data"}, want: "runs",
		},
		"the one that runs, whatever was committed before": {
			moves: []v1alpha1.VolumeMove{at("kept", 1, v1alpha1.MoveRetain, committed), at("runs", 2, v1alpha1.MovePreCopy)},
			means: cli.Reference{Kind: cli.Claim, Name: "wal"}, want: "runs",
		},
		"one that nobody has looked at yet": {
			moves: []v1alpha1.VolumeMove{at("new", 2, ""), at("kept", 1, v1alpha1.MoveRetain, committed)},
			means: cli.Reference{Name: "data"}, want: "new",
		},
		"the one that was committed, whatever failed since": {
			moves: []v1alpha1.VolumeMove{at("kept", 1, v1alpha1.MoveRetain, committed), at("failed", 2, v1alpha1.MoveFailed)},
			means: cli.Reference{Name: "data"}, want: "kept",
		},
		"the latest of those that were committed": {
			moves: []v1alpha1.VolumeMove{at("later", 2, v1alpha1.MoveRetain, committed), at("first", 1, v1alpha1.MoveDone, committed)},
			means: cli.Reference{Name: "data"}, want: "later",
		},
		"the latest of those of which nothing is kept": {
			moves: []v1alpha1.VolumeMove{at("later", 2, v1alpha1.MoveDone, committed), at("first", 1, v1alpha1.MoveDone, committed)},
			means: cli.Reference{Name: "data"}, want: "later",
		},
		"the failover that keeps a snapshot, although the claim is back": {
			moves: []v1alpha1.VolumeMove{at("failover", 1, v1alpha1.MoveRetain, committed), at("failback", 2, v1alpha1.MoveDone, committed)},
			means: cli.Reference{Name: "data"}, want: "failover",
		},
		"the latest, if all are over": {
			moves: []v1alpha1.VolumeMove{at("first", 1, v1alpha1.MoveAborted), at("later", 2, v1alpha1.MoveFailed)},
			means: cli.Reference{Name: "data"}, want: "later",
		},
		"two that go on": {
			moves: []v1alpha1.VolumeMove{at("b", 1, v1alpha1.MovePreCopy), at("a", 2, "")},
			means: cli.Reference{Name: "data"}, says: `claim "data" has several moves under way: name one of a, b`,
		},
		"a name of a move": {
			moves: []v1alpha1.VolumeMove{at("x", 1, v1alpha1.MoveFailed), at("runs", 2, v1alpha1.MovePreCopy)},
			means: cli.Reference{Name: "x"}, want: "x",
		},
		"the one that runs, although one that is over has the name of the claim": {
			moves: []v1alpha1.VolumeMove{at("data", 1, v1alpha1.MoveFailed), at("runs", 2, v1alpha1.MovePreCopy)},
			means: cli.Reference{Name: "data"}, want: "runs",
		},
		"the one that runs and has the name of a claim": {
			moves: []v1alpha1.VolumeMove{at("data", 1, v1alpha1.MovePreCopy), at("over", 2, v1alpha1.MoveFailed)},
			means: cli.Reference{Name: "data"}, want: "data",
		},
		"a move that is meant by its kind, whatever runs": {
			moves: []v1alpha1.VolumeMove{at("data", 1, v1alpha1.MoveFailed), at("runs", 2, v1alpha1.MovePreCopy)},
			means: cli.Reference{Kind: cli.Move, Name: "data"}, want: "data",
		},
		"two that are over, by name and by claim": {
			moves: []v1alpha1.VolumeMove{at("data", 1, v1alpha1.MoveFailed), at("later", 2, v1alpha1.MoveDone, committed)},
			means: cli.Reference{Name: "data"},
			says:  `"data" names a VolumeMove, and a claim that VolumeMove later moves: write volumemove/data or pvc/data`,
		},
		"one of another claim that runs, and one of the claim that does": {
			moves: []v1alpha1.VolumeMove{ofOther(at("data", 1, v1alpha1.MovePreCopy)), at("runs", 2, v1alpha1.MovePreCopy)},
			means: cli.Reference{Name: "data"},
			says:  `"data" names a VolumeMove, and a claim that VolumeMove runs moves: write volumemove/data or pvc/data`,
		},
		"unless a claim is meant": {
			moves: []v1alpha1.VolumeMove{at("data", 1, v1alpha1.MoveFailed), at("runs", 2, v1alpha1.MovePreCopy)},
			means: cli.Reference{Kind: cli.Claim, Name: "data"}, want: "runs",
		},
		"a move, not a claim": {
			moves: []v1alpha1.VolumeMove{at("runs", 2, v1alpha1.MovePreCopy)}, means: cli.Reference{Kind: cli.Move, Name: "data"},
		},
		"another claim": {moves: []v1alpha1.VolumeMove{at("runs", 2, v1alpha1.MovePreCopy)}, means: cli.Reference{Name: "logs"}},
	} {
		t.Run(name, func(t *testing.T) {
			move, err := choose(row.moves, row.means, rank)
			switch {
			case row.says != "":
				require.ErrorContains(t, err, row.says)
			case row.want == "":
				require.NoError(t, err)
				assert.Nil(t, move)
			default:
				require.NoError(t, err)
				require.NotNil(t, move)
				assert.Equal(t, row.want, move.Name)
			}
		})
	}
}
