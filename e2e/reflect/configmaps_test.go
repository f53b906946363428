package reflect

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

func TestConfigMapFollowsThePodThatNamesIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t, v1alpha1.Isolated)
	w.open()
	w.start(nil)
	configMaps := home.Client().CoreV1().ConfigMaps(w.namespace)
	settings := w.configMap("settings", "one")
	w.configMap("other", "x")
	w.pod("a", mounts("settings", ""))
	w.pod("b", mounts("settings", ""))
	has := func(value string) func() bool {
		return func() bool {
			configMap := w.awayConfigMap("settings")
			return configMap != nil && configMap.Data["key"] == value
		}
	}
	w.eventually("the copy is there", has("one"))
	copied := w.awayConfigMap("settings")
	assert.Equal(t, map[string]string{keys.HomeID: w.homeID, keys.Reflected: string(settings.UID)}, copied.Labels)
	assert.Empty(t, copied.Annotations)
	assert.Equal(t, settings.BinaryData, copied.BinaryData)

	settings.Data["key"] = "two"
	_, err := configMaps.Update(t.Context(), settings, metav1.UpdateOptions{})
	require.NoError(t, err)
	w.eventually("the copy follows", has("two"))

	copied = w.awayConfigMap("settings")
	copied.Data["key"] = "tampered"
	_, err = west.Client().CoreV1().ConfigMaps(w.away).Update(t.Context(), copied, metav1.UpdateOptions{})
	require.NoError(t, err)
	w.eventually("a change there is put right", has("two"))

	require.NoError(t, west.Client().CoreV1().ConfigMaps(w.away).Delete(t.Context(), "settings", metav1.DeleteOptions{}))
	w.eventually("a copy deleted there is made again", has("two"))

	require.NoError(t, configMaps.Delete(t.Context(), "settings", metav1.DeleteOptions{}))
	w.eventually("the copy goes with the original", func() bool { return w.awayConfigMap("settings") == nil })
	w.configMap("settings", "three")
	w.eventually("another one of the name follows too", has("three"))

	w.endPod("a")
	w.consistently("the copy stays while a pod needs it", func() bool { return w.awayConfigMap("settings") != nil })
	w.endPod("b")
	w.eventually("the copy goes with the last pod", func() bool { return w.awayConfigMap("settings") == nil })
	assert.Nil(t, w.awayConfigMap("other"), "what no pod names stays at home")
}

func TestImmutableConfigMapIsReplaced(t *testing.T) {
	t.Parallel()
	w := newWorld(t, v1alpha1.Isolated)
	w.open()
	w.start(nil)
	configMaps := home.Client().CoreV1().ConfigMaps(w.namespace)
	settings := w.configMap("settings", "one")
	settings.Immutable = ptr.To(true)
	_, err := configMaps.Update(t.Context(), settings, metav1.UpdateOptions{})
	require.NoError(t, err)
	w.pod("a", mounts("settings", ""))
	w.eventually("the copy is there", func() bool {
		configMap := w.awayConfigMap("settings")
		return configMap != nil && ptr.Deref(configMap.Immutable, false)
	})
	before := w.awayConfigMap("settings")

	require.NoError(t, configMaps.Delete(t.Context(), "settings", metav1.DeleteOptions{}))
	w.configMap("settings", "two")
	w.eventually("the copy is that of the new one", func() bool {
		configMap := w.awayConfigMap("settings")
		return configMap != nil && configMap.Data["key"] == "two"
	})
	assert.NotEqual(t, before.UID, w.awayConfigMap("settings").UID)
}

func TestForeignConfigMapIsLeftAlone(t *testing.T) {
	t.Parallel()
	w := newWorld(t, v1alpha1.Isolated)
	theirs, err := west.Client().CoreV1().ConfigMaps(w.away).Create(t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "settings"}, Data: map[string]string{"key": "theirs"},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	w.open()
	w.start(nil)
	w.configMap("settings", "ours")
	w.pod("a", mounts("settings", ""))
	assert.Contains(t, w.told("a", "NameTaken"), "left alone")
	w.endPod("a")
	w.consistently("the ConfigMap there is untouched", func() bool {
		now := w.awayConfigMap("settings")
		return now != nil && now.UID == theirs.UID && now.ResourceVersion == theirs.ResourceVersion
	})
}

func TestNothingIsCopiedBeforeThePodIsAcceptedAndTheNamespaceReady(t *testing.T) {
	t.Parallel()
	w := newWorld(t, v1alpha1.Isolated)
	w.start(nil)
	w.configMap("settings", "one")
	w.configMap("others", "one")
	w.pod("a", mounts("settings", ""))
	w.pod("b", func(pod *corev1.Pod) {
		mounts("others", "")(pod)
		pod.Finalizers = nil
	})
	w.consistently("nothing is there before the namespace can be used", func() bool { return w.awayConfigMap("settings") == nil })
	w.open()
	w.eventually("the copy is there", func() bool { return w.awayConfigMap("settings") != nil })
	w.consistently("what only a pod needs that was not accepted is not there", func() bool { return w.awayConfigMap("others") == nil })

	request, err := w.requests.Get(t.Context(), w.away, metav1.GetOptions{})
	require.NoError(t, err)
	w.setReady(request, metav1.ConditionFalse)
	w.configMap("late", "one")
	w.pod("c", mounts("late", ""))
	w.consistently("nothing is written while the namespace is not ready", func() bool { return w.awayConfigMap("late") == nil })
	request, err = w.requests.Get(t.Context(), w.away, metav1.GetOptions{})
	require.NoError(t, err)
	w.setReady(request, metav1.ConditionTrue)
	w.eventually("the copy is there once it is", func() bool { return w.awayConfigMap("late") != nil })
}
