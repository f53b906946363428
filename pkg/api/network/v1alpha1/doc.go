// Package v1alpha1 holds the objects of the network fabric: NetworkLink, in home and in remote clusters.
//
// +kubebuilder:object:generate=true
// +groupName=network.lodestone.dev
package v1alpha1
