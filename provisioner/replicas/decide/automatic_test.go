package decide_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/backing"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/replicas/decide"
	"github.com/lodestone-storage/lodestone/provisioner/replicas/record"
)

// affected is a claim whose data is in a cluster.
func affected(name string, uid types.UID, at string) decide.AffectedClaim {
	return decide.AffectedClaim{At: at,
		Claim: &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: uid}}}
}

// lost is an outage of west after which claim data fails over to home: each condition is met, by a second.
func lost() decide.Outage {
	now := time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)
	return decide.Outage{
		Replica: &v1alpha1.VolumeReplica{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "data-home", UID: "r"},
			Spec: v1alpha1.VolumeReplicaSpec{
				Claims: []string{"data"}, Standbys: []v1alpha1.ReplicaStandby{{Cluster: keys.Home}},
				RPO:               &metav1.Duration{Duration: time.Minute},
				AutomaticFailover: &v1alpha1.AutomaticFailover{After: &metav1.Duration{Duration: 5 * time.Minute}},
			},
		},
		Record: &record.Record{UID: "r", Part: record.Part{Claim: "data", ClaimUID: "c", Head: backing.Ref{Cluster: keys.Home}},
			Sealed: []record.Version{
				{Number: 6, Content: record.Content{Name: "replica-r-v6-1"}, Cut: now.Add(-time.Hour)},
				{Number: 7, Content: record.Content{Name: "replica-r-v7-2"}, Cut: now.Add(-5*time.Minute - time.Second - 2*time.Minute)},
				{Number: 8, Content: record.Content{Name: "replica-r-v8-3"}, Cut: now, Going: true},
			}},
		Claims: []decide.AffectedClaim{affected("data", "c", "west")},
		At:     "west",
		Silent: 5*time.Minute + time.Second, Since: now.Add(-5*time.Minute - time.Second), Now: now,
		Witness: "east",
	}
}

func TestAClaimFailsOverByItself(t *testing.T) {
	move, why := lost().FailsOver()
	require.NotNil(t, move)
	assert.Equal(t, metav1.ObjectMeta{Namespace: "shop", Name: "failover-r-v7-2"}, move.ObjectMeta)
	assert.Equal(t, v1alpha1.VolumeMoveSpec{
		Claims: []string{"data"}, Target: v1alpha1.MoveTarget{Cluster: keys.Home},
		Failover: &v1alpha1.MoveFailover{Replica: "data-home", Version: "replica-r-v7-2", Fence: v1alpha1.FenceDeclared},
	}, move.Spec)
	assert.Equal(t, `cluster west has not answered for 5m1s: claim "data" fails over to version replica-r-v7-2 in cluster home`, why)
}

func TestAClaimFailsOverByTheLeaseThatItsClusterHasPromised(t *testing.T) {
	o := lost()
	o.Promised = true
	move, _ := o.FailsOver()
	require.NotNil(t, move)
	assert.Equal(t, v1alpha1.FenceLease, move.Spec.Failover.Fence)
}

func TestAClaimFailsOverWhereItIsNotKnownWhetherItsPodsCouldRun(t *testing.T) {
	for _, status := range []metav1.ConditionStatus{metav1.ConditionTrue, metav1.ConditionUnknown, ""} {
		o := lost()
		o.Runnable = decide.Runnable{Status: status}
		move, why := o.FailsOver()
		assert.NotNil(t, move, why)
	}
}

// TestAClaimDoesNotFailOverByItself has a row for each condition that is not met.
func TestAClaimDoesNotFailOverByItself(t *testing.T) {
	for name, row := range map[string]struct {
		change func(o *decide.Outage)
		why    string // empty: nothing is lost
	}{
		"nobody has asked for it":          {func(o *decide.Outage) { o.Replica.Spec.AutomaticFailover = nil }, ""},
		"the replica is being deleted":     {func(o *decide.Outage) { o.Replica.DeletionTimestamp = &metav1.Time{Time: o.Now} }, ""},
		"it has not begun":                 {func(o *decide.Outage) { o.Record = nil }, ""},
		"the cluster answers":              {func(o *decide.Outage) { o.Silent = 0 }, ""},
		"the claim is gone":                {func(o *decide.Outage) { o.Claims[0].Claim = nil }, ""},
		"the claim is another one":         {func(o *decide.Outage) { o.Claims[0].Claim.UID = "d" }, ""},
		"the claim is being deleted":       {func(o *decide.Outage) { o.Claims[0].Claim.DeletionTimestamp = &metav1.Time{Time: o.Now} }, ""},
		"the data is at home":              {func(o *decide.Outage) { o.At = keys.Home; o.Record.Head.Cluster = "east" }, ""},
		"the data is where the copies are": {func(o *decide.Outage) { o.Record.Head.Cluster = "west" }, ""},
		"nothing is sealed": {func(o *decide.Outage) { o.Record.Sealed = nil },
			`cluster west does not answer, and claim "data" does not fail over by itself: no version is sealed yet`},
		"it is paused":           {func(o *decide.Outage) { o.Replica.Spec.Paused = true }, "spec.paused is set"},
		"a move holds the claim": {func(o *decide.Outage) { o.Moving = true }, "a move holds it"},
		"it was tried":           {func(o *decide.Outage) { o.Tried = true }, "VolumeMove failover-r-v7-2 did that with the newest"},
		"it is failing over":     {func(o *decide.Outage) { o.Moving, o.Tried = true, true }, ""},
		"a clock was ahead":      {func(o *decide.Outage) { o.Record.Newest().Cut = o.Now.Add(time.Hour) }, "has not come yet"},
		"too much would be lost": {func(o *decide.Outage) { o.Since = o.Since.Add(time.Second) }, "more than maxLoss of 2m0s"},
		"more than is said": {func(o *decide.Outage) {
			o.Replica.Spec.AutomaticFailover.MaxLoss = &metav1.Duration{Duration: time.Minute}
		}, "more than maxLoss of 1m0s"},
		"the standby is away":        {func(o *decide.Outage) { o.StandbyAway = "cluster east is away" }, "cluster east is away"},
		"home may be cut off":        {func(o *decide.Outage) { o.Witness = "" }, "home may be the one that is cut off"},
		"it was not silent for long": {func(o *decide.Outage) { o.Silent -= 2 * time.Second }, `fails over to cluster home once that has been so for 5m0s`},
		"another cluster reaches it": {func(o *decide.Outage) {
			o.Probes = []decide.Probe{{By: "north", Fresh: true}, {By: "east", Answers: true}}
		}, "it answers cluster east, whose owner has it probed, so home may be the one that is cut off"},
		"what is to probe it says nothing": {func(o *decide.Outage) { o.Probes = []decide.Probe{{By: "east"}} },
			"cluster east, whose owner has it probed, has not said within the last minute"},
		"the standby could not run the pods": {func(o *decide.Outage) {
			o.Runnable = decide.Runnable{Status: metav1.ConditionFalse, Why: "pod db-0 fits no node of cluster home: it is too large"}
		}, "cluster home could not run its pods: pod db-0 fits no node of cluster home: it is too large; mend that, or fail over by kubectl"},
		"it is too early for what another cluster says": {func(o *decide.Outage) {
			o.Silent -= 2 * time.Second
			o.Probes = []decide.Probe{{By: "east", Answers: true}}
		}, `fails over to cluster home once that has been so for 5m0s`},
		"by default it takes 10 minutes": {func(o *decide.Outage) { o.Replica.Spec.AutomaticFailover.After = nil }, "for 10m0s"},
	} {
		t.Run(name, func(t *testing.T) {
			o := lost()
			row.change(&o)
			move, why := o.FailsOver()
			assert.Nil(t, move)
			if row.why == "" {
				assert.Empty(t, why)
			} else {
				assert.Contains(t, why, row.why)
			}
		})
	}
}

func TestAClaimFailsOverByItselfOnceWhatProbesTheClusterDoesNotReachIt(t *testing.T) {
	o := lost()
	o.Probes = []decide.Probe{{By: "east"}, {By: "north", Fresh: true}}
	move, _ := o.FailsOver()
	assert.NotNil(t, move)
}

// TestClaimsOfOneMomentFailOverTogether: all of them, and none where that of one is not lost with the others.
func TestClaimsOfOneMomentFailOverTogether(t *testing.T) {
	group := func() decide.Outage {
		o := lost()
		o.Replica.Spec.Claims = []string{"data", "wal"}
		o.Record.Others = []record.Part{{Claim: "wal", ClaimUID: "w", Head: backing.Ref{Cluster: keys.Home}}}
		o.Claims = append(o.Claims, affected("wal", "w", "west"))
		return o
	}
	move, why := group().FailsOver()
	require.NotNil(t, move)
	assert.Equal(t, []string{"data", "wal"}, move.Spec.Claims)
	assert.Equal(t, `cluster west has not answered for 5m1s: claims data, wal fail over to version replica-r-v7-2 in cluster home`, why)
	for name, row := range map[string]struct {
		other decide.AffectedClaim
		why   string
	}{
		"gone":                 {decide.AffectedClaim{}, `claim "wal" is gone`},
		"another one":          {affected("wal", "x", "west"), `claim "wal" is gone`},
		"without a volume":     {affected("wal", "w", ""), `claim "wal" has no volume`},
		"in another cluster":   {affected("wal", "w", "east"), `claim "wal" has its data in cluster east`},
		"where its copies are": {affected("wal", "w", keys.Home), `claim "wal" has its data in cluster home`},
	} {
		t.Run(name, func(t *testing.T) {
			o := group()
			o.Claims[1] = row.other
			move, why := o.FailsOver()
			assert.Nil(t, move)
			assert.Equal(t, "cluster west does not answer, and claims data, wal do not fail over by themselves: "+row.why+
				", and all of them fail over together or none", why)
		})
	}
}

func TestOfSeveralCopiesTheFreshestIsFailedOverToAndNoOther(t *testing.T) {
	of := func(name string, cut time.Duration, claims ...types.UID) decide.Outage {
		o := lost()
		o.Replica.Name = name
		o.Record.ClaimUID, o.Record.Sealed = claims[0], []record.Version{{Cut: o.Now.Add(-cut)}}
		for _, claim := range claims[1:] {
			o.Record.Others = append(o.Record.Others, record.Part{ClaimUID: claim})
		}
		return o
	}
	begins := func(due ...decide.Outage) (names []string) {
		for _, o := range decide.Freshest(due, func(o decide.Outage) decide.Outage { return o }) {
			names = append(names, o.Replica.Name)
		}
		return names
	}
	assert.Empty(t, begins())
	assert.Equal(t, []string{"newer"}, begins(of("older", 2*time.Minute, "c"), of("newer", time.Minute, "c"), of("oldest", time.Hour, "c")))
	assert.Equal(t, []string{"a"}, begins(of("b", time.Minute, "c"), of("a", time.Minute, "c")), "the same each time")
	assert.Equal(t, []string{"one", "other"}, begins(of("one", time.Minute, "c"), of("other", time.Hour, "d")))
	assert.Equal(t, []string{"wal", "both"},
		begins(of("data", 2*time.Minute, "c"), of("both", time.Minute, "c", "e"), of("wal", time.Second, "d")))
	assert.Equal(t, []string{"wal"}, begins(of("both", time.Minute, "c", "d"), of("wal", time.Second, "d")))
}

func TestNoSecondCopyIsFailedOverToAfterAnother(t *testing.T) {
	o := lost()
	o.Other, o.Moving = "failover-x-v1-1", true
	move, why := o.FailsOver()
	assert.Nil(t, move)
	assert.Empty(t, why, "that is the failover")
	o.Moving = false
	move, why = o.FailsOver()
	assert.Nil(t, move)
	assert.Contains(t, why, "VolumeMove failover-x-v1-1 did that with another copy and has ended; fail over by kubectl lodestone failover")
}
