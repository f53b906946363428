package feed

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/lodestone-storage/lodestone/extender/snapshot"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

func namespace(name, offload string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{keys.Offload: offload}}}
}

// newStore returns a store that has entries of open namespaces alone.
func newStore(at time.Time) (*store[*corev1.Namespace, *snapshot.Namespace], *snapshot.Snapshot) {
	view := snapshot.New()
	open := func(namespace *corev1.Namespace) (*snapshot.Namespace, bool) {
		entry, _ := snapshot.FromNamespace(namespace)
		return entry, entry != nil
	}
	return &store[*corev1.Namespace, *snapshot.Namespace]{table: view.Namespaces, convert: open, now: func() time.Time { return at }}, view
}

func TestStoreFollowsChanges(t *testing.T) {
	at := time.Unix(1000, 0)
	s, view := newStore(at)
	has := func(name string) bool { _, ok := view.Namespaces.Get(name); return ok }
	assert.True(t, s.lastChange().IsZero())

	require.NoError(t, s.Add(namespace("a", keys.OffloadEnabled)))
	require.NoError(t, s.Add(namespace("b", "")))
	assert.True(t, has("a"))
	assert.False(t, has("b"), "an object without entry is left out")
	assert.Equal(t, at, s.lastChange())
	assert.False(t, s.synced.Load(), "single changes are not the whole list")

	require.NoError(t, s.Update(namespace("a", "")))
	assert.False(t, has("a"), "an object that loses its entry is taken out")

	require.NoError(t, s.Update(namespace("b", keys.OffloadEnabled)))
	require.NoError(t, s.Delete(namespace("b", keys.OffloadEnabled)))
	assert.False(t, has("b"))

	require.NoError(t, s.Add(namespace("c", keys.OffloadEnabled)))
	require.NoError(t, s.Delete(cache.DeletedFinalStateUnknown{Key: "c"}))
	assert.False(t, has("c"))
}

func TestStoreReplacesAll(t *testing.T) {
	s, view := newStore(time.Unix(1000, 0))
	require.NoError(t, s.Add(namespace("gone", keys.OffloadEnabled)))
	converted, err := s.Transformer()(namespace("streamed", keys.OffloadEnabled))
	require.NoError(t, err)
	again, err := s.Transformer()(converted)
	require.NoError(t, err)
	assert.Equal(t, converted, again, "converting twice changes nothing")

	require.NoError(t, s.Replace([]any{namespace("listed", keys.OffloadEnabled), converted, namespace("home", "")}, "1"))
	assert.True(t, s.synced.Load())
	assert.Equal(t, 2, view.Namespaces.Len())
	for _, name := range []string{"listed", "streamed"} {
		_, ok := view.Namespaces.Get(name)
		assert.True(t, ok, name)
	}
}

func TestStoreRefusesOtherTypes(t *testing.T) {
	s, _ := newStore(time.Unix(1000, 0))
	require.ErrorContains(t, s.Add(&corev1.Node{}), "unexpected type *v1.Node")
	require.ErrorContains(t, s.Replace([]any{42}, ""), "unexpected type int")
	assert.False(t, s.synced.Load())
}
