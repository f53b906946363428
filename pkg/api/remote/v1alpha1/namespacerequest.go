package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
}

// NamespaceRequestStatus is what became of a request. Its condition Ready has
// one sentence why the namespace cannot be used.
type NamespaceRequestStatus struct {
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}
