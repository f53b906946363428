package pods

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/virtualnode/decide"
)

func shadowOf(uid types.UID, home string, pod types.UID, start bool) *shadowPod {
	return &shadowPod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "remote.lodestone.dev/v1alpha1", Kind: "ShadowPod"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db-0", UID: uid, Labels: map[string]string{keys.HomeID: home, keys.PodUID: string(pod)}},
		Spec:       remotev1alpha1.ShadowPodSpec{Start: start, Home: remotev1alpha1.HomePod{Cluster: home, Namespace: "shop", Name: "db-0", UID: pod}},
	}
}

func homePodOn(node string, uid types.UID) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db-0", UID: uid,
			Annotations: map[string]string{keys.RemoteCopy: decide.Copy{ClusterUID: "west-uid", ShadowUID: "s1"}.String()}},
		Spec: corev1.PodSpec{NodeName: node},
	}
}

func TestACopyIsGoneOnlyWhenNothingOfThisPodIsThere(t *testing.T) {
	pod := func(home string) []corev1.Pod {
		return []corev1.Pod{{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db-0", Labels: map[string]string{keys.HomeID: home, keys.PodUID: "u1"}}}}
	}
	for name, test := range map[string]struct {
		shadow *shadowPod
		pods   []corev1.Pod
		want   bool
	}{
		"nothing is there":       {want: true},
		"its ShadowPod is there": {shadow: shadowOf("s1", "h1", "u1", true)},
		"its ShadowPod is there, from when home had another ID": {shadow: shadowOf("s1", "h0", "u1", true)},
		"its pod is there": {pods: pod("h1")},
		"its pod is there, from when home had another ID": {pods: pod("h0")},
		"another ShadowPod of it runs":                    {shadow: shadowOf("s2", "h1", "u1", true)},
		"another ShadowPod of it never ran":               {shadow: shadowOf("s2", "h1", "u1", false), want: true},
		"the ShadowPod of another pod has the name":       {shadow: shadowOf("s2", "h1", "u2", true), want: true},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRunner(t, &there{shadow: test.shadow, pods: test.pods})
			gone, err := r.gone(t.Context(), key{uid: "u1", namespace: "shop", name: "db-0"}, homePodOn("west", "u1"))
			require.NoError(t, err)
			assert.Equal(t, test.want, gone)
		})
	}
}
