package processes

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func TestASecondPodIsKeptFromAVolumeForOne(t *testing.T) {
	p := New(Config{Disks: Disks{Root: t.TempDir()}, Dir: t.TempDir()})
	t.Cleanup(p.EndAll)
	volume := func(name string, mode corev1.PersistentVolumeAccessMode) map[string]*corev1.PersistentVolume {
		return map[string]*corev1.PersistentVolume{"data": {ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PersistentVolumeSpec{
			AccessModes:            []corev1.PersistentVolumeAccessMode{mode},
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "disk.test", VolumeHandle: "one"}},
		}}}
	}
	pod := func(name string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID(name)}, Spec: corev1.PodSpec{
			Containers: []corev1.Container{{Name: "app", Image: Shell, Command: []string{"sleep", "60"}}},
		}}
	}
	run := func(name, leads string, mode corev1.PersistentVolumeAccessMode) error {
		_, err := p.Run(t.Context(), pod(name), volume(leads, mode))
		return err
	}
	require.NoError(t, run("first", "virtual", corev1.ReadWriteOncePod))
	require.NoError(t, run("first", "virtual", corev1.ReadWriteOncePod), "it is the one")
	require.ErrorContains(t, run("second", "real", corev1.ReadWriteOncePod), "in use by pod first")
	assert.NoError(t, run("other", "shared", corev1.ReadWriteOnce), "a node lets several pods use those")
	p.End("shop", "first")
	assert.NoError(t, run("second", "real", corev1.ReadWriteOncePod))
}
