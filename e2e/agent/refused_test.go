package agent

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// pending waits until a ShadowPod says why there is no pod.
func (x tenant) pending(namespace, name, reason, says string) {
	x.t.Helper()
	eventually(x.t, "ShadowPod "+name+" says "+reason, func() error {
		shadow, err := bed.Agents.ShadowPods(namespace).Get(x.t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		status := shadow.Status
		if status.Phase != remotev1alpha1.ShadowPodPending || status.Reason != reason || !strings.Contains(status.Message, says) {
			return fmt.Errorf("status %+v", status)
		}
		return nil
	})
}

func TestAQuotaThatRefusesIsToldAndItsEndHeeded(t *testing.T) {
	full := func() (tenant, string) {
		x := newTenant(t, func(home *remotev1alpha1.HomeCluster) {
			home.Spec.Namespaces.Quota = corev1.ResourceList{corev1.ResourcePods: resource.MustParse("1")}
		})
		namespace := x.namespace()
		x.shadow(namespace, "first", nil)
		x.runs(namespace, "first")
		x.shadow(namespace, "second", nil)
		x.pending(namespace, "second", "Forbidden", "exceeded quota")
		assert.Nil(t, podOf(t, namespace, "second"))
		return x, namespace
	}

	x, namespace := full()
	require.NoError(t, x.remote.ShadowPods(namespace).Delete(t.Context(), "first", metav1.DeleteOptions{}))
	x.runs(namespace, "second")

	// The owner raises it.
	y, namespace := full()
	y.change(func(home *remotev1alpha1.HomeCluster) {
		home.Spec.Namespaces.Quota[corev1.ResourcePods] = resource.MustParse("5")
	})
	y.runs(namespace, "second")
}

// change changes the HomeCluster as the owner of west does.
func (x tenant) change(mutate func(*remotev1alpha1.HomeCluster)) {
	x.t.Helper()
	eventually(x.t, "the HomeCluster is changed", func() error {
		home, err := bed.Agents.HomeClusters().Get(x.t.Context(), x.id, metav1.GetOptions{})
		if err != nil {
			return err
		}
		mutate(home)
		_, err = bed.Agents.HomeClusters().Update(x.t.Context(), home, metav1.UpdateOptions{})
		return err
	})
}

func TestWhatPodSecurityRefusesIsTold(t *testing.T) {
	x := newTenant(t, nil)
	namespace := x.namespace()
	x.shadow(namespace, "host", func(s *remotev1alpha1.ShadowPod) { s.Spec.Pod.Spec.HostNetwork = true })
	x.pending(namespace, "host", "Forbidden", "PodSecurity")
	x.shadow(namespace, "path", func(s *remotev1alpha1.ShadowPod) {
		s.Spec.Pod.Spec.Volumes = []corev1.Volume{{Name: "root", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}}}
	})
	x.pending(namespace, "path", "Forbidden", "hostPath")
	x.shadow(namespace, "token", func(s *remotev1alpha1.ShadowPod) {
		s.Spec.Pod.Spec.Volumes = []corev1.Volume{{Name: "token", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
			Sources: []corev1.VolumeProjection{{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token"}}},
		}}}}
	})
	x.pending(namespace, "token", "NotAllowed", "token")

	// The owner allows more.
	x.change(func(home *remotev1alpha1.HomeCluster) { home.Spec.Namespaces.PodSecurity = "privileged" })
	x.runs(namespace, "host")
	x.runs(namespace, "path")
	assert.Nil(t, podOf(t, namespace, "token"))
}

func TestAPodOfTheNameThatIsNotOursIsNotTouched(t *testing.T) {
	x := newTenant(t, nil)
	namespace := x.namespace()
	stranger, err := bed.West.Client().CoreV1().Pods(namespace).Create(t.Context(), fabric.NewPod(namespace, "web"), metav1.CreateOptions{})
	require.NoError(t, err)
	x.shadow(namespace, "web", nil)
	x.pending(namespace, "web", "NameTaken", "somebody else")
	assert.Equal(t, stranger.UID, podOf(t, namespace, "web").UID)

	// Nor when the ShadowPod goes.
	require.NoError(t, x.remote.ShadowPods(namespace).Delete(t.Context(), "web", metav1.DeleteOptions{}))
	eventually(t, "the ShadowPod is gone", func() error {
		if _, err := bed.Agents.ShadowPods(namespace).Get(t.Context(), "web", metav1.GetOptions{}); err == nil {
			return fmt.Errorf("it is there")
		}
		return nil
	})
	assert.Equal(t, stranger.UID, podOf(t, namespace, "web").UID)
	assert.Nil(t, podOf(t, namespace, "web").DeletionTimestamp)

	x.shadow(namespace, "web", nil)
	x.pending(namespace, "web", "NameTaken", "somebody else")
	deletePod(t, namespace, "web")
	x.runs(namespace, "web")
}

func TestPriorityAndTolerationsAreThoseThatTheOwnerAllows(t *testing.T) {
	x := newTenant(t, func(home *remotev1alpha1.HomeCluster) {
		home.Spec.PriorityClasses = []string{"allowed"}
		home.Spec.Tolerations = []string{"example.com/spot"}
	})
	for name, value := range map[string]int32{"allowed": 1000, "forbidden": 1000000} {
		_, err := bed.West.Client().SchedulingV1().PriorityClasses().Create(t.Context(), &schedulingv1.PriorityClass{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Value: value,
		}, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	namespace := x.namespace()
	run := func(name, class string) *corev1.Pod {
		x.shadow(namespace, name, func(s *remotev1alpha1.ShadowPod) {
			spec := &s.Spec.Pod.Spec
			spec.PriorityClassName = class
			spec.NodeName = "west-1"
			spec.SchedulerName = "mine"
			spec.ServiceAccountName = "other"
			spec.NodeSelector = map[string]string{corev1.LabelHostname: "west-2"}
			spec.Tolerations = []corev1.Toleration{
				{Key: "example.com/spot", Operator: corev1.TolerationOpExists},
				{Key: "node-role.kubernetes.io/control-plane", Operator: corev1.TolerationOpExists},
				{Operator: corev1.TolerationOpExists},
				{Key: corev1.TaintNodeUnreachable, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute},
			}
		})
		return x.runs(namespace, name)
	}
	pod := run("allowed", "allowed")
	assert.Equal(t, "allowed", pod.Spec.PriorityClassName)
	assert.Equal(t, "west-2", pod.Spec.NodeName)
	assert.Equal(t, "default", pod.Spec.ServiceAccountName)
	kept := map[string]bool{}
	for _, toleration := range pod.Spec.Tolerations {
		kept[toleration.Key] = true
	}
	assert.True(t, kept["example.com/spot"])
	assert.True(t, kept[corev1.TaintNodeUnreachable])
	assert.False(t, kept[""])
	assert.False(t, kept["node-role.kubernetes.io/control-plane"])
	terms := pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	assert.Equal(t, []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{
		{Key: keys.Cluster, Operator: corev1.NodeSelectorOpDoesNotExist},
	}}}, terms)

	pod = run("forbidden", "forbidden")
	assert.Empty(t, pod.Spec.PriorityClassName)
	assert.Equal(t, int32(0), *pod.Spec.Priority)
}

func TestTheOfferIsNotExceeded(t *testing.T) {
	x := newTenant(t, func(home *remotev1alpha1.HomeCluster) {
		home.Spec.Offer = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("3")}
	})
	namespace := x.namespace()
	cpu := func(s *remotev1alpha1.ShadowPod) {
		s.Spec.Pod.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}
	}
	// All at once: several workers must not each take the last of it.
	const wanted, fit = 9, 3
	for i := range wanted {
		x.shadow(namespace, fmt.Sprintf("web-%d", i), cpu)
	}
	count := func() (created, refused []string) {
		list, err := bed.Agents.ShadowPods(namespace).List(t.Context(), list)
		require.NoError(t, err)
		for _, s := range list.Items {
			switch {
			case s.Status.Phase == remotev1alpha1.ShadowPodCreated:
				created = append(created, s.Name)
			case s.Status.Reason == "OverOffer":
				refused = append(refused, s.Name)
			}
		}
		return created, refused
	}
	settles := func(left int) (created []string) {
		eventually(t, "three pods are made and the others told", func() error {
			now, refused := count()
			if created = now; len(now) != fit || len(refused) != left-fit {
				return fmt.Errorf("made %v, refused %v", now, refused)
			}
			return nil
		})
		return created
	}
	created := settles(wanted)
	await.Never(t, "more pods are made", func() bool { now, _ := count(); return len(now) > fit })
	require.NoError(t, x.remote.ShadowPods(namespace).Delete(t.Context(), created[0], metav1.DeleteOptions{}))
	x.goes(namespace, created[0])
	settles(wanted - 1)
	x.change(func(home *remotev1alpha1.HomeCluster) { home.Spec.Offer = nil })
	eventually(t, "the others are made too", func() error {
		if now, refused := count(); len(now) != wanted-1 {
			return fmt.Errorf("made %v, refused %v", now, refused)
		}
		return nil
	})
}
