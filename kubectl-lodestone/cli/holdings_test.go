package cli

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/keys"
)

func TestPodsThatKeepAPeering(t *testing.T) {
	owned := func(kind string) []metav1.OwnerReference {
		return []metav1.OwnerReference{{Kind: kind, Controller: ptr.To(true)}}
	}
	for name, test := range map[string]struct {
		pod  corev1.Pod
		want bool
	}{
		"one that runs": {pod: corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodRunning}}, want: true},
		"one of a ReplicaSet": {pod: corev1.Pod{ObjectMeta: metav1.ObjectMeta{OwnerReferences: owned("ReplicaSet")}},
			want: true},
		"one that has ended": {pod: corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodSucceeded}}},
		"a daemon":           {pod: corev1.Pod{ObjectMeta: metav1.ObjectMeta{OwnerReferences: owned("DaemonSet")}}},
		"one that has ended but may run there": {pod: corev1.Pod{ObjectMeta: metav1.ObjectMeta{Finalizers: []string{keys.RemotePodFinalizer}},
			Status: corev1.PodStatus{Phase: corev1.PodFailed}}, want: true},
	} {
		t.Run(name, func(t *testing.T) { assert.Equal(t, test.want, KeepsPeering(&test.pod)) })
	}
}

func TestLinesAreBounded(t *testing.T) {
	held := Holdings{Pods: []corev1.Pod{{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-0"},
		Status: corev1.PodStatus{Phase: corev1.PodRunning}}}}
	for i := range maxLines + 2 {
		held.Volumes = append(held.Volumes, corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("pvc-%02d", i)}})
	}
	lines := held.Lines()
	assert.Len(t, lines, maxLines+2)
	assert.Equal(t, "and 2 more volumes", lines[maxLines])
	assert.Equal(t, "pod shop/web-0 (Running)", lines[maxLines+1])
	assert.Equal(t, "22 volumes and 1 pod", held.String())
	assert.Equal(t, "0 volumes and 0 pods", Holdings{}.String())
	assert.False(t, held.Empty())
	assert.True(t, Holdings{}.Empty())
}

func TestAPodUsesTheClaimsThatItMounts(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: corev1.PodSpec{Volumes: []corev1.Volume{
		{Name: "a", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}},
		{Name: "scratch", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}},
		{Name: "tmp", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
	}}}
	assert.True(t, UsesClaim(pod, "data"))
	assert.True(t, UsesClaim(pod, "web-scratch"))
	assert.False(t, UsesClaim(pod, "a"))
	assert.False(t, UsesClaim(pod, "web-tmp"))
	pod.Status.Phase = corev1.PodSucceeded
	assert.False(t, UsesClaim(pod, "data"))
}
