package replicas

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/provisioner/remote"
	"github.com/lodestone-storage/lodestone/provisioner/replicas/decide"
)

func TestAFailoverOfAnEarlierOutageHoldsUpNoneWhileAnotherClusterIsSilent(t *testing.T) {
	a := automatic{begun: map[types.UID]begun{"c": {move: "failover-x", replica: "r"}}}
	r := recordOf("r", "data", "east", "")
	r.ClaimUID = "c"
	for name, row := range map[string]struct {
		o     decide.Outage
		stays bool
	}{
		"its cluster is silent":     {decide.Outage{Record: r, At: "west", Silent: time.Second}, true},
		"it has no volume just now": {decide.Outage{Record: r}, true},
		"its cluster answers":       {decide.Outage{Record: r, At: "west"}, false},
		"it is another claim":       {decide.Outage{Record: recordOf("s", "wal", "east", ""), At: "west", Silent: time.Second}, false},
		"the replica has not begun": {decide.Outage{}, false},
	} {
		t.Run(name, func(t *testing.T) {
			now := map[types.UID]begun{}
			a.stillBegun(row.o, now)
			assert.Equal(t, row.stays, now["c"].move != "")
		})
	}
}

func TestNothingIsRememberedOfReplicasAndClustersThatAreGone(t *testing.T) {
	c := &Controller{Config: Config{Records: NewRecords(), Clusters: &remote.Clusters{},
		Objects: cache.NewSharedIndexInformer(nil, &v1alpha1.VolumeReplica{}, 0, nil)}}
	a := automatic{Controller: c, silent: map[string]time.Time{"gone": time.Now()},
		known: map[types.UID]*attempts{"gone": {said: "it does not fail over"}}, begun: map[types.UID]begun{"gone": {move: "failover-x"}}}
	a.lookThrough(t.Context(), nil)
	assert.Empty(t, a.known)
	assert.Empty(t, a.begun)
	a.noteSilent()
	assert.Empty(t, a.silent, "another cluster of its name has not been silent for as long")
}
