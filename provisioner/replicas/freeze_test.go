package replicas

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// database is a pod with a sidecar, whose second container mounts claim data.
func database(change ...func(*corev1.Pod)) *corev1.Pod {
	running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	pod := &corev1.Pod{
		Spec: corev1.PodSpec{
			Volumes: []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}},
			Containers: []corev1.Container{{Name: "proxy"}, {Name: "db", VolumeMounts: []corev1.VolumeMount{{Name: "v"}}}},
		},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{
			{Name: "proxy", State: running}, {Name: "db", State: running}}},
	}
	for _, one := range change {
		one(pod)
	}
	return pod
}

func TestWhatRunsInAPodCanBeFrozen(t *testing.T) {
	for name, row := range map[string]struct {
		pod             *corev1.Pod
		wanted          string
		container, says string
	}{
		"the first container that mounts the claim": {pod: database(), container: "db"},
		"one that is named":                         {pod: database(), wanted: "proxy", container: "proxy"},
		"one that mounts it as a device": {pod: database(func(p *corev1.Pod) {
			p.Spec.Containers[0].VolumeDevices = []corev1.VolumeDevice{{Name: "v"}}
		}), container: "proxy"},
		"none of that name": {pod: database(), wanted: "web", says: "has no container web: name another in spec.hooks.container"},
		"none mounts it": {pod: database(func(p *corev1.Pod) { p.Spec.Containers[1].VolumeMounts = nil }),
			says: "has no container that mounts the claim"},
		"it is ending": {pod: database(func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{} }), says: "is ending"},
		"it is starting": {pod: database(func(p *corev1.Pod) { p.Status = corev1.PodStatus{Phase: corev1.PodPending} }),
			says: "does not run yet"},
		"an init container may write": {pod: database(func(p *corev1.Pod) { p.Status.Phase = corev1.PodPending }), says: "does not run yet"},
		"its container crashes": {pod: database(func(p *corev1.Pod) { p.Status.ContainerStatuses[1].State = corev1.ContainerState{} }),
			says: "has container db, which does not run"},
	} {
		t.Run(name, func(t *testing.T) {
			container, why := freezable(row.pod, row.wanted, []string{"wal", "data"})
			assert.Contains(t, why, row.says)
			assert.Equal(t, row.says == "", why == "", why)
			assert.Equal(t, row.container, container)
		})
	}
}

func TestAPodIsNotTheSameAfterAContainerRestarted(t *testing.T) {
	was := stateOf(database())
	assert.Equal(t, was, stateOf(database()))
	assert.Equal(t, was, stateOf(database(func(p *corev1.Pod) { p.Status.ContainerStatuses[1].Ready = true })),
		"that it is ready says nothing")
	for name, change := range map[string]func(*corev1.Pod){
		"one restarted":       func(p *corev1.Pod) { p.Status.ContainerStatuses[1].RestartCount++ },
		"another one runs":    func(p *corev1.Pod) { p.Status.ContainerStatuses[0].ContainerID = "containerd://b" },
		"one ended":           func(p *corev1.Pod) { p.Status.ContainerStatuses[0].State = corev1.ContainerState{} },
		"somebody looks into": func(p *corev1.Pod) { p.Status.EphemeralContainerStatuses = p.Status.ContainerStatuses[:1] },
	} {
		assert.NotEqual(t, was, stateOf(database(change)), name)
	}
}

func TestWhatACommandSaysIsReadToItsEndAndCutOff(t *testing.T) {
	said := &output{}
	for range 100 {
		n, err := said.Write([]byte("a\033[31m\nb "))
		assert.Equal(t, 9, n)
		assert.NoError(t, err)
	}
	text := said.text()
	assert.LessOrEqual(t, len(text), mostOutput)
	assert.NotContains(t, text, "\033")
	assert.NotContains(t, text, "\n")
	assert.True(t, strings.HasPrefix(text, "a"), text)
}
