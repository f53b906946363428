// Package v1alpha1 holds the custom resources of API group lodestone.dev.
//
// +kubebuilder:object:generate=true
// +groupName=lodestone.dev
package v1alpha1
