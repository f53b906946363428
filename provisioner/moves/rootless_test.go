package moves

import (
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/provisioner/copying/movers"
)

func TestAMoverWithoutRootRunsAsAllPodsDoThatUseItsClaim(t *testing.T) {
	as := func(name string, pod *corev1.PodSecurityContext, container *corev1.SecurityContext) corev1.Pod {
		p := user("shop", name, "data", "n")
		p.Spec.SecurityContext = pod
		p.Spec.Containers = []corev1.Container{
			{Name: "app", SecurityContext: container, VolumeMounts: []corev1.VolumeMount{{Name: p.Spec.Volumes[0].Name}}},
			{Name: "beside", SecurityContext: &corev1.SecurityContext{RunAsUser: ptr.To(int64(7))}},
		}
		return *p
	}
	id := func(n int64) *int64 { return &n }
	whole := &corev1.PodSecurityContext{RunAsUser: id(1), RunAsGroup: id(2), FSGroup: id(3), SupplementalGroups: []int64{4}}
	ended := as("ended", &corev1.PodSecurityContext{RunAsUser: id(9)}, nil)
	ended.Status.Phase = corev1.PodSucceeded
	for name, row := range map[string]struct {
		pods []corev1.Pod
		want *movers.User
		why  string
	}{
		"of the pod": {pods: []corev1.Pod{as("a", whole, nil)}, want: &movers.User{ID: 1, Group: id(2), Groups: []int64{4}, FSGroup: id(3)}},
		"of the container": {pods: []corev1.Pod{as("a", whole, &corev1.SecurityContext{RunAsUser: id(5), RunAsGroup: id(6)})},
			want: &movers.User{ID: 5, Group: id(6), Groups: []int64{4}, FSGroup: id(3)}},
		"of two pods that are alike": {pods: []corev1.Pod{as("a", whole, nil), as("b", whole, nil)},
			want: &movers.User{ID: 1, Group: id(2), Groups: []int64{4}, FSGroup: id(3)}},
		"a pod that has ended does not count": {pods: []corev1.Pod{ended, as("a", &corev1.PodSecurityContext{RunAsUser: id(1)}, nil)},
			want: &movers.User{ID: 1}},
		"two users": {pods: []corev1.Pod{as("a", whole, nil), as("b", &corev1.PodSecurityContext{RunAsUser: id(9)}, nil)},
			why: "run as several users"},
		"a user of the image": {pods: []corev1.Pod{as("a", &corev1.PodSecurityContext{RunAsNonRoot: ptr.To(true)}, nil)},
			why: "does not say as which user it runs"},
		"root":   {pods: []corev1.Pod{as("a", &corev1.PodSecurityContext{RunAsUser: id(0)}, nil)}, why: "runs as root: move without rootless"},
		"no pod": {pods: []corev1.Pod{ended}, why: "no pod uses claim"},
	} {
		t.Run(name, func(t *testing.T) {
			found, err := userOf("data", row.pods)
			assert.Equal(t, row.want, found)
			if row.why == "" {
				assert.NoError(t, err)
			} else {
				assert.ErrorContains(t, err, row.why)
			}
		})
	}
}
