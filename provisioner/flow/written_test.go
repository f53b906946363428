package flow

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func TestWrittenStandsInUntilTheInformerShowsIt(t *testing.T) {
	claim := func(uid, version string) *corev1.PersistentVolumeClaim {
		return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "data", UID: types.UID(uid), ResourceVersion: version}}
	}
	created, marked := claim("a", "5"), claim("a", "7")
	for _, row := range []struct {
		name               string
		seen, over, result *corev1.PersistentVolumeClaim
		age                time.Duration
		want               *corev1.PersistentVolumeClaim
	}{
		{name: "created and not seen yet", result: created, want: created},
		{name: "created and seen since", result: created, seen: claim("a", "6"), want: claim("a", "6")},
		{name: "created long ago and not there: it was deleted", result: created, age: time.Hour},
		{name: "changed and not seen yet", seen: claim("a", "5"), over: claim("a", "5"), result: marked, want: marked},
		{name: "changed and something newer seen", seen: claim("a", "9"), over: claim("a", "5"), result: marked, want: claim("a", "9")},
		{name: "changed and replaced by another", seen: claim("b", "5"), over: claim("a", "5"), result: marked, want: claim("b", "5")},
		{name: "changed and gone since", over: claim("a", "5"), result: marked},
	} {
		t.Run(row.name, func(t *testing.T) {
			w := written{claims: map[place]write{}}
			w.set("claim", "west", row.over, row.result)
			assert.Equal(t, row.want, w.latest("claim", "west", row.seen, time.Now().Add(row.age)))
			assert.Nil(t, w.latest("claim", "home", nil, time.Now()), "another cluster")
			w.drop("claim", "west")
			assert.Equal(t, row.seen, w.latest("claim", "west", row.seen, time.Now()))
		})
	}
}

func TestWrittenKeepsNothingThatARemoteClusterSaysOfAnotherClaim(t *testing.T) {
	claim := func(name, uid string) *corev1.PersistentVolumeClaim {
		return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: name, UID: types.UID(uid), ResourceVersion: "1", Labels: map[string]string{"a": "b"}}}
	}
	for name, result := range map[string]*corev1.PersistentVolumeClaim{"another name": claim("other", "a"), "another UID": claim("data", "b"), "no UID": claim("data", "")} {
		w := written{claims: map[place]write{}}
		w.set("claim", "west", claim("data", "a"), result)
		assert.Equal(t, claim("data", "a"), w.latest("claim", "west", claim("data", "a"), time.Now()), name)
	}
	w := written{claims: map[place]write{}}
	w.set("claim", "west", nil, claim("data", "a/b"))
	assert.Empty(t, w.latest("claim", "west", nil, time.Now()).Labels, "what is broken is nobody's")
}

// Two writes in a row, and the informer shows neither of them yet, or the first.
func TestWrittenTwiceStandsInUntilTheInformerShowsBoth(t *testing.T) {
	claim := func(version string) *corev1.PersistentVolumeClaim {
		return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "data", UID: "a", ResourceVersion: version}}
	}
	w := written{claims: map[place]write{}}
	w.set("claim", "west", nil, claim("5"))
	w.set("claim", "west", claim("5"), claim("7"))
	assert.Equal(t, claim("7"), w.latest("claim", "west", nil, time.Now()), "neither is seen: without it a second one would be created")
	assert.Equal(t, claim("7"), w.latest("claim", "west", claim("5"), time.Now()), "the first is seen")
	assert.Equal(t, claim("10"), w.latest("claim", "west", claim("10"), time.Now()), "something newer is seen")
	assert.Nil(t, w.latest("claim", "west", nil, time.Now()), "then it is gone")

	w.set("claim", "west", claim("9"), claim("10"))
	w.set("claim", "west", claim("10"), claim("11"))
	assert.Equal(t, claim("11"), w.latest("claim", "west", claim("9"), time.Now()), "the informer is two behind")
	assert.Nil(t, w.latest("claim", "west", nil, time.Now()), "what had been seen and is not there is gone")
}
