package why

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/refusal"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// setting returns a home cluster with a node and a remote cluster, west, that is
// well and open to namespace shop.
func setting(changes ...func(*Setting)) Setting {
	s := Setting{
		Now:       now,
		Namespace: &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", Labels: map[string]string{keys.Offload: keys.OffloadEnabled}}},
		Clusters:  []v1alpha1.RemoteCluster{remoteCluster("west", metav1.ConditionTrue, "Ready", "volumes can be made there")},
		Nodes:     []corev1.Node{homeNode("home-1"), virtualNode("west")},
	}
	for _, change := range changes {
		change(&s)
	}
	return s
}

func remoteCluster(name string, ready metav1.ConditionStatus, reason, message string) v1alpha1.RemoteCluster {
	return v1alpha1.RemoteCluster{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Status:     v1alpha1.RemoteClusterStatus{Conditions: []metav1.Condition{{Type: v1alpha1.Ready, Status: ready, Reason: reason, Message: message}}},
	}
}

func closed(s *Setting)    { s.Namespace.Labels = nil }
func elsewhere(s *Setting) { s.Namespace.Annotations = map[string]string{keys.OffloadClusters: "east"} }

// partitioned is a remote cluster that does not answer.
func partitioned(s *Setting) {
	s.Clusters[0] = remoteCluster("west", metav1.ConditionFalse, "NotReachable", "its API server does not answer as it should: connection refused")
	s.Nodes[1].Status.Conditions = []corev1.NodeCondition{
		{Type: corev1.NodeReady, Status: corev1.ConditionUnknown, Reason: "NodeStatusUnknown", Message: "Kubelet stopped posting node status."},
		{Type: remoteReady, Status: corev1.ConditionFalse, Reason: "RemoteSilent", Message: "cluster west does not answer: connection refused"},
	}
}

func homeNode(name string) corev1.Node {
	return corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
	}
}

func virtualNode(cluster string) corev1.Node {
	node := homeNode(cluster)
	node.Labels = map[string]string{keys.Cluster: cluster, "type": "virtual-kubelet"}
	node.Spec.Taints = []corev1.Taint{{Key: keys.RemoteTaint, Value: cluster, Effect: corev1.TaintEffectNoSchedule}}
	return node
}

func pod(changes ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-1", UID: "pod-uid"},
		Spec: corev1.PodSpec{
			SchedulerName: "default-scheduler",
			Tolerations:   []corev1.Toleration{{Key: keys.RemoteTaint, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}},
		},
		Status: corev1.PodStatus{Phase: corev1.PodPending},
	}
	for _, change := range changes {
		change(p)
	}
	return p
}

func on(node string) func(*corev1.Pod) { return func(p *corev1.Pod) { p.Spec.NodeName = node } }

func held(p *corev1.Pod) { p.Finalizers = append(p.Finalizers, keys.RemotePodFinalizer) }

func going(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: now} }

func intolerant(p *corev1.Pod) { p.Spec.Tolerations = nil }

func toWest(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{keys.Cluster: "west"} }

func unfit(message string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: message}}
	}
}

func waitingFor(reason, message string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "app", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}}}
	}
}

// claim returns a claim of the virtual class that no node was chosen for.
func claim(changes ...func(*Claim)) Claim {
	c := Claim{
		Name: "data",
		Claim: &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "data"},
			Spec:       corev1.PersistentVolumeClaimSpec{StorageClassName: ptr.To("lodestone")},
			Status:     corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimPending},
		},
		Class: &storagev1.StorageClass{
			ObjectMeta: metav1.ObjectMeta{Name: "lodestone"}, Provisioner: keys.Driver,
			VolumeBindingMode: ptr.To(storagev1.VolumeBindingWaitForFirstConsumer),
		},
	}
	for _, change := range changes {
		change(&c)
	}
	return c
}

func annotated(key, value string) func(*Claim) {
	return func(c *Claim) { metav1.SetMetaDataAnnotation(&c.Claim.ObjectMeta, key, value) }
}

func boundIn(cluster string) func(*Claim) {
	return func(c *Claim) {
		c.Claim.Status.Phase = corev1.ClaimBound
		c.Claim.Spec.VolumeName = "pvc-1"
		c.Volume = &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{
			Name: "pvc-1", Annotations: map[string]string{keys.Backing: cluster + "/shop/data/uid"},
		}}
	}
}

func named(name string) func(*Claim) { return func(c *Claim) { c.Name = name } }

func absent(c *Claim) { c.Claim, c.Class = nil, nil }

func refusedBy(cluster, reason, message string) func(*Claim) {
	return func(c *Claim) {
		encoded, err := refusal.Encode([]refusal.Refusal{{Cluster: cluster, Reason: reason, Message: message, Until: now.Add(time.Minute)}})
		if err != nil {
			panic(err)
		}
		annotated(keys.Refused, encoded)(c)
	}
}

func said(reason, message string) func(*Claim) {
	return func(c *Claim) { c.Events = append(c.Events, event(reason, message, time.Minute)) }
}

func event(reason, message string, ago time.Duration) corev1.Event {
	return corev1.Event{Reason: reason, Message: message, LastTimestamp: metav1.NewTime(now.Add(-ago))}
}
