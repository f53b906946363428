package agent

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/e2e/await"
	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// newShadow returns a ShadowPod as the virtual node of a home cluster makes it.
func (x tenant) newShadow(namespace, name string) *remotev1alpha1.ShadowPod {
	uid := uuid.NewUUID()
	return &remotev1alpha1.ShadowPod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name, Finalizers: []string{keys.ShadowPodFinalizer},
			Labels: map[string]string{keys.HomeID: x.id, keys.PodUID: string(uid)},
		},
		Spec: remotev1alpha1.ShadowPodSpec{
			Start: true,
			Home:  remotev1alpha1.HomePod{Cluster: x.id, Namespace: namespace, Name: name, UID: uid},
			Pod: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": name}},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "app:1"}}},
			},
		},
	}
}

// shadow makes a ShadowPod with home's rights.
func (x tenant) shadow(namespace, name string, change func(*remotev1alpha1.ShadowPod)) *remotev1alpha1.ShadowPod {
	x.t.Helper()
	wanted := x.newShadow(namespace, name)
	if change != nil {
		change(wanted)
	}
	var made *remotev1alpha1.ShadowPod
	eventually(x.t, "home may make ShadowPods", func() (err error) {
		made, err = x.remote.ShadowPods(namespace).Create(x.t.Context(), wanted, metav1.CreateOptions{})
		return err
	})
	return made
}

// phase waits until a ShadowPod has a phase, and returns it.
func (x tenant) phase(namespace, name string, phase remotev1alpha1.ShadowPodPhase) *remotev1alpha1.ShadowPod {
	x.t.Helper()
	var shadow *remotev1alpha1.ShadowPod
	eventually(x.t, "ShadowPod "+name+" is "+string(phase), func() (err error) {
		shadow, err = bed.Agents.ShadowPods(namespace).Get(x.t.Context(), name, metav1.GetOptions{})
		if err == nil && shadow.Status.Phase != phase {
			err = fmt.Errorf("status %+v", shadow.Status)
		}
		return err
	})
	return shadow
}

// runs waits until the pod of a name runs, and returns it.
func (x tenant) runs(namespace, name string) *corev1.Pod {
	x.t.Helper()
	var pod *corev1.Pod
	eventually(x.t, "pod "+name+" runs", func() (err error) {
		pod, err = bed.West.Client().CoreV1().Pods(namespace).Get(x.t.Context(), name, metav1.GetOptions{})
		if err == nil && (pod.Status.Phase != corev1.PodRunning || pod.DeletionTimestamp != nil) {
			err = fmt.Errorf("phase %s, conditions %+v", pod.Status.Phase, pod.Status.Conditions)
		}
		return err
	})
	return pod
}

func podOf(t *testing.T, namespace, name string) *corev1.Pod {
	t.Helper()
	pod, err := bed.West.Client().CoreV1().Pods(namespace).Get(t.Context(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	require.NoError(t, err)
	return pod
}

// goes waits until a ShadowPod and its pod are gone.
func (x tenant) goes(namespace, name string) {
	x.t.Helper()
	eventually(x.t, "ShadowPod "+name+" and its pod are gone", func() error {
		shadow, err := bed.Agents.ShadowPods(namespace).Get(x.t.Context(), name, metav1.GetOptions{})
		if !apierrors.IsNotFound(err) {
			return fmt.Errorf("ShadowPod %+v %w", shadow, err)
		}
		if pod := podOf(x.t, namespace, name); pod != nil {
			return fmt.Errorf("the pod outlived its ShadowPod: %+v", pod.ObjectMeta)
		}
		return nil
	})
}

// beat renews home's heartbeat, with home's rights, until the returned function
// is called.
func (x tenant) beat() (stop func()) {
	x.t.Helper()
	ctx, cancel := context.WithCancel(x.t.Context())
	done := make(chan struct{})
	send := func() error {
		lease, err := x.client.CoordinationV1().Leases(x.tenantNamespace()).Get(ctx, keys.HeartbeatLease, get)
		if err != nil {
			return err
		}
		lease.Spec.HolderIdentity, lease.Spec.RenewTime = ptr.To("home"), ptr.To(metav1.NowMicro())
		_, err = x.client.CoordinationV1().Leases(x.tenantNamespace()).Update(ctx, lease, metav1.UpdateOptions{})
		return err
	}
	eventually(x.t, "home may renew its heartbeat", send)
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			_ = send()
			time.Sleep(away / 6)
		}
	}()
	x.connected(metav1.ConditionTrue)
	return func() { cancel(); <-done }
}

func (x tenant) connected(status metav1.ConditionStatus) {
	x.t.Helper()
	x.homeCondition(remotev1alpha1.Connected, status, "")
}

// homeCondition waits until a condition of the HomeCluster has a status and, if
// it is not empty, a reason, and returns its message.
func (x tenant) homeCondition(kind string, status metav1.ConditionStatus, reason string) string {
	x.t.Helper()
	var message string
	eventually(x.t, kind+" is "+string(status)+" "+reason, func() error {
		home, err := bed.Agents.HomeClusters().Get(x.t.Context(), x.id, metav1.GetOptions{})
		if err != nil {
			return err
		}
		condition := meta.FindStatusCondition(home.Status.Conditions, kind)
		if condition == nil || condition.Status != status || reason != "" && condition.Reason != reason {
			return fmt.Errorf("condition %+v", condition)
		}
		message = condition.Message
		return nil
	})
	return message
}

func eventually(t *testing.T, what string, done func() error) {
	t.Helper()
	var err error
	await.Until(t, what, func() bool { err = done(); return err == nil }, func() any { return err })
}
