package translate

import (
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
)

func TestGenericEphemeralVolumesUseTheClaimsThatHomeMade(t *testing.T) {
	pod := homePod(func(p *corev1.Pod) {
		p.Spec.Volumes = []corev1.Volume{
			{Name: "scratch", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{}}}},
			{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data", ReadOnly: true}}},
			{Name: "empty", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
		}
	})
	before := pod.DeepCopy()
	assert.Equal(t, []corev1.Volume{
		{Name: "scratch", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "db-0-scratch"}}},
		pod.Spec.Volumes[1], pod.Spec.Volumes[2],
	}, Template(pod, same).Spec.Volumes)
	assert.Equal(t, before, pod)
}

func TestClaimsThatHaveAnotherNameThereKeepIt(t *testing.T) {
	claim := func(name, claim string) corev1.Volume {
		return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}}
	}
	pod := homePod(func(p *corev1.Pod) {
		p.Spec.Volumes = []corev1.Volume{claim("data", "data"), claim("again", "data"), claim("log", "log"),
			{Name: "empty", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
	})
	first := Template(pod, same)
	Rename(&first, map[string]string{"data": "pvc-u1-1", "log": "log", "other": "x"})
	want := []corev1.Volume{claim("data", "pvc-u1-1"), claim("again", "pvc-u1-1"), claim("log", "log"), pod.Spec.Volumes[3]}
	assert.Equal(t, want, first.Spec.Volumes)

	later := Template(pod, same)
	KeepClaims(&later, first)
	assert.Equal(t, want, later.Spec.Volumes)
	untouched := Template(pod, same)
	KeepClaims(&untouched, corev1.PodTemplateSpec{})
	assert.Equal(t, pod.Spec.Volumes, untouched.Spec.Volumes)
}
