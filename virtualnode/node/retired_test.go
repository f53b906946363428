package node

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestWorkInARetiredClusterBeginsWithoutANode(t *testing.T) {
	remote := newWest(t)
	m := newManaged(t, remote)
	m.Retire(true)
	m.run(t)
	require.Eventually(t, func() bool { return m.admitted.Load() == 1 }, long, often)
	assert.EqualValues(t, "absent", m.ready(), "the node is not made for it")
}

func TestARetiredDuplicateEndsWhatItBegan(t *testing.T) {
	remote := newWest(t)
	m := newManaged(t, remote)
	ended, _ := m.run(t)
	require.Eventually(t, func() bool { return m.ready() == corev1.ConditionTrue }, long, often)
	sentence := "another stands for it"
	m.unwanted.Store(&sentence)
	require.ErrorIs(t, finished(t, ended), errUnwanted)

	m.Retire(true)
	ended, stop := m.run(t)
	require.Eventually(t, func() bool { return m.admitted.Load() == 2 }, long, often)
	beats := remote.beats.Load()
	require.Eventually(t, func() bool { return remote.beats.Load() > beats+5 }, long, often)
	require.NoError(t, m.home.CoreV1().Nodes().Delete(t.Context(), "west", metav1.DeleteOptions{}))
	stop()
	assert.NoError(t, finished(t, ended), "it was not ended for being unwanted")
}

func TestWhereWorkMayBegin(t *testing.T) {
	for name, test := range map[string]struct {
		health  Health
		retired bool
		want    bool
	}{
		"the cluster never answered":            {},
		"it never answered a retired node":      {retired: true},
		"it answered":                           {health: Health{Answered: true}, want: true},
		"another stands for it":                 {health: Health{Answered: true, Unwanted: "no", UnwantedReason: Duplicate}},
		"another stands for it, and it leaves":  {health: Health{Answered: true, Unwanted: "no", UnwantedReason: Duplicate}, retired: true, want: true},
		"it is the home cluster, and it leaves": {health: Health{Answered: true, Unwanted: "no", UnwantedReason: "PointsHome"}, retired: true},
	} {
		t.Run(name, func(t *testing.T) { assert.Equal(t, test.want, usable(test.health, test.retired)) })
	}
}
