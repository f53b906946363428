package decide

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/virtualnode/translate"
)

// change alters an observation that a test starts from.
type change func(*Observation)

// observe returns what is known of a pod that a scheduler has just bound to
// a virtual node that works.
func observe(changes ...change) Observation {
	o := Observation{
		Cluster: "west", ClusterUID: "west-uid", Network: v1alpha1.Isolated,
		Pod: &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db-0", UID: "u1"},
			Spec:       corev1.PodSpec{NodeName: "west", Containers: []corev1.Container{{Name: "app", Image: "app:1"}}},
			Status: corev1.PodStatus{
				Phase: corev1.PodPending, HostIP: "10.9.0.1", HostIPs: []corev1.HostIP{{IP: "10.9.0.1"}},
				Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue}},
			},
		},
		Open: true, HostIP: "10.9.0.1", Current: true,
		Place: Place{Name: "shop", Given: true, Seen: true},
	}
	for _, c := range changes {
		c(&o)
	}
	if o.Pod != nil {
		o.Template = translate.Template(o.Pod, func(namespace string) string { return namespace })
		if o.Shadow != nil && o.Shadow.Spec.Pod.Spec.Containers == nil {
			o.Shadow.Spec.Pod = o.Template
		}
	}
	return o
}

func homeChange(alter func(*corev1.Pod)) change {
	return func(o *Observation) { alter(o.Pod) }
}

var (
	protected = homeChange(func(p *corev1.Pod) { p.Finalizers = append(p.Finalizers, keys.RemotePodFinalizer) })
	recorded  = copyIs("west-uid", "s1")
	deleting  = graceful(30)
	failed    = phase(corev1.PodFailed)
	noPod     = change(func(o *Observation) { o.Pod = nil })
	unseen    = change(func(o *Observation) { o.Place.Seen = false })
	notGiven  = change(func(o *Observation) { o.Place.Given, o.Place.Message = false, "waiting until cluster west answers" })
	stale     = change(func(o *Observation) { o.Current = false })
	unknown   = change(func(o *Observation) { o.ClusterUID = "" })
)

func phase(phase corev1.PodPhase) change {
	return homeChange(func(p *corev1.Pod) { p.Status.Phase = phase })
}

func graceful(seconds int64) change {
	return homeChange(func(p *corev1.Pod) {
		p.DeletionTimestamp, p.DeletionGracePeriodSeconds = ptr.To(metav1.Unix(1000, 0)), &seconds
	})
}

func copyIs(cluster, shadow types.UID) change {
	return homeChange(func(p *corev1.Pod) {
		p.Annotations = map[string]string{keys.RemoteCopy: Copy{ClusterUID: cluster, ShadowUID: shadow}.String()}
	})
}

// shadow adds the ShadowPod s1.
func shadow(changes ...func(*remotev1alpha1.ShadowPod)) change {
	return func(o *Observation) {
		o.Shadow = &remotev1alpha1.ShadowPod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db-0", UID: "s1"},
			Spec:       remotev1alpha1.ShadowPodSpec{Home: remotev1alpha1.HomePod{Cluster: "h1", Namespace: "shop", Name: "db-0", UID: "u1"}},
		}
		for _, c := range changes {
			c(o.Shadow)
		}
	}
}

func started(s *remotev1alpha1.ShadowPod) { s.Spec.Start = true }
func other(s *remotev1alpha1.ShadowPod)   { s.UID = "s2" }
func going(s *remotev1alpha1.ShadowPod)   { s.DeletionTimestamp = ptr.To(metav1.Unix(1000, 0)) }
func lost(s *remotev1alpha1.ShadowPod) {
	s.Status.Phase, s.Status.Message = remotev1alpha1.ShadowPodLost, "The pod was removed."
}

func refusedThere(s *remotev1alpha1.ShadowPod) {
	s.Status.Phase, s.Status.Reason, s.Status.Message = remotev1alpha1.ShadowPodPending, "NotAllowed", "There is no room."
}

func graceIs(seconds int64) func(*remotev1alpha1.ShadowPod) {
	return func(s *remotev1alpha1.ShadowPod) { s.Spec.GracePeriodSeconds = &seconds }
}

func older(s *remotev1alpha1.ShadowPod) {
	s.Spec.Pod.Spec.Containers = []corev1.Container{{Name: "app", Image: "app:0"}}
}

// remote adds the pod in the remote cluster.
func remote(phase corev1.PodPhase) change {
	return func(o *Observation) {
		o.Remote = &corev1.Pod{Status: corev1.PodStatus{Phase: phase, PodIPs: []corev1.PodIP{{IP: "10.1.0.1"}}}}
	}
}

// reported brings the home pod in step with the remote one.
func reported(o *Observation) {
	seen := translate.Seen{Home: o.Pod, Remote: o.Remote, HostIP: o.HostIP, Network: o.Network}
	o.Pod.Status = translate.Status(seen)
	if o.Pod.Annotations == nil {
		o.Pod.Annotations = map[string]string{}
	}
	o.Pod.Annotations[keys.RemoteIP] = "10.1.0.1"
}

func ownedBy(kind string) change {
	return homeChange(func(p *corev1.Pod) {
		p.OwnerReferences = []metav1.OwnerReference{{Kind: kind, Name: "owner", Controller: ptr.To(true)}}
	})
}

var (
	now    = metav1.Unix(1000, 0)
	closed = change(func(o *Observation) { o.Open = false })
)
