package decide_test

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/pkg/backing"
	"github.com/lodestone-storage/lodestone/provisioner/copying/movers"
	"github.com/lodestone-storage/lodestone/provisioner/replicas/decide"
	"github.com/lodestone-storage/lodestone/provisioner/replicas/record"
)

// lostWorld has clusters of the source be lost: the claims fail over to another copy, in another cluster, and go on there.
type lostWorld struct {
	// at is the cluster that the claims are in, away are those that do not answer.
	at   string
	away map[string]bool
	// left is what points have left, by their number.
	left map[int64]*decide.Observation
	n    int
}

// useLost has clusters be lost.
func (w *world) useLost() {
	w.lost = &lostWorld{at: "home", away: map[string]bool{}, left: map[int64]*decide.Observation{}}
}

// happenLost loses a cluster, or has it come back, and shows what is left there.
func (w *world) happenLost() {
	l, o := w.lost, &w.o
	maps.DeleteFunc(l.away, func(string, bool) bool { return !w.failing || w.random.IntN(100) == 0 })
	if w.failing && len(l.away) == 0 && w.random.IntN(100) == 0 {
		l.away[l.at] = true
		l.at = map[string]string{"home": "east", "east": "home"}[l.at]
		o.FailedOver = o.Now
	}
	if o.At, o.Left = l.at, nil; o.Record == nil {
		return
	}
	if p := o.Record.Point; p != nil && l.away[p.Source.Cluster] {
		o.Source.Unusable = "lost"
	}
	for i := range o.Record.Left {
		left := l.left[o.Record.Left[i].Number]
		left.Now, left.Record, left.Source = o.Now, o.Record.OfLeft(i), decide.Cluster{}
		for i := range left.Claims {
			w.live(&left.Claims[i], &content{})
		}
		w.age(&left.Group.Snapshot)
		if left.Record.Point.Group != nil {
			for i := range left.Claims {
				left.Claims[i].Snapshot = left.Group.Snapshot
			}
		}
		if l.away[left.Record.Point.Source.Cluster] {
			left.Source.Unusable = "lost"
		}
		if o.Left == nil || o.Left.Source.Unusable != "" {
			o.Left = left
		}
	}
}

// saveLost has what there is of a point at its source stay where it is once that is left.
func (w *world) saveLost(next *record.Record) {
	l, o := w.lost, &w.o
	if l == nil {
		return
	}
	for number, left := range l.left {
		if slices.ContainsFunc(next.Left, func(p record.Point) bool { return p.Number == number }) {
			continue
		}
		for _, seen := range left.Claims {
			require.False(w.t, seen.Reader.Exists || seen.Clone != nil || seen.Snapshot.Exists || seen.Labelled, "something is forgotten")
		}
		require.False(w.t, left.Group.Exists, "something is forgotten")
		delete(l.left, number)
	}
	if len(next.Left) <= len(o.Record.Left) {
		return
	}
	l.n++
	left := &decide.Observation{Claims: make([]decide.Claim, len(o.Claims)), Group: o.Group}
	for i := range o.Claims {
		seen := &o.Claims[i]
		require.False(w.t, seen.Writer.Exists, "nobody has a head")
		left.Claims[i] = decide.Claim{Origin: seen.Origin, Reader: seen.Reader, Clone: seen.Clone, Snapshot: seen.Snapshot,
			Labelled: seen.Labelled}
		seen.Reader, seen.Clone, seen.Snapshot, seen.Labelled = movers.State{}, nil, decide.Snapshot{}, false
	}
	l.left[o.Record.Point.Number], o.Group = left, decide.Group{}
}

// cleanLeft takes an action where a point has left something.
func (w *world) cleanLeft(a decide.CleanLeft) {
	require.Empty(w.t, a.Of.Source.Unusable, "nothing is asked of a cluster that does not answer")
	require.False(w.t, w.lost.away[a.Of.Record.Point.Source.Cluster])
	switch a.Of = w.lost.left[a.Of.Record.Point.Number]; action := a.Action.(type) {
	case decide.DropMover:
		a.Of.Claims[action.Claim].Reader.Leaving = true
	case decide.DropClone:
		a.Of.Claims[action.Claim].Clone.DeletionTimestamp = &metav1.Time{Time: w.o.Now}
	case decide.DropSnapshot:
		a.Of.Claims[0].Snapshot.Leaving, a.Of.Group.Leaving = a.Of.Claims[0].Snapshot.Exists, a.Of.Group.Exists
	case decide.Unlabel:
		a.Of.Claims[action.Claim].Labelled = false
	default:
		w.t.Fatalf("nobody takes %T where a point was", action)
	}
}

// leaving is a point that is over, and has all there still is of it in a lost cluster, while the claim goes on elsewhere.
func leaving() decide.Observation {
	o := copies(nil)
	o.Record.Point.Stage, o.Record.Point.Why, o.Record.Point.Source.Cluster = record.Clean, "the claim got an earlier version", "east"
	o.Claims[0].Writer, o.Claims[0].Seal = movers.State{}, decide.Snapshot{}
	o.Source, o.At = decide.Cluster{Unusable: "cluster east does not answer"}, "home"
	return o
}

func TestAPointInALostClusterHoldsUpNoOthersOnceTheClaimIsElsewhere(t *testing.T) {
	o := leaving()
	next := saved(t, o)
	require.Nil(t, next.Point)
	require.Len(t, next.Left, 1)
	assert.Equal(t, o.Record.PointName(0), next.OfLeft(0).PointName(0))
	assert.Equal(t, o.Record.Point.Source, next.Left[0].Source)
	assert.Empty(t, next.Left[0].Keys)
	assert.Equal(t, 1, next.Failures)

	for name, tune := range map[string]func(*decide.Observation){
		"the claim is still there":               func(o *decide.Observation) { o.At = "east" },
		"it is not known where the claim is":     func(o *decide.Observation) { o.At = "" },
		"the mover at the standby has not ended": func(o *decide.Observation) { o.Claims[0].Writer = movers.State{Exists: true, Leaving: true} },
		"the standby does not answer either":     func(o *decide.Observation) { o.Standby.Unusable = "cluster west does not answer" },
		"as many are left already as may be":     func(o *decide.Observation) { o.Record.Left = make([]record.Point, 4) },
		"the replica is to be removed":           func(o *decide.Observation) { o.Replica.DeletionTimestamp = &metav1.Time{Time: noon} },
		"of several claims one mover has not ended": func(o *decide.Observation) {
			o.Record.Others, o.Record.Point.Others = []record.Part{o.Record.Part}, []record.Session{o.Record.Point.Session}
			o.Claims = append(o.Claims, decide.Claim{Writer: movers.State{Exists: true, Leaving: true}})
		},
	} {
		t.Run("it waits: "+name, func(t *testing.T) {
			o := leaving()
			tune(&o)
			assert.Nil(t, decide.Next(o).Action)
		})
	}
	gone := leaving()
	gone.Source.Gone = true
	next = saved(t, gone)
	assert.Nil(t, next.Point, "what is there stays")
	assert.Empty(t, next.Left)
}

func TestWhatAPointHasLeftGoesWhenItsClusterIsBack(t *testing.T) {
	o := observation(2)
	o.Record.Left = []record.Point{{Number: 2, Stage: record.Clean, Session: record.Session{Source: backing.Ref{Cluster: "east"}}}}
	seen := func(source decide.Cluster, seen decide.Claim) {
		o.Left = &decide.Observation{Record: o.Record.OfLeft(0), Source: source, Claims: []decide.Claim{seen}}
	}
	seen(decide.Cluster{Unusable: "away"}, decide.Claim{})
	assert.Nil(t, decide.Next(o).Action)
	assert.Empty(t, decide.Next(o).Reason, "it keeps the replica from nothing")
	for _, row := range []struct {
		seen   decide.Claim
		action decide.Action
	}{
		{decide.Claim{Reader: movers.State{Exists: true}}, decide.DropMover{Role: "sender"}},
		{decide.Claim{Clone: &corev1.PersistentVolumeClaim{}}, decide.DropClone{}},
		{decide.Claim{Snapshot: decide.Snapshot{Exists: true}}, decide.DropSnapshot{}},
	} {
		seen(decide.Cluster{}, row.seen)
		assert.Equal(t, decide.CleanLeft{Of: o.Left, Action: row.action}, decide.Next(o).Action)
	}
	for name, source := range map[string]decide.Cluster{"nothing is left": {}, "it is gone": {Gone: true, Unusable: "gone"}} {
		t.Run(name, func(t *testing.T) {
			seen(source, decide.Claim{})
			assert.Empty(t, saved(t, o).Left)
		})
	}

	// A replica that is to be removed waits for it, as for a point.
	o.Replica.DeletionTimestamp = &metav1.Time{Time: noon}
	seen(decide.Cluster{Unusable: "cluster east does not answer"}, decide.Claim{})
	step := decide.Next(o)
	assert.Nil(t, step.Action)
	assert.Equal(t, decide.BeingRemoved, step.Reason)
	assert.Contains(t, step.Say, "delete its RemoteCluster if it is gone for good")
}

func TestMoversThatNoPointHasEndBeforeTheNextPointBeginsAndTheHeadGoes(t *testing.T) {
	for name, deleted := range map[string]*metav1.Time{"the next point is due": nil, "the replica was deleted": {Time: noon}} {
		t.Run(name, func(t *testing.T) {
			o := observation(0)
			o.Now, o.Replica.DeletionTimestamp, o.Claims[0].Head = noon.Add(time.Hour), deleted, head("h1")
			o.Strays = []decide.Stray{{Name: "a", Leaving: true}, {Name: "b"}}
			assert.Equal(t, decide.DropStray{Name: "b"}, decide.Next(o).Action)
			o.Strays[1].Leaving = true
			step := decide.Next(o)
			assert.Nil(t, step.Action)
			assert.Contains(t, step.Say, "waiting until mover shop/a at the standby has ended")
			assert.Equal(t, deleted != nil, step.Reason == decide.BeingRemoved)
			o.Strays = nil
			assert.NotNil(t, decide.Next(o).Action)
		})
	}
	o := observation(1) // whose next point is not due
	o.Strays, o.Replica.Spec.Paused = []decide.Stray{{Name: "a"}}, true
	assert.Equal(t, decide.DropStray{Name: "a"}, decide.Next(o).Action, "it may write")
}
