package decide_test

import (
	"encoding/json"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/backing"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/locality"
	"github.com/lodestone-storage/lodestone/provisioner/claims/route"
	"github.com/lodestone-storage/lodestone/provisioner/claims/steps"
)

// The objects of these tests: claim u1 (shop/data); nodes node-1 at home and west-1 for
// west; real classes "wait" (WaitForFirstConsumer, the default) and "now" (Immediate).
const (
	uid = types.UID("u1")
)

var (
	now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
)

// change alters an observation.
type change func(*steps.Observation)

// observe returns the observation of a new claim.
func observe(changes ...change) steps.Observation {
	clusters := map[string]steps.Cluster{keys.Home: good(), "west": good(), "east": good()}
	o := steps.Observation{
		Now: now, UID: uid,
		Namespace: &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", Labels: map[string]string{keys.Offload: keys.OffloadEnabled}}},
		Claim: &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "data", UID: uid,
				Annotations: map[string]string{keys.StorageProvisioner: keys.Driver}},
			Spec: corev1.PersistentVolumeClaimSpec{StorageClassName: ptr.To("lodestone")},
		},
		Class: &storagev1.StorageClass{
			ObjectMeta: metav1.ObjectMeta{Name: "lodestone"}, Provisioner: keys.Driver,
			VolumeBindingMode: ptr.To(storagev1.VolumeBindingWaitForFirstConsumer), Parameters: map[string]string{},
		},
		Cluster: func(id string) steps.Cluster { return clusters[id] },
	}
	for _, c := range changes {
		c(&o)
	}
	return o
}

func good() steps.Cluster {
	return steps.Cluster{Usable: true, Seen: true, Since: now.Add(-time.Hour),
		ClusterClasses: route.ClusterClasses{Known: true, Offered: []v1alpha1.OfferedClass{
			{Name: "now", BindingMode: storagev1.VolumeBindingImmediate},
			{Name: "roomy", BindingMode: storagev1.VolumeBindingImmediate, AllowVolumeExpansion: true},
			{Name: "wait", Default: true, BindingMode: storagev1.VolumeBindingWaitForFirstConsumer},
		}}}
}

func cluster(id string, alter func(*steps.Cluster)) change {
	return func(o *steps.Observation) {
		inner := o.Cluster
		o.Cluster = func(asked string) steps.Cluster {
			c := inner(asked)
			if asked == id {
				alter(&c)
			}
			return c
		}
	}
}

func unreachable(id string, since time.Duration) change {
	return cluster(id, func(c *steps.Cluster) {
		c.Usable, c.Seen, c.Message, c.Since = false, false, "no answer", now.Add(-since)
	})
}

func unknown(id string) change { return cluster(id, func(c *steps.Cluster) { *c = steps.Cluster{} }) }
func unseen(id string) change  { return cluster(id, func(c *steps.Cluster) { c.Seen = false }) }

// on selects a node for the claim.
func on(node string) change {
	return func(o *steps.Observation) {
		o.Claim.Annotations[keys.SelectedNode] = node
		o.Node = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}
		if node == "west-1" {
			o.Node.Labels = map[string]string{keys.Cluster: "west"}
		}
	}
}

func annotated(key, value string) change {
	return func(o *steps.Observation) { o.Claim.Annotations[key] = value }
}

func without(key string) change {
	return func(o *steps.Observation) { delete(o.Claim.Annotations, key) }
}

func parameter(key, value string) change {
	return func(o *steps.Observation) { o.Class.Parameters[key] = value }
}

func retain(o *steps.Observation) {
	o.Class.ReclaimPolicy = ptr.To(corev1.PersistentVolumeReclaimRetain)
}
func noClaim(o *steps.Observation)   { o.Claim = nil }
func unsent(o *steps.Observation)    { o.Unsent = true }
func handedOut(o *steps.Observation) { o.HandedOut = true }
func boundTo(volume string) change {
	return func(o *steps.Observation) { o.Claim.Spec.VolumeName = volume }
}

func deletedClaim(o *steps.Observation) { o.Claim.DeletionTimestamp = ptr.To(metav1.NewTime(now)) }

// have adds a backing claim in a cluster: unpublished, pending, just created.
func have(cluster string, alter ...func(*steps.Backing)) change {
	return func(o *steps.Observation) {
		b := steps.Backing{Cluster: cluster, Claim: &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "shop", Name: "data", UID: types.UID("b-" + cluster), CreationTimestamp: metav1.NewTime(now),
				Annotations: map[string]string{keys.Unpublished: "true"}, Finalizers: []string{keys.BackingFinalizer},
			},
			Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimPending},
		}}
		if cluster == keys.Home {
			b.Claim.Annotations[keys.SelectedNode] = "node-1"
		}
		for _, a := range alter {
			a(&b)
		}
		o.Backings = append(o.Backings, b)
	}
}

func pvcBound(b *steps.Backing) {
	b.Claim.Status.Phase = corev1.ClaimBound
	b.Claim.Spec.VolumeName = "real-" + b.Cluster
	b.Volume = &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "real-" + b.Cluster},
		Spec:       corev1.PersistentVolumeSpec{Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("2Gi")}},
	}
}

// promised makes a twin of class wait as it is before it is bound: its volume was made for it.
func promised(alter ...func(*corev1.PersistentVolume)) func(*steps.Backing) {
	return func(b *steps.Backing) {
		b.Claim.Spec.StorageClassName = ptr.To("wait")
		b.Claim.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
		b.Claim.Spec.Resources.Requests = storage("1Gi")
		b.Made = &corev1.PersistentVolume{
			ObjectMeta: metav1.ObjectMeta{Name: "pvc-" + string(b.Claim.UID), Annotations: map[string]string{
				"pv.kubernetes.io/provisioned-by": driver}},
			Spec: corev1.PersistentVolumeSpec{
				ClaimRef:         &corev1.ObjectReference{Namespace: b.Claim.Namespace, Name: b.Claim.Name, UID: b.Claim.UID},
				StorageClassName: "wait", Capacity: storage("1Gi"),
				AccessModes:            []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce, corev1.ReadOnlyMany},
				PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: driver}},
			},
			Status: corev1.PersistentVolumeStatus{Phase: corev1.VolumePending},
		}
		for _, a := range alter {
			a(b.Made)
		}
	}
}

// routeTo is a route to class wait or now of a cluster.
func routeTo(cluster string, deferred bool) route.Route {
	class := v1alpha1.OfferedClass{Name: "wait", Provisioner: driver, BindingMode: storagev1.VolumeBindingWaitForFirstConsumer}
	if !deferred {
		class.BindingMode = storagev1.VolumeBindingImmediate
	}
	return route.Route{Cluster: cluster, Node: "node-1", Class: class}
}

// of sets the real class of a backing claim.
func of(class string) func(*steps.Backing) {
	return func(b *steps.Backing) { b.Claim.Spec.StorageClassName = &class }
}

func volumeUnseen(b *steps.Backing) { b.Claim.Status.Phase, b.Volume = corev1.ClaimBound, nil }
func published(b *steps.Backing)    { delete(b.Claim.Annotations, keys.Unpublished) }
func lost(b *steps.Backing)         { b.Claim.Status.Phase, b.Volume = corev1.ClaimLost, nil }
func terminating(b *steps.Backing)  { b.Claim.DeletionTimestamp = ptr.To(metav1.NewTime(now)) }
func unprotected(b *steps.Backing)  { b.Claim.Finalizers = []string{"kubernetes.io/pvc-protection"} }
func old(b *steps.Backing)          { b.Claim.CreationTimestamp = metav1.NewTime(now.Add(-time.Minute)) }
func dropped(b *steps.Backing)      { delete(b.Claim.Annotations, keys.SelectedNode) }

// chosenThere sets the selected node of a backing claim, as for a pod in its cluster.
func chosenThere(b *steps.Backing) {
	if b.Cluster != keys.Home {
		b.Claim.Annotations[keys.SelectedNode] = "there"
	}
}

// nodesGone leaves no node on which the real volume can be used.
func nodesGone(b *steps.Backing) { b.NodesGone = "node-9" }

// volume adds the virtual volume of the claim, with its data in a cluster.
func volume(in string, alter ...func(*corev1.PersistentVolume)) change {
	return func(o *steps.Observation) {
		o.Volume = &corev1.PersistentVolume{
			ObjectMeta: metav1.ObjectMeta{Name: "pvc-u1", UID: "v1", Annotations: map[string]string{
				keys.Backing: in + "/shop/data/b-" + in, keys.BackingVolume: "real-" + in}},
			Spec: corev1.PersistentVolumeSpec{
				Capacity:                      corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("2Gi")},
				PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete,
				PersistentVolumeSource:        corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: keys.Driver}},
			},
			Status: corev1.PersistentVolumeStatus{Phase: corev1.VolumeBound},
		}
		if in == keys.Home {
			o.Volume.Spec.CSI.Driver = "disk.csi.dev"
		}
		for _, a := range alter {
			a(o.Volume)
		}
	}
}

func released(v *corev1.PersistentVolume) { v.Status.Phase = corev1.VolumeReleased }
func keepIt(v *corev1.PersistentVolume) {
	v.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRetain
}
func declaredLost(v *corev1.PersistentVolume) { v.Annotations[keys.Lost] = "2026-01-02T03:04:05Z" }
func nameless(v *corev1.PersistentVolume)     { delete(v.Annotations, keys.BackingVolume) }
func small(v *corev1.PersistentVolume) {
	v.Spec.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
}

// sibling adds another unbound claim of the same pod.
func sibling(ready bool, refusals ...locality.Refusal) change {
	return func(o *steps.Observation) {
		o.Siblings = append(o.Siblings, steps.Sibling{Ready: ready, Claim: &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "logs", Annotations: map[string]string{keys.Refused: encode(refusals...)}}}})
	}
}

func refusedBy(cluster, node string, left time.Duration) locality.Refusal {
	return locality.Refusal{Cluster: cluster, Node: node, Reason: "QuotaExceeded", Message: "raise the quota", Until: now.Add(left)}
}

func encode(refusals ...locality.Refusal) string {
	data, err := json.Marshal(refusals)
	if err != nil {
		panic(err)
	}
	return string(data)
}

// justMissed makes the backing claim missing for only a moment.
func justMissed(o *steps.Observation) { o.MissedSince = o.Now.Add(-time.Second) }

// as returns the action of a step as this type, the zero value if it has another type.
func as[A steps.Action](step steps.Step) A {
	action, _ := step.Action.(A)
	return action
}

// backingOf is the backing claim of a step's action, empty for none.
func backingOf(step steps.Step) steps.Backing {
	switch a := step.Action.(type) {
	case steps.CreateVolume:
		return a.Backing
	case steps.MarkPublished:
		return a.Backing
	case steps.RemoveBacking:
		return a.Backing
	case steps.ReleaseBacking:
		return a.Backing
	case steps.UpdateVolume:
		return a.Backing
	case steps.ExpandBacking:
		return a.Backing
	case steps.UpdateClaimStatus:
		return a.Backing
	case steps.ModifyBacking:
		return a.Backing
	case steps.SyncMetadata:
		return a.Backing
	case steps.ReadEvents:
		return a.Backing
	case steps.HealBacking:
		return a.Backing
	}
	return steps.Backing{}
}

// routeOf is the route of a step, refusalOf its refusal, and refOfStep the backing claim
// that is gone; empty for none.
func routeOf(step steps.Step) route.Route {
	if a, ok := step.Action.(steps.CreateVolume); ok {
		return a.Route
	}
	return as[steps.CreateBacking](step).Route
}

func refusalOf(step steps.Step) *steps.Refusal {
	if a, ok := step.Action.(steps.RemoveBacking); ok {
		return a.Refusal
	}
	return as[steps.Reschedule](step).Refusal
}

func refOfStep(step steps.Step) backing.Ref {
	if a, ok := step.Action.(steps.ConfirmGone); ok {
		return a.Ref
	}
	return as[steps.HealBacking](step).Ref
}
