package agent

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/must"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
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
	return must.Find(t, bed.West.Client().CoreV1().Pods(namespace), name)
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

func TestARequestElsewhereIsRefused(t *testing.T) {
	elsewhere := testbed.Namespace(t, bed.West)
	must.Create(t, bed.Agents.NamespaceRequests(elsewhere), &remotev1alpha1.NamespaceRequest{
		ObjectMeta: metav1.ObjectMeta{Name: "wanted-" + elsewhere}, Spec: remotev1alpha1.NamespaceRequestSpec{HomeNamespace: "x"},
	})
	eventually(t, "it is told so", func() error {
		request, err := bed.Agents.NamespaceRequests(elsewhere).Get(t.Context(), "wanted-"+elsewhere, metav1.GetOptions{})
		if err == nil && (len(request.Status.Conditions) == 0 || request.Status.Conditions[0].Reason != "NotAllowed") {
			err = fmt.Errorf("conditions %+v", request.Status.Conditions)
		}
		return err
	})
	assert.Nil(t, namespaceOf(t, "wanted-"+elsewhere))

	// Nor does it speak for a home cluster whose ID is the name of its namespace.
	x := newTenant(t, nil)
	given := x.namespace()
	require.NoError(t, bed.West.MakeNamespace(t.Context(), x.id))
	forged := &remotev1alpha1.NamespaceRequest{
		ObjectMeta: metav1.ObjectMeta{Name: given, Finalizers: []string{keys.NamespaceFinalizer}},
		Spec:       remotev1alpha1.NamespaceRequestSpec{HomeNamespace: given},
	}
	before := must.Get(t, bed.West.Client().RbacV1().RoleBindings(given), "lodestone-home")
	must.Create(t, bed.Agents.NamespaceRequests(x.id), forged)
	must.Delete(t, bed.Agents.NamespaceRequests(x.id), given)
	await.Never(t, "rights or namespace are taken away", func() bool {
		now, err := bed.West.Client().RbacV1().RoleBindings(given).Get(t.Context(), "lodestone-home", metav1.GetOptions{})
		return err != nil || now.UID != before.UID || namespaceOf(t, given).DeletionTimestamp != nil
	})
	must.Kubectl(t, bed.West, "", "patch", "namespacerequests.remote.lodestone.dev", "-n", x.id, given, "--type=merge", "-p",
		`{"metadata":{"finalizers":null}}`)
}

func TestARequestForDevicesIsRefused(t *testing.T) {
	x := newTenant(t, nil)
	own := x.namespace()
	x.shadow(own, "train", func(shadow *remotev1alpha1.ShadowPod) {
		shadow.Spec.Pod.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimName: ptr.To("gpu")}}
	})
	x.pending(own, "train", "NotAllowed", "spec.resourceClaims")
	assert.Nil(t, podOf(t, own, "train"))
}

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
	must.Delete(t, x.remote.ShadowPods(namespace), "first")
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
		s.Spec.Pod.Spec.Volumes = []corev1.Volume{{Name: "root",
			VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}}}
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
	stranger := must.Create(t, bed.West.Client().CoreV1().Pods(namespace), fabric.NewPod(namespace, "web"))
	x.shadow(namespace, "web", nil)
	x.pending(namespace, "web", "NameTaken", "somebody else")
	assert.Equal(t, stranger.UID, podOf(t, namespace, "web").UID)

	// Nor when the ShadowPod goes.
	must.Delete(t, x.remote.ShadowPods(namespace), "web")
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
		must.Create(t, bed.West.Client().SchedulingV1().PriorityClasses(), &schedulingv1.PriorityClass{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Value: value,
		})
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
		list := must.List(t, bed.Agents.ShadowPods(namespace))
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
	must.Delete(t, x.remote.ShadowPods(namespace), created[0])
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

// TestHomeLetsItsClaimsGoFromANamespaceThatIsBeingDeleted has an administrator
// delete a namespace whose claim home still protects: home keeps its rights until
// it lets the claim go, and then nothing holds the namespace.
func TestHomeLetsItsClaimsGoFromANamespaceThatIsBeingDeleted(t *testing.T) {
	x := newTenant(t, nil)
	name := x.namespace()
	claims := x.client.CoreV1().PersistentVolumeClaims(name)
	claim := x.newClaim(name, "data")
	claim.Finalizers = []string{keys.BackingFinalizer}
	made := must.Create(t, claims, claim)
	uid := namespaceOf(t, name).UID

	must.Delete(t, bed.West.Client().CoreV1().Namespaces(), name)
	eventually(t, "the claim is being deleted", func() error {
		now, err := claims.Get(t.Context(), "data", metav1.GetOptions{})
		if err == nil && now.DeletionTimestamp == nil {
			err = fmt.Errorf("claim %s is not", now.Name)
		}
		return err
	})
	eventually(t, "so are home's rights, which still hold", func() error {
		binding, err := bed.West.Client().RbacV1().RoleBindings(name).Get(t.Context(), "lodestone-home", metav1.GetOptions{})
		if err == nil && binding.DeletionTimestamp == nil {
			err = fmt.Errorf("role binding %s is not being deleted", binding.Name)
		}
		return err
	})
	kept := must.Get(t, claims, "data")
	assert.Equal(t, made.UID, kept.UID)

	must.Patch(t, claims, "data", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
	eventually(t, "the namespace is gone, and made again for the request", func() error {
		if now := namespaceOf(t, name); now == nil || now.UID == uid {
			return fmt.Errorf("namespace %+v", now)
		}
		return nil
	})
	x.given(name)
}
