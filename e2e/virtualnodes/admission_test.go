package virtualnodes

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

var (
	remote      = corev1.Toleration{Key: keys.RemoteTaint, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}
	notReady    = corev1.Toleration{Key: corev1.TaintNodeNotReady, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute}
	unreachable = corev1.Toleration{Key: corev1.TaintNodeUnreachable, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute}
)

func within(toleration corev1.Toleration, seconds int64) corev1.Toleration {
	toleration.TolerationSeconds = &seconds
	return toleration
}

func TestTolerationsThatPodsAreGiven(t *testing.T) {
	open, closed := testbed.Namespace(t, bed.Home), testbed.Namespace(t, bed.Home)
	_, err := bed.Home.Kubectl(t.Context(), "", "label", "namespace", open, keys.Offload+"="+keys.OffloadEnabled)
	require.NoError(t, err)
	// A policy takes hold a moment after it is written, and a label after it is set.
	await.Until(t, "the policy is in force", func() bool {
		return len(admitted(t, open, fabric.NewPod(open, "first")).Spec.Tolerations) == 3
	}, func() any { return admitted(t, open, fabric.NewPod(open, "first")).Spec.Tolerations })

	own := corev1.Toleration{Key: "gpu", Operator: corev1.TolerationOpEqual, Value: "yes", Effect: corev1.TaintEffectNoSchedule}
	for name, test := range map[string]struct {
		namespace string
		claims    []string
		change    func(*corev1.Pod)
		want      []corev1.Toleration
	}{
		"a pod": {namespace: open, want: []corev1.Toleration{within(notReady, 300), within(unreachable, 300), remote}},
		"a pod of another namespace": {namespace: closed, claims: []string{"data"},
			want: []corev1.Toleration{within(notReady, 300), within(unreachable, 300)}},
		"a pod with a claim": {namespace: open, claims: []string{"data"}, want: []corev1.Toleration{notReady, unreachable, remote}},
		"a pod with an ephemeral claim": {namespace: open, change: func(pod *corev1.Pod) {
			claim := fabric.NewClaim(open, "scratch", fabric.Class)
			pod.Spec.Volumes = []corev1.Volume{{Name: "scratch", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{
				VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{Spec: claim.Spec}}}}}
		}, want: []corev1.Toleration{notReady, unreachable, remote}},
		"tolerations of its own stay": {namespace: open, claims: []string{"data"}, change: func(pod *corev1.Pod) {
			pod.Spec.Tolerations = []corev1.Toleration{own, within(notReady, 20)}
		}, want: []corev1.Toleration{own, within(notReady, 20), unreachable, remote}},
		"one that has the toleration": {namespace: open, change: func(pod *corev1.Pod) {
			pod.Spec.Tolerations = []corev1.Toleration{remote}
		}, want: []corev1.Toleration{remote, within(notReady, 300), within(unreachable, 300)}},
		"one that tolerates everything": {namespace: open, change: func(pod *corev1.Pod) {
			pod.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
		}, want: []corev1.Toleration{{Operator: corev1.TolerationOpExists}}},
		"one that tolerates one cluster": {namespace: open, change: func(pod *corev1.Pod) {
			pod.Spec.Tolerations = []corev1.Toleration{{Key: keys.RemoteTaint, Operator: corev1.TolerationOpEqual, Value: "east", Effect: corev1.TaintEffectNoSchedule}}
		}, want: []corev1.Toleration{{Key: keys.RemoteTaint, Operator: corev1.TolerationOpEqual, Value: "east", Effect: corev1.TaintEffectNoSchedule},
			within(notReady, 300), within(unreachable, 300), remote}},
		"a pod of a DaemonSet": {namespace: open, claims: []string{"data"}, change: func(pod *corev1.Pod) {
			pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Name: "agents", UID: "1", Controller: ptr.To(true)}}
		}, want: []corev1.Toleration{within(notReady, 300), within(unreachable, 300)}},
		"a pod that is bound already": {namespace: open, change: func(pod *corev1.Pod) { pod.Spec.NodeName = "home-1" },
			want: []corev1.Toleration{within(notReady, 300), within(unreachable, 300)}},
	} {
		t.Run(name, func(t *testing.T) {
			pod := fabric.NewPod(test.namespace, "pod", test.claims...)
			if test.change != nil {
				test.change(pod)
			}
			assert.ElementsMatch(t, test.want, admitted(t, test.namespace, pod).Spec.Tolerations)
		})
	}
}

// admitted returns a pod as the API server would store it.
func admitted(t *testing.T, namespace string, pod *corev1.Pod) *corev1.Pod {
	t.Helper()
	result, err := bed.Home.Client().CoreV1().Pods(namespace).Create(context.Background(), pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	require.NoError(t, err)
	return result
}
