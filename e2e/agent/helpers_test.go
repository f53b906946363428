package agent

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/kubernetes"

	"github.com/lodestone-storage/lodestone/e2e/testbed"
	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/remoteapi"
	agent "github.com/lodestone-storage/lodestone/remoteagent/app"
)

// long is the most that a test waits for something, often is how often it looks,
// and steady is how long it watches for what must not happen.
const (
	long   = 60 * time.Second
	often  = 50 * time.Millisecond
	steady = 2 * time.Second
	// away is how long a home must be silent to be away.
	away = 3 * time.Second
)

// quick makes the agent's patience fit a test.
func quick(config *agent.Config) {
	config.AwayAfter = away
	config.LeaseDuration = 6 * time.Second
}

// tenant is a home cluster with its own identity in west.
type tenant struct {
	t  *testing.T
	id string
	// client and remote act as the home cluster.
	client kubernetes.Interface
	remote *remoteapi.Client
}

func newTenant(t *testing.T, mutate func(*remotev1alpha1.HomeCluster)) tenant {
	t.Helper()
	testbed.Require(t)
	id := "h" + rand.String(6)
	home := &remotev1alpha1.HomeCluster{ObjectMeta: metav1.ObjectMeta{Name: id}}
	if mutate != nil {
		mutate(home)
	}
	_, err := bed.Agents.HomeClusters().Create(t.Context(), home, metav1.CreateOptions{})
	require.NoError(t, err)
	require.NoError(t, bed.AwaitTenant(t.Context(), id))
	x := tenant{t: t, id: id}
	x.login()
	return x
}

// login makes clients with a token of the home cluster's account.
func (x *tenant) login() {
	x.t.Helper()
	config, err := bed.West.ServiceAccountConfig(x.t.Context(), x.tenantNamespace(), keys.HomeAccount)
	require.NoError(x.t, err)
	x.client, err = kubernetes.NewForConfig(config)
	require.NoError(x.t, err)
	x.remote, err = remoteapi.NewClient(config)
	require.NoError(x.t, err)
}

func (x tenant) tenantNamespace() string { return keys.TenantPrefix + x.id }

// request asks for a namespace as the home cluster does.
func (x tenant) request(name string) {
	x.t.Helper()
	eventually(x.t, "home may ask for namespaces", func() error {
		_, err := x.remote.NamespaceRequests(x.tenantNamespace()).Create(x.t.Context(), &remotev1alpha1.NamespaceRequest{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec:       remotev1alpha1.NamespaceRequestSpec{HomeNamespace: name},
		}, metav1.CreateOptions{})
		return err
	})
}

// namespace asks for a namespace of a new name and waits for it.
func (x tenant) namespace() string {
	x.t.Helper()
	name := "ns-" + rand.String(6)
	x.request(name)
	x.given(name)
	return name
}

func (x tenant) condition(name string) *metav1.Condition {
	x.t.Helper()
	request, err := x.remote.NamespaceRequests(x.tenantNamespace()).Get(x.t.Context(), name, metav1.GetOptions{})
	require.NoError(x.t, err)
	return meta.FindStatusCondition(request.Status.Conditions, remotev1alpha1.Ready)
}

func (x tenant) given(name string) {
	x.t.Helper()
	eventually(x.t, "namespace "+name+" is given", func() error {
		condition := x.condition(name)
		if condition == nil || condition.Status != metav1.ConditionTrue {
			return fmt.Errorf("condition %+v", condition)
		}
		return nil
	})
}

// told waits until a request has a reason not to be Ready.
func (x tenant) told(name, reason string) string {
	x.t.Helper()
	var message string
	eventually(x.t, "the request says "+reason, func() error {
		condition := x.condition(name)
		if condition == nil || condition.Status != metav1.ConditionFalse || condition.Reason != reason {
			return fmt.Errorf("condition %+v", condition)
		}
		message = condition.Message
		return nil
	})
	return message
}

// newShadow returns a ShadowPod as the virtual node of a home cluster makes it.
func (x tenant) newShadow(namespace, name string) *remotev1alpha1.ShadowPod {
	uid := uuid.NewUUID()
	return &remotev1alpha1.ShadowPod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name, Finalizers: []string{keys.ShadowPodFinalizer},
			Labels: map[string]string{keys.HomeID: x.id, keys.PodUID: string(uid)},
		},
		Spec: remotev1alpha1.ShadowPodSpec{
			Home: remotev1alpha1.HomePod{Cluster: x.id, Namespace: namespace, Name: name, UID: uid},
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
		patch := fmt.Appendf(nil, `{"spec":{"holderIdentity":"home","renewTime":%q}}`, metav1.NowMicro().UTC().Format(metav1.RFC3339Micro))
		_, err := x.client.CoordinationV1().Leases(x.tenantNamespace()).Patch(ctx, keys.HeartbeatLease, types.MergePatchType, patch, metav1.PatchOptions{})
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
	for deadline := time.Now().Add(long); ; time.Sleep(often) {
		err := done()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			require.Fail(t, "waited too long until "+what, "%s", strings.TrimSpace(err.Error()))
		}
	}
}

func never(t *testing.T, what string, happened func() bool) {
	t.Helper()
	for deadline := time.Now().Add(steady); time.Now().Before(deadline); time.Sleep(often) {
		require.False(t, happened(), what)
	}
}
