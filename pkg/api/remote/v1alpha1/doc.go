// Package v1alpha1 holds the custom resources of API group
// remote.lodestone.dev, which exist in remote clusters: what the owner of
// a remote cluster allows a home cluster, and what that home cluster asks for.
//
// +kubebuilder:object:generate=true
// +groupName=remote.lodestone.dev
package v1alpha1
