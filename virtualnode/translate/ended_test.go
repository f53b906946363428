package translate

import (
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestAPodThatSomebodyThereMakesEndHasNotEndedByItself(t *testing.T) {
	leaving := func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{} }
	runs := phased(corev1.PodRunning)
	task := func(p *corev1.Pod) { p.Spec.RestartPolicy = corev1.RestartPolicyOnFailure }
	for name, test := range map[string]struct {
		home, remote *corev1.Pod
		want         corev1.PodPhase
	}{
		"it ended well":                    {homePod(runs), remotePod(corev1.PodSucceeded, leaving), corev1.PodRunning},
		"it failed":                        {homePod(runs), remotePod(corev1.PodFailed, leaving), corev1.PodRunning},
		"a task that is done":              {homePod(runs, task), remotePod(corev1.PodSucceeded, leaving), corev1.PodSucceeded},
		"a task that is not done":          {homePod(runs, task), remotePod(corev1.PodFailed, leaving), corev1.PodRunning},
		"home makes it end too":            {homePod(runs, leaving), remotePod(corev1.PodSucceeded, leaving), corev1.PodSucceeded},
		"it had ended before":              {homePod(phased(corev1.PodFailed)), remotePod(corev1.PodFailed, leaving), corev1.PodFailed},
		"it is being deleted and runs yet": {homePod(), remotePod(corev1.PodRunning, leaving), corev1.PodRunning},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, test.want, Status(Seen{Home: test.home, Remote: test.remote}).Phase)
		})
	}
}
