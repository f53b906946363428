package moves

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/provisioner/moves/decide"
	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
)

// stating is a pod with a level, of which one container uses claim data and states another
// level, if it is to.
func stating(pod, container string) *corev1.Pod {
	made := user("shop", "db-0", "data", "home-1")
	made.Spec.Volumes[0].Name = "files"
	options := func(level string) *corev1.SELinuxOptions {
		return &corev1.SELinuxOptions{User: "system_u", Role: "system_r", Type: "spc_t", Level: level}
	}
	made.Spec.SecurityContext = &corev1.PodSecurityContext{SELinuxOptions: options(pod)}
	made.Spec.Containers = []corev1.Container{
		{Name: "other", SecurityContext: &corev1.SecurityContext{SELinuxOptions: options("s0:c9")}},
		{Name: "db", VolumeMounts: []corev1.VolumeMount{{Name: "files"}}, SecurityContext: &corev1.SecurityContext{SELinuxOptions: options(container)}},
	}
	return made
}

func TestTheLevelIsThatOfContainersThatUseTheClaim(t *testing.T) {
	for name, row := range map[string]struct {
		pod, container string
		want           []string
	}{
		"the pod's":           {"s0:c1,c2", "", []string{"s0:c1,c2"}},
		"the container's":     {"s0:c1,c2", "s0:c3", []string{"s0:c3"}},
		"none":                {"", "", nil},
		"one that is none":    {"spc_t", "", nil},
		"one without end":     {"s0:" + strings.Repeat("c1,", 100), "", nil},
		"one with a range":    {"s0-s0:c0.c1023", "", []string{"s0-s0:c0.c1023"}},
		"several in one text": {"s0:c1\ns0:c2", "", nil},
	} {
		t.Run(name, func(t *testing.T) {
			spec := stating(row.pod, row.container).Spec
			assert.Equal(t, row.want, levels(&spec, "data"))
			assert.Empty(t, levels(&spec, "log"))
		})
	}
	spec := stating("s0:c1", "").Spec
	spec.Containers[1].VolumeDevices, spec.Containers[1].VolumeMounts = []corev1.VolumeDevice{{Name: "files"}}, nil
	assert.Equal(t, []string{"s0:c1"}, levels(&spec, "data"), "a block volume")
	assert.Empty(t, levels(&user("shop", "a", "data", "n").Spec, "data"))
}

func TestAMoverAtTheSourceHasTheLevelOfThePodsAndNothingElseOfThem(t *testing.T) {
	r := recordIn(v1alpha1.MovePreCopy)
	r.Namespace = "shop"
	c := New(Config{Client: fake.NewClientset(stating("s0:c1,c2", "")), Registry: NewRegistry(), Node: func(string) *corev1.Node { return nil }})
	o := decide.Observation{Record: r, Claims: make([]decide.Claim, 1), Unusable: map[record.End]string{}}
	require.NoError(t, c.observeUsers(t.Context(), &o))
	assert.Equal(t, []string{"s0:c1,c2"}, o.Claims[0].Levels)

	assert.Nil(t, c.moverSpec(r, 0, record.Source, "").SecurityContext.SELinuxOptions, "none is known")
	r.Claims[0].Level, r.Claims[0].Snapshot = "s0:c1,c2", &record.Snapshot{}
	for _, end := range []record.End{record.Source, record.Snapped} {
		assert.Equal(t, &corev1.SELinuxOptions{Level: "s0:c1,c2"}, c.moverSpec(r, 0, end, "").SecurityContext.SELinuxOptions)
	}
	assert.Nil(t, c.moverSpec(r, 0, record.Target, "").SecurityContext.SELinuxOptions)
}
