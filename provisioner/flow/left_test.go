package flow

import (
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
)

func leftInWest(name string) *leftover {
	return &leftover{cluster: "west", home: "shop", at: types.NamespacedName{Namespace: "shop-home", Name: name}}
}

func TestWhatIsLeftBehindIsCountedWhileItIsThere(t *testing.T) {
	m, err := NewMetrics(prometheus.NewRegistry())
	require.NoError(t, err)
	l := m.leftovers
	count := func() float64 { return testutil.ToFloat64(l.gauge.WithLabelValues("west")) }
	assert.False(t, l.note("u1", nil))
	assert.True(t, l.note("u1", leftInWest("a")), "it is new once")
	assert.False(t, l.note("u1", leftInWest("a")))
	assert.True(t, l.note("u2", leftInWest("b")))
	assert.InDelta(t, 2, count(), 0)
	assert.False(t, l.note("u1", nil))
	assert.InDelta(t, 1, count(), 0)
}

func TestWhatIsLeftBehindIsToldTogether(t *testing.T) {
	l, now := newLeftovers(), time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	assert.Empty(t, l.summary("west", now))
	l.note("u0", leftInWest("data-0"))
	assert.Equal(t, "1 real claim is in cluster west with data, and no volume at home stands for it: shop-home/data-0; "+
		"kubectl lodestone import pvc data-0 -n shop --cluster west --remote-context CONTEXT --class CLASS gives it a claim again, with the kubeconfig context of west and a virtual storage class; "+
		"to be rid of it, take finalizer lodestone.dev/backing off and then delete it there", l.summary("west", now))
	assert.Empty(t, l.summary("west", now), "nothing is new")
	for i := range 9 {
		l.note(types.UID(fmt.Sprint("u", i+1)), leftInWest(fmt.Sprint("data-", i+1)))
	}
	text := l.summary("west", now)
	assert.Contains(t, text, "10 real claims are in cluster west with data, and no volume at home stands for them: shop-home/data-9, shop-home/data-8, shop-home/data-7, and 7 more, which the log of the provisioner names; ")
	assert.Contains(t, text, "import pvc data-9 -n shop --cluster west")
	assert.Empty(t, l.summary("east", now))

	l.note("u1", nil)
	assert.Empty(t, l.summary("west", now), "that one went is no news")
	nameless := leftInWest("x")
	nameless.home = ""
	l.note("u1", nameless)
	assert.Contains(t, l.summary("west", now), "import pvc x -n NAMESPACE --cluster west", "another came, and does not say whose it is")
}

func TestEverMoreThatIsLeftBehindIsToldEverMoreSeldom(t *testing.T) {
	l, now := newLeftovers(), time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	begin, told := now, 0
	for i := range 1000 {
		l.note(types.UID(fmt.Sprint("u", i)), leftInWest("data"))
		if now.Sub(begin) > 2*time.Hour {
			break
		}
		now = now.Add(l.pause("west", now))
		require.NotEmpty(t, l.summary("west", now))
		told++
	}
	assert.Less(t, told, 25, "what client-go lets through at once")
	assert.Equal(t, leftSeldom, l.pause("west", now))
	assert.Equal(t, leftSoon, l.pause("west", now.Add(leftRest+time.Second)), "later it begins anew")
	assert.Equal(t, leftSoon, l.pause("east", now), "each cluster for itself")
}
