package moves

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/movecontrol"
	"github.com/lodestone-storage/lodestone/provisioner/moves/decide"
	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
)

func TestWhatIsSplicedAndAwaitedIsRemembered(t *testing.T) {
	var l links
	pods, others := [2]types.UID{"a", "b"}, [2]types.UID{"a", "c"}
	stopped := 0
	stop := func() { stopped++ }
	splicing, apart := l.between(0, pods)
	assert.False(t, splicing)
	assert.Zero(t, apart)

	begin := time.Now()
	l.await(0, begin, true)
	l.await(0, begin.Add(time.Second), true)
	_, apart = l.between(0, pods)
	assert.Equal(t, begin, apart, "it is awaited since it began")
	l.await(0, begin, false)
	_, apart = l.between(0, pods)
	assert.Zero(t, apart)

	l.keep(0, pods, stop)
	splicing, _ = l.between(0, pods)
	assert.True(t, splicing)
	splicing, _ = l.between(1, pods)
	assert.False(t, splicing, "another claim has a connection of its own")
	splicing, _ = l.between(0, others)
	assert.False(t, splicing, "one of them is another pod now")
	assert.Equal(t, 1, stopped)

	l.keep(0, others, stop)
	l.note(0, context.Canceled)
	l.cut(0)
	assert.Equal(t, 2, stopped)
	assert.Empty(t, l.why(0))
	l.keep(0, others, stop)
	l.keep(0, pods, stop)
	l.await(1, begin, true)
	l.close()
	assert.Equal(t, 4, stopped)
	_, apart = l.between(1, pods)
	assert.Zero(t, apart)
}

func TestTheStatusSaysHowDataTravels(t *testing.T) {
	var w ways
	pods := [2]types.UID{"a", "b"}
	w.took(door{"a", dataPort}, false, time.Now())
	w.took(door{"b", dataPort}, true, time.Now())
	w.took(door{"b", controlPort}, false, time.Now())
	legs := &v1alpha1.MoveLegs{Source: v1alpha1.LegAddress, Target: v1alpha1.LegAPIServer}
	for name, row := range map[string]struct {
		status movecontrol.Status
		why    string
		want   decide.Way
	}{
		"apart":                      {status: movecontrol.Status{Seeks: true, PeerError: "no route"}, want: decide.Way{Why: "no route"}},
		"direct":                     {status: movecontrol.Status{Seeks: true, Connected: true, Direct: true}, want: decide.Way{Transport: v1alpha1.TransportDirect}},
		"joined":                     {status: movecontrol.Status{Seeks: true, Connected: true, PeerError: "no route"}, want: decide.Way{Transport: v1alpha1.TransportSpliced, Legs: legs, Why: "no route"}},
		"joined, for networks apart": {status: movecontrol.Status{Seeks: true, Connected: true}, why: "apart", want: decide.Way{Transport: v1alpha1.TransportSpliced, Legs: legs, Why: "apart"}},
		"joined, for it is older":    {status: movecontrol.Status{Connected: true}, want: decide.Way{Transport: v1alpha1.TransportSpliced, Legs: legs, Why: "the mover at the source is of a version that dials nobody"}},
	} {
		t.Run(name, func(t *testing.T) {
			way := wayOf(&row.status, row.why, pods, &w)
			assert.Equal(t, row.want, way)

			// What is known once stays in the status while the movers are apart.
			o := decide.Observation{Move: &v1alpha1.VolumeMove{}, Record: &record.Record{Claims: []record.Claim{{Name: "data"}}}, Claims: []decide.Claim{{Way: way}}}
			told := claimsOf(o)[0]
			assert.Equal(t, row.want.Transport, told.Transport)
			assert.Equal(t, row.want.Legs, told.Legs)
			o.Move.Status.Claims, o.Claims[0].Way = []v1alpha1.MovedClaim{told}, decide.Way{}
			assert.Equal(t, told, claimsOf(o)[0])
		})
	}
}

func TestAddressesOfAPod(t *testing.T) {
	pod := &corev1.Pod{}
	assert.Empty(t, addressesOf(pod))
	pod.Status.PodIPs = []corev1.PodIP{{IP: "10.1.2.3"}, {IP: "fd00::7"}}
	assert.Equal(t, []string{"10.1.2.3", "fd00::7"}, addressesOf(pod))
}
