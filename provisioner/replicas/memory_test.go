package replicas

import (
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/backing"
	"github.com/lodestone-storage/lodestone/pkg/moverapi"
	"github.com/lodestone-storage/lodestone/pkg/volumesnapshot"
	"github.com/lodestone-storage/lodestone/provisioner/replicas/decide"
	"github.com/lodestone-storage/lodestone/provisioner/replicas/record"
)

// mostMemory is what an idle replica may take, in bytes.
const mostMemory = 12 << 10

// idle is the record of a replica with as many versions as are kept by default, with names as long as they are.
func idle(n int) *record.Record {
	uid := types.UID(fmt.Sprintf("00000000-0000-0000-0000-%012d", n))
	r := &record.Record{UID: uid, Namespace: fmt.Sprintf("shop-of-customer-%d", n), Name: "data-database-0-east", Epoch: 1, Last: 100,
		Part: record.Part{Claim: "data-database-0", ClaimUID: uid, Class: "fast",
			Head: backing.Ref{Cluster: "east", Namespace: fmt.Sprintf("shop-of-customer-%d", n), Name: record.HeadName(uid, 0), UID: uid}}}
	for number := range int64(4) {
		r.Sealed = append(r.Sealed, record.Version{Number: number, Epoch: 1, Cut: time.Now(), Took: time.Minute, Content: record.Content{
			Name: fmt.Sprintf("replica-%s-v%d-%d", uid, number, time.Now().Unix()), UID: uid, Root: strings.Repeat("f", 64), Sent: 1 << 30,
			Volume: volumesnapshot.Volume{Driver: "ebs.csi.example.com", Handle: "vol-0123456789abcdef0"},
		}})
	}
	// Of each of two slots.
	for range 2 {
		r.Known = append(r.Known, record.Known{UID: uid, Root: strings.Repeat("f", 64), Cut: time.Now(), Since: time.Now(),
			Fingerprints: moverapi.Fingerprints{Source: strings.Repeat("e", 64), Target: strings.Repeat("d", 64)}})
	}
	return r
}

// TestAnIdleReplicaTakesLittleMemory counts what the controller and the informer hold of a replica between two points, read as they
// read it from API servers.
func TestAnIdleReplicaTakesLittleMemory(t *testing.T) {
	const replicas = 2000
	metrics, err := NewMetrics(prometheus.NewRegistry())
	require.NoError(t, err)
	controller := New(Config{Records: NewRecords(), Metrics: metrics})
	objects := make([]*v1alpha1.VolumeReplica, replicas) // as an informer holds them
	heap := func() uint64 {
		runtime.GC()
		runtime.GC()
		var stats runtime.MemStats
		runtime.ReadMemStats(&stats)
		return stats.HeapAlloc
	}
	before := heap()
	for n := range replicas {
		data, err := record.Encode(idle(n))
		require.NoError(t, err)
		known, err := record.Decode(data)
		require.NoError(t, err)
		o := decide.Observation{Now: time.Now(), Record: known, Replica: &v1alpha1.VolumeReplica{
			ObjectMeta: metav1.ObjectMeta{Name: known.Name, Namespace: known.Namespace, UID: known.UID, ResourceVersion: "123456789",
				Labels: map[string]string{"app.kubernetes.io/name": "database", "app.kubernetes.io/instance": "shop"}},
			Spec: v1alpha1.VolumeReplicaSpec{Claims: []string{known.Claim}, Standbys: []v1alpha1.ReplicaStandby{{Cluster: "east"}},
				RPO: &metav1.Duration{Duration: 15 * time.Minute}, Versions: v1alpha1.ReplicaVersions{Keep: 4}},
		}}
		o.Runnable = decide.Runnable{Status: metav1.ConditionTrue, Why: strings.Repeat("y", 160)}
		o.Replica.Status, _ = statusOf(o, decide.Step{})
		data, err = json.Marshal(o.Replica)
		require.NoError(t, err)
		objects[n] = &v1alpha1.VolumeReplica{}
		require.NoError(t, json.Unmarshal(data, objects[n]))
		w := controller.replicaOf(replicaKey{types.NamespacedName{Namespace: known.Namespace, Name: known.Name}, known.UID})
		w.record, w.copies = &stored{known, "123456789"}, []*activeCopy{{}}
		controller.Records.set(known.UID, known)
		controller.Metrics.observe(o, o.Replica.Status)
	}
	each := (heap() - before) / replicas
	t.Logf("%d bytes each", each)
	assert.LessOrEqual(t, each, uint64(mostMemory))
	runtime.KeepAlive(controller)
	runtime.KeepAlive(objects)
}
