// Package decide has the decisions on pods of virtual nodes, as pure functions: Next takes an
// Observation of one home pod and returns the one next Step. Every step is safe to repeat, and one
// that was decided on old observations does nothing, so programs may be stopped anywhere and
// requests may arrive late.
//
// Four rules guarantee that no second copy of a pod ever runs. A home pod gets a finalizer before
// anything is requested in the remote cluster. A ShadowPod starts nothing when it is created; first
// the UID of just this ShadowPod is recorded on the home pod, in a write that fails if the home pod
// has changed, and only then it is started. The finalizer is removed only when requests made after
// the end of the home pod show that neither that ShadowPod nor a pod of it exists. And a ShadowPod
// without a home pod is deleted.
package decide

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/remotecluster"
	"github.com/lodestone-storage/lodestone/virtualnode/translate"
)

// Observation is what is known of one home pod, by its UID, at one moment. All of it is from
// caches; it must not be changed.
type Observation struct {
	// Cluster is the ID of the remote cluster, ClusterUID the UID of its
	// kube-system namespace.
	Cluster    string
	ClusterUID types.UID
	Network    v1alpha1.PodNetwork
	// Ranges are the addresses that the cluster may give to pods.
	Ranges remotecluster.PodRanges
	// Translations say by which others home reaches some of them.
	Translations remotecluster.Translations

	// Pod is the home pod, nil if none of this UID is on the virtual node.
	Pod *corev1.Pod
	// Open reports whether pods of the namespace may run in the remote cluster.
	Open bool
	// HostIP is the address of the virtual node. Current is false while that node is not ready:
	// then what is known of the remote cluster may be old. Silent is true while the node's
	// condition says that the remote cluster does not answer; it is false too if there is no such
	// node.
	HostIP          string
	Current, Silent bool

	// Namespace is the namespace of the remote cluster that the pod belongs in.
	Namespace Namespace
	// Shadow is the ShadowPod of this home pod, Remote its pod, nil if the caches have none.
	Shadow *remotev1alpha1.ShadowPod
	Remote *corev1.Pod
	// Blocking is the ShadowPod of another home pod that has the same name.
	Blocking *remotev1alpha1.ShadowPod
	// Template is the pod to request.
	Template corev1.PodTemplateSpec
	// Problem says why the last request for this pod failed, empty if it did not.
	Problem string
	// StaysHome says which claim of the pod cannot be used in the remote cluster, and what to do; empty
	// if none was found. Replace is true while a pod that stays for this reason may be replaced.
	StaysHome string
	Replace   bool
}

// Namespace is a namespace of the remote cluster.
type Namespace struct {
	Name string
	// Given reports whether home may use it; Message is a sentence why not.
	Given   bool
	Message string
	// Seen is false while the objects in it have not been listed.
	Seen bool
}

// Copy is what a home pod's annotation records of its copy. Namespace is that of the ShadowPod,
// empty if it is not recorded.
type Copy struct {
	ClusterUID, ShadowUID types.UID
	Namespace             string
}

// String returns the value of the annotation keys.RemoteCopy.
func (c Copy) String() string {
	return string(c.ClusterUID) + "/" + string(c.ShadowUID) + "/" + c.Namespace
}

// within reports whether the copy is, or was, in the cluster and namespace that an observation is
// about.
func (c Copy) within(o Observation) bool {
	return c.ClusterUID == o.ClusterUID && (c.Namespace == "" || c.Namespace == o.Namespace.Name)
}

// CopyOf returns what a home pod's annotation records of its copy; false if nothing was ever
// started for it.
func CopyOf(pod *corev1.Pod) (Copy, bool) {
	value, ok := pod.Annotations[keys.RemoteCopy]
	cluster, rest, _ := strings.Cut(value, "/")
	shadow, namespace, _ := strings.Cut(rest, "/")
	return Copy{ClusterUID: types.UID(cluster), ShadowUID: types.UID(shadow), Namespace: namespace}, ok
}

// Verb names what a step does.
type Verb string

// The verbs of a step.
const (
	// Idle does nothing: there is nothing to do until an event comes.
	Idle Verb = "Idle"
	// Refuse marks the home pod as failed because it may not run there.
	Refuse Verb = "Refuse"
	// Protect adds the finalizer to the home pod.
	Protect Verb = "Protect"
	// Create creates the ShadowPod, which starts nothing yet.
	Create Verb = "Create"
	// Replace deletes the home pod, for which nothing was started, so that its controller makes
	// another: that one may go elsewhere.
	Replace Verb = "Replace"
	// Record writes the ShadowPod's UID into the annotation of the home pod.
	Record Verb = "Record"
	// Start makes the remote agent create the pod.
	Start Verb = "Start"
	// Follow applies changes of the home pod to the ShadowPod.
	Follow Verb = "Follow"
	// Report writes the status of the home pod.
	Report Verb = "Report"
	// Annotate writes the address of the remote pod on the home pod.
	Annotate Verb = "Annotate"
	// Lose marks the home pod as failed if its ShadowPod is proven gone.
	Lose Verb = "Lose"
	// Fail marks the home pod as failed.
	Fail Verb = "Fail"
	// End deletes the ShadowPod, or shortens the time that its pod has to end.
	End Verb = "End"
	// Finish removes the home pod's finalizer if ShadowPod and pod are proven gone.
	Finish Verb = "Finish"
	// Release removes the home pod's finalizer: nothing was ever started for it.
	Release Verb = "Release"
	// Sweep deletes the ShadowPod if its home pod is proven gone.
	Sweep Verb = "Sweep"
)

// Step is the next thing to do for a home pod.
type Step struct {
	Verb Verb
	// Status is set for Refuse, Report and Fail.
	Status corev1.PodStatus
	// Address is set for Annotate; empty removes it.
	Address string
	// Grace is set for End: the grace period in seconds, nil for that of the pod itself.
	Grace *int64
	// Tell is a message for the user, nil for none.
	Tell *Message
}

// Message is an event on the home pod.
type Message struct {
	Warning bool
	// Reason is one word, Text one sentence.
	Reason, Text string
}

func warn(reason, text string) *Message { return &Message{Warning: true, Reason: reason, Text: text} }

// Next returns the next step for a home pod.
func Next(o Observation) Step {
	switch {
	case o.Pod == nil:
		return homeless(o)
	case o.Pod.DeletionTimestamp != nil:
		return leaving(o)
	case Ended(o.Pod):
		return ended(o)
	}
	if _, started := CopyOf(o.Pod); started {
		return running(o)
	}
	return starting(o)
}

// Ended reports whether a pod has ended for good.
func Ended(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// Protected reports whether a home pod has our finalizer.
func Protected(pod *corev1.Pod) bool { return slices.Contains(pod.Finalizers, keys.RemotePodFinalizer) }

// homeless returns the step for a ShadowPod whose home pod is gone.
func homeless(o Observation) Step {
	if o.Shadow == nil || o.Shadow.DeletionTimestamp != nil {
		return Step{Verb: Idle}
	}
	return Step{Verb: Sweep}
}

// starting returns the step for a home pod for which nothing runs yet.
func starting(o Observation) Step {
	if o.Shadow != nil && o.Shadow.Spec.Start {
		// The copy runs: only the annotation of the home pod was lost.
		return Step{Verb: Record}
	}
	if m := refused(o); m != nil {
		return Step{Verb: Refuse, Status: Failed(o.Pod, m.Reason, m.Text), Tell: m}
	}
	switch {
	case !o.Namespace.Given:
		return waiting(o, "NamespaceNotGiven", o.Namespace.Message)
	case !o.Namespace.Seen:
		return waiting(o, "ClusterNotSeen", fmt.Sprintf("waiting until namespace %q of cluster %s can be read", o.Namespace.Name, o.Cluster))
	case o.Blocking != nil:
		return waiting(o, "NameTaken", fmt.Sprintf("waiting until the earlier pod of this name has ended in cluster %s", o.Cluster))
	case o.Shadow != nil && o.Shadow.DeletionTimestamp != nil:
		return waiting(o, "NameTaken", fmt.Sprintf("waiting until ShadowPod %s/%s is gone from cluster %s, where somebody deleted it",
			o.Shadow.Namespace, o.Shadow.Name, o.Cluster))
	case !Protected(o.Pod):
		return Step{Verb: Protect}
	case o.Shadow == nil && o.StaysHome != "":
		return staysHome(o)
	case o.Shadow == nil && o.Problem != "":
		// The request is repeated nevertheless; the caller waits longer each time.
		return problem(o, Create)
	case o.Shadow == nil:
		return Step{Verb: Create}
	}
	return Step{Verb: Record}
}

// problem returns a step that failed before: first the status says why, so that the user can read
// it.
func problem(o Observation, verb Verb) Step {
	if step := waiting(o, "RemoteRequestFailed", o.Problem); step.Verb == Report {
		return step
	}
	return Step{Verb: verb}
}

// staysHome returns the step for a pod that a scheduler without the extender has put here, though a
// claim of it cannot be used here. It is not marked as failed: some controllers would make the next
// one at once, again and again. A pod without controller would not come back, so it only waits.
// Whether the claim can be used is asked again with each Create.
func staysHome(o Observation) Step {
	step := waiting(o, "ClaimStaysHome", o.StaysHome)
	switch {
	case step.Verb == Report:
	case o.Replace && metav1.GetControllerOf(o.Pod) != nil:
		step.Verb = Replace
	default:
		step.Verb = Create
	}
	return step
}

// waiting returns the step that writes into the status what the home pod waits for.
func waiting(o Observation, reason, text string) Step {
	tell := warn(reason, text)
	status := translate.Status(translate.Seen{Home: o.Pod, HostIP: o.HostIP, Network: o.Network, Reason: reason, Message: text})
	if !equality.Semantic.DeepEqual(o.Pod.Status, status) {
		return Step{Verb: Report, Status: status, Tell: tell}
	}
	return Step{Verb: Idle, Tell: tell}
}

// running returns the step for a home pod that has, or had, a copy.
func running(o Observation) Step {
	had, _ := CopyOf(o.Pod)
	if !had.within(o) {
		return elsewhere(o, had)
	}
	if !Protected(o.Pod) {
		return Step{Verb: Protect}
	}
	shadow := o.Shadow
	switch {
	case shadow == nil && !o.Namespace.Seen:
		return Step{Verb: Idle}
	case shadow == nil:
		return Step{Verb: Lose}
	case shadow.UID != had.ShadowUID && shadow.Spec.Start:
		return Step{Verb: Record}
	case shadow.UID != had.ShadowUID:
		// A late request created it; the copy that ran is gone.
		return Step{Verb: Lose}
	case shadow.Status.Phase == remotev1alpha1.ShadowPodLost:
		text := translate.Message(shadow.Status.Message)
		if text == "" {
			text = fmt.Sprintf("the pod disappeared from cluster %s, where somebody deleted it or its node was lost", o.Cluster)
		}
		return Step{Verb: Fail, Status: Failed(o.Pod, "RemotePodLost", text), Tell: warn("RemotePodLost", text)}
	case shadow.DeletionTimestamp != nil:
		return report(o)
	case !shadow.Spec.Start:
		return Step{Verb: Start}
	case !equality.Semantic.DeepEqual(shadow.Spec.Pod, o.Template):
		return Step{Verb: Follow}
	}
	return report(o)
}

// report returns the step that updates the home pod's status from the remote pod.
func report(o Observation) Step {
	if !o.Current {
		// The remote pod may be unreachable: it must get no traffic.
		if status := translate.Unreached(o.Pod); o.Silent && !equality.Semantic.DeepEqual(o.Pod.Status, status) {
			return Step{Verb: Report, Status: status}
		}
		return Step{Verb: Idle}
	}
	if o.Remote == nil && !o.Namespace.Seen {
		// After a start the ShadowPods may have been listed, and the pods not yet: a pod that runs must not lose its traffic.
		return Step{Verb: Idle}
	}
	seen := translate.Seen{Home: o.Pod, Remote: o.Remote, HostIP: o.HostIP, Network: o.Network, Ranges: o.Ranges,
		Translations: o.Translations}
	var tell *Message
	if shadow := o.Shadow; shadow != nil {
		seen.Restarts = shadow.Status.Restarts
		if o.Remote == nil {
			seen.Reason, seen.Message = shadow.Status.Reason, shadow.Status.Message
			if seen.Message != "" {
				tell = warn("RemotePodPending", fmt.Sprintf("cluster %s has not made the pod yet: %s", o.Cluster, seen.Message))
			}
		}
	}
	if shadow := o.Shadow; shadow != nil && o.Remote != nil && shadow.Status.Reason == remotev1alpha1.ReasonNotCarried {
		tell = warn("NotCarried", fmt.Sprintf("cluster %s has not made a change of the pod: %s", o.Cluster,
			translate.Message(shadow.Status.Message)))
	}
	if o.Remote != nil && o.Remote.DeletionTimestamp != nil && o.Pod.DeletionTimestamp == nil {
		tell = warn("RemotePodEnding", fmt.Sprintf("somebody is deleting the pod in cluster %s", o.Cluster))
	}
	if o.Network.Joined() && tell == nil {
		tell = withoutAddress(o, seen)
	}
	if status := translate.Status(seen); !equality.Semantic.DeepEqual(o.Pod.Status, status) {
		return Step{Verb: Report, Status: status, Tell: tell}
	}
	address := ""
	if found := translate.Addresses(o.Remote); !o.Network.Joined() && len(found) > 0 {
		address = found[0]
	}
	if o.Pod.Annotations[keys.RemoteIP] != address {
		return Step{Verb: Annotate, Address: address, Tell: tell}
	}
	return Step{Verb: Idle, Tell: tell}
}

// withoutAddress says which addresses of the remote pod the home pod does not get, nil if it gets all.
func withoutAddress(o Observation, seen translate.Seen) *Message {
	switch _, refused := seen.Addresses(); {
	case len(refused) == 0:
		return nil
	case len(o.Ranges) == 0:
		return warn("NoPodRanges", fmt.Sprintf("the pod has no address here, because the pod ranges of cluster %s are not known: name them in "+
			"spec.podCIDRs of its RemoteCluster", o.Cluster))
	default:
		return warn("AddressRefused", fmt.Sprintf("cluster %s says that the pod has address %s, which is in none of its pod ranges: it is not "+
			"used here; if it is right, add its range to spec.podCIDRs of the RemoteCluster", o.Cluster, strings.Join(refused, " and ")))
	}
}

// Failed returns the status of a home pod that has failed with this reason and message.
func Failed(pod *corev1.Pod, reason, text string) corev1.PodStatus {
	status := *pod.Status.DeepCopy()
	status.Phase, status.Reason, status.Message = corev1.PodFailed, reason, text
	for i := range status.Conditions {
		c := &status.Conditions[i]
		if (c.Type == corev1.PodReady || c.Type == corev1.ContainersReady) && c.Status != corev1.ConditionFalse {
			*c = corev1.PodCondition{Type: c.Type, Status: corev1.ConditionFalse, Reason: "PodFailed", ObservedGeneration: c.ObservedGeneration}
		}
	}
	for i := range status.ContainerStatuses {
		status.ContainerStatuses[i].Ready = false
	}
	return status
}

// leaving returns the step for a home pod that is being deleted.
func leaving(o Observation) Step {
	if !Protected(o.Pod) {
		// It never got the finalizer, or the user removed it to release the pod; what is left in
		// the remote cluster is deleted after the home pod.
		return Step{Verb: Release}
	}
	return end(o, o.Pod.DeletionGracePeriodSeconds, true)
}

// ended returns the step for a home pod that has ended but is not deleted. Its copy must end too,
// since its controller counts the pod as gone.
func ended(o Observation) Step {
	if o.Remote != nil && Ended(o.Remote) && o.Shadow != nil && o.Shadow.DeletionTimestamp == nil && Protected(o.Pod) {
		// The copy is kept because users may want its log.
		return Step{Verb: Idle}
	}
	if !Protected(o.Pod) {
		if o.Shadow != nil && o.Shadow.DeletionTimestamp == nil {
			return Step{Verb: End}
		}
		return Step{Verb: Idle}
	}
	return end(o, nil, false)
}

// end returns the step for a protected home pod whose copy has to end.
func end(o Observation, grace *int64, reports bool) Step {
	had, started := CopyOf(o.Pod)
	shadow := o.Shadow
	switch {
	case !started && (shadow == nil || !shadow.Spec.Start):
		return Step{Verb: Release}
	case started && !had.within(o):
		return elsewhere(o, had)
	case shadow == nil:
		return Step{Verb: Finish}
	case started && shadow.UID != had.ShadowUID && !shadow.Spec.Start:
		// A late request created it; it is deleted after the home pod.
		return Step{Verb: Finish}
	case shadow.DeletionTimestamp == nil:
		return Step{Verb: End, Grace: grace}
	case grace != nil && (shadow.Spec.GracePeriodSeconds == nil || *grace < *shadow.Spec.GracePeriodSeconds):
		return Step{Verb: End, Grace: grace}
	case reports && !Ended(o.Pod) && o.Remote != nil:
		return report(o)
	}
	return Step{Verb: Idle}
}

// elsewhere returns the step for a home pod whose copy is not in the observed cluster and
// namespace: it is in another cluster, in one that has never answered yet, or in another namespace
// because the ID of home was changed.
func elsewhere(o Observation, had Copy) Step {
	switch {
	case o.ClusterUID == "":
		return Step{Verb: Idle}
	case had.ClusterUID == o.ClusterUID:
		return Step{Verb: Idle,
			Tell: warn("OtherNamespace", fmt.Sprintf("the pod may run in namespace %q of cluster %s, but belongs in %q now: give --cluster-id "+
				"back its value, or give the pod up with `kubectl lodestone release pod` once it is certain that it does not run", had.Namespace,
				o.Cluster, o.Namespace.Name))}
	}
	return Step{Verb: Idle,
		Tell: warn("OtherCluster", fmt.Sprintf("the pod may run in another cluster than the one that the kubeconfig of %s reaches now: give "+
			"back the kubeconfig, or give the pod up with `kubectl lodestone release pod` once it is certain that it does not run", o.Cluster))}
}

// refused says why a pod may not run in the remote cluster, nil if it may.
func refused(o Observation) *Message {
	pod := o.Pod
	owner := metav1.GetControllerOf(pod)
	_, mirror := pod.Annotations[corev1.MirrorPodAnnotationKey]
	switch {
	case mirror:
		return warn("StaticPod", "a static pod belongs to the machine of its kubelet, and a virtual node has none")
	case owner != nil && owner.Kind == "DaemonSet":
		return warn("DaemonSetPod", fmt.Sprintf("pods of DaemonSets do not run on virtual nodes: keep DaemonSet %q off them with `kubectl "+
			"lodestone daemonsets`, or let it not tolerate taint %s", owner.Name, keys.RemoteTaint))
	case !scheduled(pod):
		return warn("NotScheduled", "the pod names a virtual node itself, so no scheduler looked at what it needs: leave spec.nodeName out and "+
			"use a node affinity")
	case len(pod.Spec.ResourceClaims) > 0:
		return warn("ResourceClaims", fmt.Sprintf("claims of devices (spec.resourceClaims) do not reach into cluster %s, whose devices home's "+
			"scheduler does not know: leave them out, or keep the pod off nodes with label %s", o.Cluster, keys.Cluster))
	case !o.Open:
		return warn("NamespaceNotOpen", fmt.Sprintf("namespace %q is not open to cluster %s: give it the label %s=%s and, if it has the "+
			"annotation %s, add the cluster there", pod.Namespace, o.Cluster, keys.Offload, keys.OffloadEnabled, keys.OffloadClusters))
	}
	return nil
}

// scheduled reports whether a scheduler bound the pod; it writes the condition together with the
// node.
func scheduled(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodScheduled && c.Status == corev1.ConditionTrue
	})
}
