// Package decide holds the decisions on pods of virtual nodes, as pure
// functions: what was observed of one home pod goes in, the one next step comes
// out. Every step is safe to repeat, and one that is taken on what was true
// a while ago does nothing, so programs may be stopped anywhere and requests may
// arrive late.
//
// That no second copy of a pod ever runs rests on four rules. A home pod is
// protected by a finalizer before anything is asked for in the remote cluster.
// A ShadowPod starts nothing when it is created; the home pod first says that it
// has just this one, in a write that fails if the home pod has changed, and only
// then it is started. The finalizer goes only when requests made after the home
// pod had ended show that neither that ShadowPod nor a pod of it exists. And what
// exists for no home pod is deleted.
package decide

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"

	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// Observation is what is known of one home pod, by its UID, at one moment.
// Everything in it comes from caches and is not changed.
type Observation struct {
	// Cluster is the ID of the remote cluster, ClusterUID the UID of its
	// kube-system namespace.
	Cluster    string
	ClusterUID types.UID
	Network    v1alpha1.PodNetwork

	// Pod is the home pod, nil when none of this UID is on the virtual node.
	Pod *corev1.Pod
	// Open says whether the pod's namespace is open to the remote cluster.
	Open bool
	// HostIP is the address of the virtual node. Current is false while that node
	// is not ready: then nothing that is seen of the remote cluster is news. Silent
	// is true while it says so, and false too while there is no such node.
	HostIP          string
	Current, Silent bool

	// Place is the namespace of the remote cluster that the pod belongs in.
	Place Place
	// Shadow is the ShadowPod of this home pod, Remote the pod, nil when they are
	// not seen.
	Shadow *remotev1alpha1.ShadowPod
	Remote *corev1.Pod
	// Blocking is the ShadowPod of another home pod that has the name.
	Blocking *remotev1alpha1.ShadowPod
	// Template is the pod to ask for.
	Template corev1.PodTemplateSpec
	// Problem says why the last request for this pod failed, empty if it did not.
	Problem string
}

// Place is a namespace of the remote cluster.
type Place struct {
	Name string
	// Given says whether it may be used; Message is a sentence why not.
	Given   bool
	Message string
	// Seen is false while it is unknown what exists there.
	Seen bool
}

// Copy is what a home pod says of its copy. Namespace is that of the ShadowPod, empty
// where the home pod does not say it.
type Copy struct {
	ClusterUID, ShadowUID types.UID
	Namespace             string
}

// String returns the value of the annotation keys.RemoteCopy.
func (c Copy) String() string {
	return string(c.ClusterUID) + "/" + string(c.ShadowUID) + "/" + c.Namespace
}

// within says whether the copy is, or was, where an observation looks for it.
func (c Copy) within(o Observation) bool {
	return c.ClusterUID == o.ClusterUID && (c.Namespace == "" || c.Namespace == o.Place.Name)
}

// CopyOf returns what a home pod says of its copy; false when nothing was ever
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
	// Idle does nothing: there is nothing to do until something changes.
	Idle Verb = "Idle"
	// Refuse marks the home pod as failed, for it may not run there.
	Refuse Verb = "Refuse"
	// Protect puts the finalizer on the home pod.
	Protect Verb = "Protect"
	// Create creates the ShadowPod, which starts nothing yet.
	Create Verb = "Create"
	// Record has the home pod say that it has the ShadowPod.
	Record Verb = "Record"
	// Start has the agent make the pod.
	Start Verb = "Start"
	// Follow carries changes of the home pod to the ShadowPod.
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
	// Finish lets the home pod go if ShadowPod and pod are proven gone.
	Finish Verb = "Finish"
	// Release lets the home pod go: nothing was ever started for it.
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
	// Grace is set for End: the seconds that the pod may take to end, nil for as
	// long as the pod itself says.
	Grace *int64
	// Tell is what the user should know, nil for nothing.
	Tell *Message
}

// Message is an event on the home pod.
type Message struct {
	Warning bool
	// Reason is one word, Text one sentence.
	Reason, Text string
}

func warn(reason, text string) *Message { return &Message{Warning: true, Reason: reason, Text: text} }
