package agent

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/e2e/await"
	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

func restart(policy corev1.RestartPolicy) func(*remotev1alpha1.ShadowPod) {
	return func(s *remotev1alpha1.ShadowPod) { s.Spec.Pod.Spec.RestartPolicy = policy }
}

func deletePod(t *testing.T, namespace, name string) {
	t.Helper()
	require.NoError(t, bed.West.Client().CoreV1().Pods(namespace).Delete(t.Context(), name, metav1.DeleteOptions{}))
}

func (x tenant) staysLost(namespace, name string) {
	x.t.Helper()
	x.phase(namespace, name, remotev1alpha1.ShadowPodLost)
	await.Never(x.t, "no pod is made any more", func() bool { return podOf(x.t, namespace, name) != nil })
	require.NoError(x.t, x.remote.ShadowPods(namespace).Delete(x.t.Context(), name, metav1.DeleteOptions{}))
	x.goes(namespace, name)
}

func TestAPodRemovedWhileHomeIsConnectedIsLost(t *testing.T) {
	x := newTenant(t, nil)
	namespace := x.namespace()
	stop := x.beat()
	defer stop()
	x.shadow(namespace, "web", nil)
	x.runs(namespace, "web")
	deletePod(t, namespace, "web")
	x.staysLost(namespace, "web")
}

func TestAPodRemovedWhileHomeIsAwayIsMadeAgain(t *testing.T) {
	x := newTenant(t, nil)
	namespace := x.namespace()
	x.beat()()
	x.shadow(namespace, "web", nil)
	first := x.runs(namespace, "web")
	x.connected(metav1.ConditionFalse)
	deletePod(t, namespace, "web")
	eventually(t, "another pod runs", func() error {
		if pod := x.runs(namespace, "web"); pod.UID == first.UID {
			return fmt.Errorf("still pod %s", first.UID)
		}
		return nil
	})
	shadow := x.phase(namespace, "web", remotev1alpha1.ShadowPodCreated)
	assert.Equal(t, int32(1), shadow.Status.Restarts)
	assert.Equal(t, x.runs(namespace, "web").UID, shadow.Status.PodUID)

	// Home is back: from now on it decides.
	stop := x.beat()
	defer stop()
	deletePod(t, namespace, "web")
	x.staysLost(namespace, "web")
}

func TestAPodThatNeverRestartsIsNotMadeAgain(t *testing.T) {
	x := newTenant(t, nil)
	namespace := x.namespace()
	x.shadow(namespace, "job", restart(corev1.RestartPolicyNever))
	pod := x.runs(namespace, "job")
	eventually(t, "the pod is not held any more", func() error {
		if now := podOf(t, namespace, "job"); len(now.Finalizers) > 0 {
			return fmt.Errorf("finalizers %v", now.Finalizers)
		}
		return nil
	})
	assert.Equal(t, pod.UID, x.phase(namespace, "job", remotev1alpha1.ShadowPodCreated).Status.PodUID)
	deletePod(t, namespace, "job")
	x.staysLost(namespace, "job")
}

func TestAPodThatEndedByItselfIsNotMadeAgain(t *testing.T) {
	x := newTenant(t, nil)
	namespace := x.namespace()
	x.shadow(namespace, "task", restart(corev1.RestartPolicyOnFailure))
	x.runs(namespace, "task")
	_, err := bed.West.Client().CoreV1().Pods(namespace).Patch(t.Context(), "task", types.MergePatchType, []byte(`{"status":{"phase":"Succeeded"}}`), metav1.PatchOptions{}, "status")
	require.NoError(t, err)
	eventually(t, "the end is written down", func() error {
		if s := x.phase(namespace, "task", remotev1alpha1.ShadowPodCreated); s.Status.Reason != "PodEnded" {
			return fmt.Errorf("status %+v", s.Status)
		}
		return nil
	})
	deletePod(t, namespace, "task")
	x.staysLost(namespace, "task")
}

// TestAShadowPodWaitsForAPodOfADeadNode: a pod whose kubelet is silent may still
// run, so nothing says that it is gone.
func TestAShadowPodWaitsForAPodOfADeadNode(t *testing.T) {
	x := newTenant(t, nil)
	namespace := x.namespace()
	x.shadow(namespace, "web", nil)
	pod := x.runs(namespace, "web")
	require.NoError(t, bed.WestNodes.SetAlive(pod.Spec.NodeName, false))
	revive := func() { require.NoError(t, bed.WestNodes.SetAlive(pod.Spec.NodeName, true)) }
	t.Cleanup(revive)
	// With no patience at all, as after kubectl delete --force at home.
	_, err := x.remote.ShadowPods(namespace).Patch(t.Context(), "web", types.MergePatchType, []byte(`{"spec":{"gracePeriodSeconds":0}}`), metav1.PatchOptions{})
	require.NoError(t, err)
	require.NoError(t, x.remote.ShadowPods(namespace).Delete(t.Context(), "web", metav1.DeleteOptions{}))
	eventually(t, "the pod is asked to end", func() error {
		if now := podOf(t, namespace, "web"); now == nil || now.DeletionTimestamp == nil {
			return fmt.Errorf("pod %+v", now)
		}
		return nil
	})
	await.Never(t, "the ShadowPod goes before its pod", func() bool {
		shadow, err := bed.Agents.ShadowPods(namespace).Get(t.Context(), "web", metav1.GetOptions{})
		require.NoError(t, err)
		return podOf(t, namespace, "web") == nil || !assert.Contains(t, shadow.Finalizers, keys.ShadowPodFinalizer)
	})
	revive()
	x.goes(namespace, "web")
}

func TestAShorterGracePeriodIsCarriedToAPodThatIsEnding(t *testing.T) {
	x := newTenant(t, nil)
	namespace := x.namespace()
	x.shadow(namespace, "slow", func(s *remotev1alpha1.ShadowPod) {
		grace := int64(3600)
		s.Spec.Pod.Spec.TerminationGracePeriodSeconds = &grace
	})
	pod := x.runs(namespace, "slow")
	require.NoError(t, bed.WestNodes.SetAlive(pod.Spec.NodeName, false))
	revive := func() { require.NoError(t, bed.WestNodes.SetAlive(pod.Spec.NodeName, true)) }
	t.Cleanup(revive)
	require.NoError(t, x.remote.ShadowPods(namespace).Delete(t.Context(), "slow", metav1.DeleteOptions{}))
	grace := func(want int64) {
		eventually(t, fmt.Sprintf("the pod has %d s left", want), func() error {
			now := podOf(t, namespace, "slow")
			if now == nil || now.DeletionGracePeriodSeconds == nil || *now.DeletionGracePeriodSeconds != want {
				return fmt.Errorf("pod %+v", now)
			}
			return nil
		})
	}
	grace(3600)
	_, err := x.remote.ShadowPods(namespace).Patch(t.Context(), "slow", types.MergePatchType, []byte(`{"spec":{"gracePeriodSeconds":60}}`), metav1.PatchOptions{})
	require.NoError(t, err)
	grace(60)
	revive()
	x.goes(namespace, "slow")
}
