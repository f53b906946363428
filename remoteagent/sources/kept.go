package sources

import (
	"unique"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	resourcehelper "k8s.io/component-helpers/resource"

	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/controller"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/virtualclass"
	"github.com/lodestone-storage/lodestone/remoteagent/policy"
)

// Pod is what the informer on pods keeps. What depends on all pods is read from its fields, and whoever asks the
// informer for a corev1.Pod gets the whole pod unpacked. Of a pod of others there are only these fields.
type Pod struct {
	// This is the whole pod, packed; of a pod of others it is an identity.
	metav1.ObjectMetaAccessor
	// Home is the ID of the home cluster that the pod was made for; empty for pods of others.
	Home string
	// Node is empty while the pod has none.
	Node string
	// Ended says that the pod has ended for good, Ending that it is being deleted.
	Ended, Ending bool
	phase         corev1.PodPhase
	// Counted is what the pod counts for in an offer by policy.Requests, and Takes what it takes of the capacity of its
	// node. Many pods request the same, which is in memory once.
	Counted, Takes Requests
}

// NewPod returns what is kept of a pod, which must not be used any more.
func NewPod(pod *corev1.Pod) *Pod {
	pod.ManagedFields = nil
	p := &Pod{
		Home: unique.Make(pod.Labels[keys.HomeID]).Value(), Node: unique.Make(pod.Spec.NodeName).Value(),
		Ended: policy.Ended(pod), Ending: pod.DeletionTimestamp != nil, phase: corev1.PodPhase(unique.Make(string(pod.Status.Phase)).Value()),
	}
	takes := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})
	policy.AddRequests(takes, policy.OnePod())
	p.Takes = requestsOf(takes)
	if p.Home == "" {
		p.ObjectMetaAccessor = identityOf(pod)
		return p
	}
	p.Counted = requestsOf(policy.Requests(pod.Spec))
	// The agent reads nothing else of the status.
	pod.Status = corev1.PodStatus{Phase: pod.Status.Phase}
	p.ObjectMetaAccessor = controller.PackPod(pod)
	return p
}

// Key is the namespace and the name of the pod.
func (p *Pod) Key() types.NamespacedName { return keyOf(p.ObjectMetaAccessor) }

// Unpack makes the object anew, as that of a controller.PackedObject does.
func (p *Pod) Unpack() any {
	if other, ok := p.ObjectMetaAccessor.(identity); ok {
		return &corev1.Pod{ObjectMeta: other.meta(), Spec: corev1.PodSpec{NodeName: p.Node}, Status: corev1.PodStatus{Phase: p.phase}}
	}
	return controller.Unpacked(p.ObjectMetaAccessor)
}

// Shadow is what the informer on ShadowPods keeps. Whoever asks it for a ShadowPod gets the whole one.
type Shadow struct {
	// This is the whole ShadowPod, packed.
	metav1.ObjectMetaAccessor
	// Home is the ID of the home cluster that the ShadowPod names.
	Home       string
	Generation int64
	// Waits says that no pod was made so far, OverOffer that this is because of the offer.
	Waits, OverOffer bool
}

// NewShadow returns what is kept of a ShadowPod, which must not be used any more.
func NewShadow(shadow *remotev1alpha1.ShadowPod) *Shadow {
	shadow.ManagedFields = nil
	status := &shadow.Status
	s := &Shadow{
		Home: unique.Make(shadow.Spec.Home.Cluster).Value(), Generation: shadow.Generation,
		Waits: status.Phase == "" || status.Phase == remotev1alpha1.ShadowPodPending,
	}
	s.OverOffer = s.Waits && status.Reason == policy.ReasonOverOffer
	s.ObjectMetaAccessor = controller.PackShadowPod(shadow)
	return s
}

// Key is the namespace and the name of the ShadowPod.
func (s *Shadow) Key() types.NamespacedName { return keyOf(s.ObjectMetaAccessor) }

// Unpack makes the object anew, as that of a controller.PackedObject does.
func (s *Shadow) Unpack() any { return controller.Unpacked(s.ObjectMetaAccessor) }

// keyOf makes nothing of what is packed, since it is asked of every pod that changes.
func keyOf(kept metav1.ObjectMetaAccessor) types.NamespacedName {
	if keyed, ok := kept.(interface{ Key() types.NamespacedName }); ok {
		return keyed.Key()
	}
	meta := kept.GetObjectMeta()
	return types.NamespacedName{Namespace: meta.GetNamespace(), Name: meta.GetName()}
}

// Volume is what is kept of a volume.
type Volume struct {
	identity
	// Unclaimed is the class of which a claim could get the volume; empty if none could.
	Unclaimed string
}

// NewVolume returns what is kept of a volume.
func NewVolume(volume *corev1.PersistentVolume) *Volume {
	v := &Volume{identity: identityOf(volume)}
	if virtualclass.Unclaimed(volume) {
		v.Unclaimed = unique.Make(volume.Spec.StorageClassName).Value()
	}
	return v
}

// newNode returns what an offer depends on of a node: much of one is the list of its images, and its heartbeats change nothing.
func newNode(node *corev1.Node) *corev1.Node {
	kept := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: node.Name, UID: node.UID, ResourceVersion: node.ResourceVersion, Labels: node.Labels,
			DeletionTimestamp: node.DeletionTimestamp},
		Spec:   corev1.NodeSpec{Unschedulable: node.Spec.Unschedulable, Taints: node.Spec.Taints},
		Status: corev1.NodeStatus{Allocatable: node.Status.Allocatable, DeclaredFeatures: node.Status.DeclaredFeatures},
	}
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			kept.Status.Conditions = []corev1.NodeCondition{{Type: c.Type, Status: c.Status}}
		}
	}
	return kept
}

// SameNode reports whether two nodes are the same for an offer.
func SameNode(a, b *corev1.Node) bool {
	if a == nil || b == nil {
		return a == b
	}
	other := *b
	other.ResourceVersion = a.ResourceVersion
	return equality.Semantic.DeepEqual(a, &other)
}

// identity is what caches ask of an object.
type identity struct {
	namespace string
	// text is name, UID and resource version.
	text      string
	name, uid uint32
}

func identityOf(object metav1.Object) identity {
	name, uid := object.GetName(), string(object.GetUID())
	return identity{
		namespace: unique.Make(object.GetNamespace()).Value(), text: name + uid + object.GetResourceVersion(),
		name: uint32(len(name)), uid: uint32(len(uid)),
	}
}

func (i identity) meta() metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: i.namespace, Name: i.text[:i.name], UID: types.UID(i.text[i.name:][:i.uid]),
		ResourceVersion: i.text[i.name+i.uid:]}
}

// GetObjectMeta implements metav1.ObjectMetaAccessor, for caches: the result has what identifies the object and its
// version, and nothing else.
func (i identity) GetObjectMeta() metav1.Object {
	meta := i.meta()
	return &meta
}

// Key is the namespace and the name of the object.
func (i identity) Key() types.NamespacedName {
	return types.NamespacedName{Namespace: i.namespace, Name: i.text[:i.name]}
}

// Requests are requests of resources. Equal ones compare as equal.
type Requests struct{ text unique.Handle[string] }

func requestsOf(list corev1.ResourceList) Requests {
	return Requests{unique.Make(string(controller.EncodePart(&corev1.ResourceRequirements{Requests: list})))}
}

// List returns the requests as a new list.
func (r Requests) List() corev1.ResourceList {
	if r == (Requests{}) {
		return corev1.ResourceList{}
	}
	return controller.DecodePart[corev1.ResourceRequirements]([]byte(r.text.Value())).Requests
}

// Sum adds up requests, each as often as it is given.
func Sum(times map[Requests]int64) corev1.ResourceList {
	sum := corev1.ResourceList{}
	for requests, n := range times {
		list := requests.List()
		for name, quantity := range list {
			quantity.Mul(n)
			list[name] = quantity
		}
		policy.AddRequests(sum, list)
	}
	return sum
}
