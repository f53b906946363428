package pods

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
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
			l := newLatest[*corev1.Pod]()
			if test.written != nil {
				l.set("u", test.written)
			}
			assert.Equal(t, test.want, l.newer("u", test.seen))
		})
	}
}

func TestAShadowPodThatIsNotSeenIsBelievedForAWhile(t *testing.T) {
	written := &shadowPod{ObjectMeta: metav1.ObjectMeta{UID: "s", ResourceVersion: "3"}}
	w := newShadowWrites()
	assert.Nil(t, w.of("u", nil))
	w.set("u", written)
	assert.Equal(t, written, w.of("u", nil), "the watch has not shown it yet")
	w.gone("u", "other")
	assert.Equal(t, written, w.of("u", nil))
	w.gone("u", "s")
	assert.Nil(t, w.of("u", nil), "the watch showed that it was deleted")
	w.set("u", written)
	assert.Nil(t, w.of("u", nil), "an answer that came after that is not believed")

	written = &shadowPod{ObjectMeta: metav1.ObjectMeta{UID: "s2", ResourceVersion: "5"}}
	w.set("u", written)
	w.mu.Lock()
	w.objects["u"] = entry[*shadowPod]{object: written, at: time.Now().Add(-time.Hour)}
	w.mu.Unlock()
	assert.Nil(t, w.of("u", nil), "it was deleted before the watch could show it")
}

func TestStatusPatchHoldsOnlyWhatDiffers(t *testing.T) {
	was := corev1.PodStatus{
		Phase: corev1.PodPending, QOSClass: corev1.PodQOSBurstable, Message: "old", PodIP: "10.0.0.1", PodIPs: []corev1.PodIP{{IP: "10.0.0.1"}},
		Conditions: []corev1.PodCondition{{Type: "A", Status: "True"}, {Type: "B", Status: "True"}},
	}
	is := corev1.PodStatus{
		Phase: corev1.PodRunning, QOSClass: corev1.PodQOSBurstable,
		Conditions: []corev1.PodCondition{{Type: "A", Status: "True"}, {Type: "B", Status: "False"}},
	}
	patch, err := statusPatch(was, is)
	require.NoError(t, err)
	assert.Equal(t, []string{"status"}, keysOf(patch))
	assert.NotContains(t, patch["status"], "qosClass")

	before, err := json.Marshal(corev1.Pod{Status: was})
	require.NoError(t, err)
	data, err := json.Marshal(patch)
	require.NoError(t, err)
	after, err := strategicpatch.StrategicMergePatch(before, data, corev1.Pod{})
	require.NoError(t, err)
	var got corev1.Pod
	require.NoError(t, json.Unmarshal(after, &got))
	assert.Equal(t, corev1.PodRunning, got.Status.Phase)
	assert.Empty(t, got.Status.Message)
	assert.Empty(t, got.Status.PodIPs)
	assert.Equal(t, is.Conditions, got.Status.Conditions)
}

func keysOf(m map[string]any) []string {
	var names []string
	for name := range m {
		names = append(names, name)
	}
	return names
}
