package replicas

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/backing"
	"github.com/lodestone-storage/lodestone/provisioner/replicas/decide"
	"github.com/lodestone-storage/lodestone/provisioner/replicas/record"
)

// recordOf is the record of a replica with its copy in a cluster; a point of it is in a stage, empty: none is being made.
func recordOf(uid types.UID, name, standby string, stage record.Stage) *record.Record {
	r := &record.Record{UID: uid, Namespace: "shop", Name: name, Part: record.Part{Head: backing.Ref{Cluster: standby}}}
	if stage != "" {
		r.Point = &record.Point{Stage: stage, Session: record.Session{Source: backing.Ref{Cluster: "home"}}}
	}
	return r
}

func TestTheRecordOfAVolumeReplicaThatIsGoneIsNotThatOfItsName(t *testing.T) {
	records := NewRecords()
	old, now := recordOf("1", "data", "west", ""), recordOf("2", "data", "west", "")
	records.set("1", old)
	assert.Equal(t, old, records.Named("shop", "data"))
	records.set("2", now)
	assert.Nil(t, records.Named("shop", "data"), "which one is meant is not known yet")
	records.leave("1")
	assert.Equal(t, now, records.Named("shop", "data"))
	records.set("2", nil)
	assert.Nil(t, records.Named("shop", "data"))
	assert.Equal(t, old, records.Of("1"), "what it has is still there")
	records.set("1", nil)
	records.leave("1")
	assert.Empty(t, records.left)
}

func TestPointsThatWaitForAClusterHoldUpNoOthers(t *testing.T) {
	records := NewRecords()
	for i := range decide.MostPoints {
		uid := types.UID(rune('a' + i))
		records.set(uid, recordOf(uid, string(uid), "west", record.Copy))
	}
	turn := decide.Turn{UID: "z", Source: "home", Standby: "west", RPO: time.Hour, Since: time.Now()}
	nobody := func(string) bool { return false }
	assert.False(t, records.hasTurn(turn, time.Now(), nobody))
	west := func(cluster string) bool { return cluster == "west" }
	assert.True(t, records.hasTurn(turn, time.Now(), west))
	east := turn
	east.Standby = "east"
	assert.True(t, records.hasTurn(east, time.Now(), nobody), "it does not use the cluster that has all the points")
	records.set("a", recordOf("a", "a", "west", record.Clean))
	assert.True(t, records.hasTurn(turn, time.Now(), nobody), "it is over but for what is removed")
}

func TestAVolumeReplicaThatIsGoneHoldsUpNoOthersAndIsCountedNoMore(t *testing.T) {
	metrics, err := NewMetrics(prometheus.NewRegistry())
	require.NoError(t, err)
	c := &Controller{Config: Config{Records: NewRecords(), Metrics: metrics}}
	nobody, now := func(string) bool { return false }, time.Now()
	for i := range decide.MostPoints {
		uid := types.UID(rune('a' + i))
		r := recordOf(uid, string(uid), "west", "")
		c.Records.set(uid, r)
		c.Records.awaitTurn(decide.Turn{UID: uid, Source: "home", Standby: "west", RPO: time.Hour, Since: now.Add(-time.Hour)}, true)
		metrics.observe(decide.Observation{Record: r, Replica: &v1alpha1.VolumeReplica{ObjectMeta: metav1.ObjectMeta{UID: uid}}},
			v1alpha1.VolumeReplicaStatus{})
	}
	turn := decide.Turn{UID: "z", Source: "home", Standby: "west", RPO: time.Hour, Since: now}
	assert.False(t, c.Records.hasTurn(turn, now, nobody), "others have waited for longer")
	for i := range decide.MostPoints {
		c.left(types.UID(rune('a' + i)))
	}
	assert.True(t, c.Records.hasTurn(turn, now, nobody), "their versions stay, and no point of them is made any more")
	assert.Empty(t, metrics.replicas)
}

func TestTheReplicasOfAClaimInAClusterAreFound(t *testing.T) {
	records := NewRecords()
	of := func(uid types.UID, cluster string, claims ...types.UID) *record.Record {
		r := recordOf(uid, string(uid), cluster, "")
		r.ClaimUID = claims[0]
		for _, claim := range claims[1:] {
			r.Others = append(r.Others, record.Part{ClaimUID: claim})
		}
		records.set(uid, r)
		return r
	}
	one, _, _ := of("1", "west", "c1", "c2"), of("2", "east", "c2"), of("3", "west", "c3")
	assert.Equal(t, []*record.Record{one}, records.Having("c2", "west"))
	assert.Empty(t, records.Having("c1", "east"))
	records.leave("1")
	assert.Empty(t, records.Having("c2", "west"), "its versions go")
}
