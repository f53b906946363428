package moves

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
	"github.com/lodestone-storage/lodestone/provisioner/moves/steps"
)

func TestAnErrorOfHomeEndsTheLook(t *testing.T) {
	r := recordIn(v1alpha1.MoveFence)
	r.Claims[0].Volume, r.Claims[0].Target.Ref.Cluster = &corev1.PersistentVolume{}, keys.Home
	client := fake.NewClientset()
	client.PrependReactor("get", "persistentvolumeclaims", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, errors.New("the server is busy")
	})
	c := New(Config{Client: client, Records: NewRecords()})
	o := steps.Observation{Record: r}
	assert.ErrorContains(t, c.observeClaims(t.Context(), &activeMove{}, &o), "the server is busy")
}

func TestAWriteWhoseAnswerWasLostIsKnownToOtherMoves(t *testing.T) {
	written := recordIn(v1alpha1.MoveRetain)
	written.HandedTo = "m2"
	data, err := record.Encode(written)
	require.NoError(t, err)
	client := fake.NewClientset(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "system", Name: record.SecretName("m1")},
		Data: map[string][]byte{recordKey: data}})
	c := New(Config{Client: client, Namespace: "system", Records: NewRecords()})
	c.Records.set("m1", recordIn(v1alpha1.MoveRetain))
	w := &activeMove{moveKey: moveKey{uid: "m1"}}
	require.NoError(t, c.readAgain(t.Context(), w))
	later := recordIn(v1alpha1.MoveProvision)
	later.Claims[0].Kept = &record.Kept{By: "m1"}
	assert.EqualValues(t, "m2", c.Records.keeperOf(later).HandedTo)
	require.NoError(t, client.CoreV1().Secrets("system").Delete(t.Context(), record.SecretName("m1"), metav1.DeleteOptions{}))
	require.NoError(t, c.readAgain(t.Context(), w))
	assert.Nil(t, c.Records.keeperOf(later), "it is over and forgotten")
}

func TestOnlyAMoveThatWaitsForItsMoversAsksThemAlone(t *testing.T) {
	now := time.Now()
	waiting := func(change func(*look)) look {
		l := look{waits: true, o: steps.Observation{Now: now.Add(-time.Second), Record: recordIn(v1alpha1.MovePreCopy)}}
		change(&l)
		return l
	}
	for name, test := range map[string]struct {
		change func(*look)
		enough bool
	}{
		"it waits":                      {func(*look) {}, true},
		"a step was taken":              {func(l *look) { l.waits = false }, false},
		"nothing was read yet":          {func(l *look) { *l = look{waits: true} }, false},
		"it is long ago":                {func(l *look) { l.o.Now = now.Add(-lookAgainAfter) }, false},
		"pods are stopped":              {func(l *look) { l.o.Record.Phase = v1alpha1.MoveQuiesce }, false},
		"it goes back":                  {func(l *look) { l.o.Record.Phase = v1alpha1.MoveRollBack }, false},
		"a snapshot of a claim is made": {func(l *look) { l.o.Record.Claims[0].Snapshot = &record.Snapshot{Since: now} }, false},
		"a snapshot of all is made":     {func(l *look) { l.o.Record.Group = &record.Group{Since: now} }, false},
	} {
		l := waiting(test.change)
		assert.Equal(t, test.enough, l.isEnough(now), name)
	}
}
