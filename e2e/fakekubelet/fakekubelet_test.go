package fakekubelet

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

func TestCheckMount(t *testing.T) {
	home := mountPoint{labels: map[string]string{"zone": "a"}, drivers: map[string]int32{"disk": 0}}
	west := mountPoint{labels: map[string]string{"zone": "a"}, clusterID: "west"}
	change := func(f func(*corev1.PersistentVolumeClaim, *corev1.PersistentVolume)) func(*corev1.PersistentVolumeClaim,
		*corev1.PersistentVolume) {
		return f
	}
	remote := func(handle string) func(*corev1.PersistentVolumeClaim, *corev1.PersistentVolume) {
		return func(_ *corev1.PersistentVolumeClaim, v *corev1.PersistentVolume) {
			v.Spec.CSI.Driver, v.Spec.CSI.VolumeHandle = "lodestone.dev", handle
		}
	}
	tests := []struct {
		name          string
		at            mountPoint
		change        func(*corev1.PersistentVolumeClaim, *corev1.PersistentVolume)
		want          string
		wantViolation bool
	}{
		{name: "a bound volume that the node can reach is mounted", at: home},
		{
			name: "a pod waits for its claim to be bound", at: home, want: "is not bound",
			change: change(func(c *corev1.PersistentVolumeClaim, _ *corev1.PersistentVolume) {
				c.Status.Phase = corev1.ClaimPending
			}),
		},
		{
			name: "a claim that is being deleted is not mounted", at: home, want: "is being deleted",
			change: change(func(c *corev1.PersistentVolumeClaim, _ *corev1.PersistentVolume) {
				c.DeletionTimestamp = &metav1.Time{}
			}),
		},
		{
			name: "a volume bound to an older claim of that name is not mounted", at: home, want: "is not bound to claim", wantViolation: true,
			change: change(func(_ *corev1.PersistentVolumeClaim, v *corev1.PersistentVolume) { v.Spec.ClaimRef.UID = "older" }),
		},
		{
			name: "a volume of another zone is not mounted", at: mountPoint{labels: map[string]string{"zone": "b"}, drivers: home.drivers},
			want: "cannot be reached", wantViolation: true,
		},
		{
			name: "a volume is not mounted without its driver", at: mountPoint{labels: home.labels},
			want: "no CSI driver disk", wantViolation: true,
		},
		{
			name: "a remote volume is never mounted at home", at: home, change: remote("west/ns/data/uid"),
			want: "in a remote cluster", wantViolation: true,
		},
		{
			name:   "a remote volume is not mounted at home even if a node claims to have the driver",
			at:     mountPoint{labels: home.labels, drivers: map[string]int32{"lodestone.dev": 0}},
			change: remote("west/ns/data/uid"), want: "in a remote cluster", wantViolation: true,
		},
		{name: "a remote volume is mounted in its cluster", at: west, change: remote("west/ns/data/uid")},
		{
			name: "a remote volume is not mounted in another cluster", at: west, change: remote("west2/ns/data/uid"),
			want: "not in cluster west", wantViolation: true,
		},
		{name: "a volume of home is not mounted in a remote cluster", at: west, want: "not in cluster west", wantViolation: true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			pod, claim, volume := mounted()
			if test.change != nil {
				test.change(claim, volume)
			}
			found := checkMount(pod, pod.Spec.Volumes[0], claim, volume, test.at)
			if test.want == "" {
				require.Nil(t, found)
				return
			}
			require.NotNil(t, found)
			assert.Contains(t, found.message, test.want)
			assert.Equal(t, test.wantViolation, found.violation)
			assert.Equal(t, "data", found.claim)
		})
	}
}

func TestCheckMountOfWhatDoesNotExist(t *testing.T) {
	pod, claim, _ := mounted()
	assert.Contains(t, checkMount(pod, pod.Spec.Volumes[0], nil, nil, mountPoint{}).message, "does not exist")
	assert.Contains(t, checkMount(pod, pod.Spec.Volumes[0], claim, nil, mountPoint{}).message, "does not exist")
}

func TestEphemeralClaimMustBelongToThePod(t *testing.T) {
	pod, claim, volume := mounted()
	source := corev1.Volume{Name: "scratch", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}}
	name, ok := claimName(pod, source)
	require.True(t, ok)
	require.Equal(t, "web-scratch", name)
	found := checkMount(pod, source, claim, volume, mountPoint{})
	require.NotNil(t, found)
	assert.Contains(t, found.message, "was not made for this pod")
}

// mounted is a pod that mounts a claim bound to a volume of driver disk in zone a.
func mounted() (*corev1.Pod, *corev1.PersistentVolumeClaim, *corev1.PersistentVolume) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", UID: "pod"}}
	pod.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"},
	}}}
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: "data", UID: "claim"},
		Spec:       corev1.PersistentVolumeClaimSpec{VolumeName: "pv"},
		Status:     corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound},
	}
	volume := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"}}
	volume.Spec.ClaimRef = &corev1.ObjectReference{UID: "claim"}
	volume.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: "disk", VolumeHandle: "1"}
	volume.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
		MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "zone", Operator: corev1.NodeSelectorOpIn, Values: []string{"a"}}},
	}}}}
	return pod, claim, volume
}

func TestCopyLeavesOutWhatOnlyMeansSomethingAtHome(t *testing.T) {
	data := corev1.Volume{Name: "data", VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"},
	}}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: "db", Namespace: "shop", UID: "uid-1", ResourceVersion: "7", Labels: map[string]string{"app": "db"},
			Finalizers: []string{"example.com/held"}, OwnerReferences: []metav1.OwnerReference{{Name: "set"}},
		},
		Spec: corev1.PodSpec{
			NodeName: "west", SchedulerName: "own", ServiceAccountName: "shop", PriorityClassName: "high", Priority: ptr.To[int32](9),
			NodeSelector:              map[string]string{"lodestone.dev/cluster": "west"},
			Affinity:                  &corev1.Affinity{},
			Tolerations:               []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
			TopologySpreadConstraints: []corev1.TopologySpreadConstraint{{}},
			Volumes:                   []corev1.Volume{data, {Name: "kube-api-access-x"}},
			Containers: []corev1.Container{{
				Name: "main", Image: "db:1", VolumeMounts: []corev1.VolumeMount{{Name: "data"}, {Name: "kube-api-access-x"}},
			}},
		},
	}
	before := pod.DeepCopy()
	remote := &Remote{ID: "west", HomeID: "h1", NamespaceFor: func(n string) string { return n + "-h1" }}
	got := copyOf(pod, remote)

	assert.Equal(t, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: "db", Namespace: "shop-h1",
			Labels:      map[string]string{"app": "db", homeLabel: "h1"},
			Annotations: map[string]string{HomePodUIDAnnotation: "uid-1", homePodAnnotation: "west/shop/db"},
		},
		Spec: corev1.PodSpec{
			AutomountServiceAccountToken: ptr.To(false),
			Volumes:                      []corev1.Volume{data},
			Containers:                   []corev1.Container{{Name: "main", Image: "db:1", VolumeMounts: []corev1.VolumeMount{{Name: "data"}}}},
		},
	}, got)
	assert.Equal(t, before, pod, "the home pod must stay as it is")
	key, ok := homePod(got)
	assert.True(t, ok)
	assert.Equal(t, keyOf(pod), key)
}

func TestHomeStatusSaysWhyTheCopyIsNotScheduled(t *testing.T) {
	status := homeStatus(&corev1.Pod{Status: corev1.PodStatus{
		Phase:      corev1.PodPending,
		Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: "0/1 nodes are available"}},
	}})
	assert.Equal(t, corev1.PodStatus{
		Phase: corev1.PodPending, Message: "not scheduled in the remote cluster: 0/1 nodes are available",
	}, status)
}
