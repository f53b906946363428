package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// NamespaceRequest asks for a namespace of its own name. A home cluster makes it
// in its tenant namespace; the remote agent makes the namespace within what the
// HomeCluster allows, and gives the home cluster its rights there. When the
// request is deleted the rights are taken back, and the namespace goes too if
// no claim, pod or other object of the home cluster is left in it.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="For",type=string,JSONPath=`.spec.homeNamespace`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type NamespaceRequest struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   NamespaceRequestSpec   `json:"spec,omitempty"`
	Status NamespaceRequestStatus `json:"status,omitempty"`
}

// NamespaceRequestList is a list of NamespaceRequest objects.
//
// +kubebuilder:object:root=true
type NamespaceRequestList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []NamespaceRequest `json:"items"`
}

// NamespaceRequestSpec says what the namespace is for.
type NamespaceRequestSpec struct {
	// HomeNamespace is the namespace of the home cluster.
	HomeNamespace string `json:"homeNamespace"`

	// HomeNamespaceUID is the UID of that namespace now. A home cluster of an earlier
	// version names none.
	//
	// +optional
	HomeNamespaceUID types.UID `json:"homeNamespaceUID,omitempty"`
}

// ReasonAnotherNamespace is the reason of the condition Ready where the namespace was made
// for another home namespace of the same name, and is not empty. The home cluster keeps its
// rights there, so that it can delete what it has.
const ReasonAnotherNamespace = "AnotherNamespace"

// NamespaceRequestStatus is what became of a request. Its condition Ready has
// one sentence why the namespace cannot be used.
type NamespaceRequestStatus struct {
	// ObservedGeneration is the generation of the spec that the conditions speak of.
	//
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// HomeNamespaceUID is the UID of the home namespace that the namespace is for,
	// recorded once. A home namespace of the same name and another UID is another one:
	// nothing new is made or mounted for it.
	//
	// +optional
	HomeNamespaceUID types.UID `json:"homeNamespaceUID,omitempty"`

	// Conditions is the condition Ready: its message says in one sentence why the
	// namespace cannot be used.
	//
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}
