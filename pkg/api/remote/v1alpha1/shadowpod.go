package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/json"

	"github.com/lodestone-storage/lodestone/pkg/sentence"
)

// ShadowPod asks for a pod of its own name in its own namespace, for a pod of
// a home cluster. The remote agent makes the pod and keeps it: it alone decides
// whether a pod that disappeared is made again, and writes that down before it
// acts. A ShadowPod that is deleted stays until its pod is proven gone.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.reason`
// +kubebuilder:printcolumn:name="Restarts",type=integer,JSONPath=`.status.restarts`
// +kubebuilder:printcolumn:name="Home",type=string,JSONPath=`.spec.home.cluster`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.message`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.spec.home == oldSelf.spec.home",message="spec.home cannot be changed: it says which pod this is"
type ShadowPod struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   ShadowPodSpec   `json:"spec"`
	Status ShadowPodStatus `json:"status,omitempty"`
}

// ShadowPodList is a list of ShadowPod objects.
//
// +kubebuilder:object:root=true
type ShadowPodList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []ShadowPod `json:"items"`
}

// ShadowPodSpec is the pod that is asked for.
type ShadowPodSpec struct {
	// Home is the home pod.
	Home HomePod `json:"home"`

	// Pod is what to make. Of its metadata only labels and annotations count.
	//
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:pruning:PreserveUnknownFields
	Pod corev1.PodTemplateSpec `json:"pod"`

	// Start lets the agent make the pod; before that it makes none. Home sets it,
	// on just this ShadowPod, once the home pod says that it has this one. So
	// a request to create a ShadowPod that arrives late, when its home pod may be
	// gone and run elsewhere, starts nothing.
	//
	// +optional
	Start bool `json:"start,omitempty"`

	// GracePeriodSeconds is how long the pod may take to end once the ShadowPod
	// is deleted; absent: as the pod itself says. It is written before the
	// ShadowPod is deleted and may be made shorter after.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	GracePeriodSeconds *int64 `json:"gracePeriodSeconds,omitempty"`

	// Unreadable says why Pod cannot be read; Pod is empty then and must not be
	// acted on. It is not part of the object: it is known from reading one.
	Unreadable string `json:"-"`
}

// HomePod names a pod of a home cluster.
type HomePod struct {
	// Cluster is the home cluster's ID.
	Cluster string `json:"cluster"`
	// Namespace is its namespace at home.
	Namespace string `json:"namespace"`
	// Name is its name.
	Name string `json:"name"`
	// UID is its UID.
	UID types.UID `json:"uid"`
}

// ShadowPodPhase is where a ShadowPod is in its life.
type ShadowPodPhase string

const (
	// ShadowPodPending says that no pod was made yet; Reason and Message say why if it was
	// tried.
	ShadowPodPending ShadowPodPhase = "Pending"
	// ShadowPodCreating says that a pod of the name may exist from here on.
	ShadowPodCreating ShadowPodPhase = "Creating"
	// ShadowPodCreated says that the pod with UID PodUID was made.
	ShadowPodCreated ShadowPodPhase = "Created"
	// ShadowPodLost says that the pod is gone and no other one will ever be made;
	// it is final.
	ShadowPodLost ShadowPodPhase = "Lost"
)

// ReasonNotCarried is the reason of a ShadowPod whose pod was made, but could not be changed as its template
// was; the message says why. It is tried again.
const ReasonNotCarried = "NotCarried"

// ShadowPodStatus is what the remote agent did. Only the agent writes it.
type ShadowPodStatus struct {
	// ObservedGeneration is the generation of the spec that the agent saw when it last wrote the status.
	//
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// Phase is Pending while no pod was made, Creating while one may exist, Created once
	// it was made, and Lost when it is gone and no other one will be made.
	//
	// +optional
	Phase ShadowPodPhase `json:"phase,omitempty"`

	// PodUID is the UID of the pod that was made last.
	//
	// +optional
	PodUID types.UID `json:"podUID,omitempty"`

	// Restarts is how often a pod that disappeared was made again.
	//
	// +optional
	Restarts int32 `json:"restarts"`

	// Reason is one word on the phase.
	//
	// +optional
	Reason string `json:"reason,omitempty"`
	// Message is one sentence on the phase.
	//
	// +optional
	Message string `json:"message,omitempty"`
}

// longestProblem bounds what Unreadable says, in bytes: errors may repeat what
// was read.
const longestProblem = 200

// UnmarshalJSON never fails on what the API server lets pass. The schema leaves
// spec.pod open, so a home cluster may write anything there; if one of those
// could not be decoded, no list that holds it could be, and nobody's pods would
// be seen. What cannot be read is left empty, and Unreadable says why.
func (s *ShadowPodSpec) UnmarshalJSON(data []byte) error {
	type plain ShadowPodSpec
	var whole plain
	err := checkQuantities(data)
	if err == nil {
		err = json.Unmarshal(data, &whole)
	}
	if err == nil {
		*s = ShadowPodSpec(whole)
		return nil
	}
	*s = ShadowPodSpec{Unreadable: sentence.Cut(err.Error(), longestProblem)}
	var fields map[string]any
	if json.Unmarshal(data, &fields) != nil {
		return nil //nolint:nilerr // Unreadable says what is wrong
	}
	// One by one, so that none depends on the others.
	readField(fields, "home", &s.Home)
	readField(fields, "start", &s.Start)
	readField(fields, "gracePeriodSeconds", &s.GracePeriodSeconds)
	return nil
}

// readField sets a value to that of a field if that can be read.
func readField[T any](fields map[string]any, name string, value *T) {
	text, err := json.Marshal(fields[name])
	if err != nil {
		return
	}
	var read T
	if json.Unmarshal(text, &read) == nil {
		*value = read
	}
}
