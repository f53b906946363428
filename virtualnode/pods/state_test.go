package pods

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func versioned(uid types.UID, version string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: uid, ResourceVersion: version}}
}

func TestTheNewerOfSeenAndWrittenCounts(t *testing.T) {
	for name, test := range map[string]struct{ seen, written, want *corev1.Pod }{
		"nothing was written":               {seen: versioned("u", "5"), want: versioned("u", "5")},
		"the watch is behind":               {seen: versioned("u", "9"), written: versioned("u", "10"), want: versioned("u", "10")},
		"the watch shows the write":         {seen: versioned("u", "10"), written: versioned("u", "10"), want: versioned("u", "10")},
		"somebody wrote later":              {seen: versioned("u", "11"), written: versioned("u", "10"), want: versioned("u", "11")},
		"another object has the name":       {seen: versioned("v", "9"), written: versioned("u", "10"), want: versioned("v", "9")},
		"versions that cannot be compared":  {seen: versioned("u", "x"), written: versioned("u", "10"), want: versioned("u", "x")},
		"a version that is longer is newer": {seen: versioned("u", "99"), written: versioned("u", "100"), want: versioned("u", "100")},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStates()
			if test.written != nil {
				s.wroteHome(key{uid: "u"}, test.written)
			}
			assert.Equal(t, test.want, s.home(key{uid: "u"}, test.seen))
		})
	}
}

func TestAShadowPodThatIsNotSeenIsBelievedForAWhile(t *testing.T) {
	written := &shadowPod{ObjectMeta: metav1.ObjectMeta{UID: "s", ResourceVersion: "3"}}
	s, k := newStates(), key{uid: "u"}
	assert.Nil(t, s.shadow(k, nil))
	s.wroteShadow(k, written)
	assert.Equal(t, written, s.shadow(k, nil), "the watch has not shown it yet")
	s.shadowDeleted(k, "other")
	assert.Equal(t, written, s.shadow(k, nil))
	s.shadowDeleted(k, "s")
	assert.Nil(t, s.shadow(k, nil), "the watch showed that it was deleted")
	s.wroteShadow(k, written)
	assert.Nil(t, s.shadow(k, nil), "an answer that came after that is not believed")

	written = &shadowPod{ObjectMeta: metav1.ObjectMeta{UID: "s2", ResourceVersion: "5"}}
	s.wroteShadow(k, written)
	s.pods[k].shadowAt = time.Now().Add(-time.Hour)
	assert.Nil(t, s.shadow(k, nil), "it was deleted before the watch could show it")
}

func TestAControllerGetsALongerPauseWithEachPodThatIsReplaced(t *testing.T) {
	s, now := newStates(), time.Now()
	assert.True(t, s.mayReplace("set", now), "at first at once")
	pause := firstPause
	for range 20 {
		s.replaced("set", now)
		assert.True(t, s.mayReplace("other", now), "each controller has a pause of its own")
		assert.False(t, s.mayReplace("set", now.Add(pause-1)))
		assert.True(t, s.mayReplace("set", now.Add(pause)))
		now, pause = now.Add(pause), min(2*pause, lastPause)
	}
	assert.Equal(t, lastPause, pause)
	s.replaced("other", now.Add(3*lastPause))
	assert.Len(t, s.replacements, 1, "what is long over is forgotten")
}
