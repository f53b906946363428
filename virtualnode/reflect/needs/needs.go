// Package needs says which other objects of its namespace a pod needs in the
// cluster where it runs. It is pure.
package needs

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/lodestone-storage/lodestone/pkg/keys"
)

const (
	// RootCA is the ConfigMap that each cluster makes in each of its namespaces
	// with its own certificate authority. It never travels.
	RootCA = "kube-root-ca.crt"

	// TokenPrefix and the UID of a home pod make the name of the Secret that
	// holds the pod's home API token.
	TokenPrefix = "lodestone-token-"
)

// Set is what a pod needs, by name, each in alphabetical order.
type Set struct {
	// ConfigMaps and Secrets are in the pod's namespace.
	ConfigMaps, Secrets []string
	// Audience is that of the home API token that the pod wants; empty: none.
	Audience string
}

// Token returns the name of the Secret for the home API token of a pod.
func Token(pod types.UID) string { return TokenPrefix + string(pod) }

// Of returns what a pod needs. Whether a reference is optional makes no
// difference: what is missing at home is simply not there in the other cluster
// either. Names that no object can have, and those of token Secrets, are left
// out.
func Of(pod *corev1.Pod) Set {
	configMaps, secrets := names{}, names{}
	for _, reference := range pod.Spec.ImagePullSecrets {
		secrets.add(reference.Name)
	}
	for i := range pod.Spec.Volumes {
		ofVolume(&pod.Spec.Volumes[i], configMaps, secrets)
	}
	for i := range pod.Spec.InitContainers {
		ofContainer(&pod.Spec.InitContainers[i], configMaps, secrets)
	}
	for i := range pod.Spec.Containers {
		ofContainer(&pod.Spec.Containers[i], configMaps, secrets)
	}
	for i := range pod.Spec.EphemeralContainers {
		container := corev1.Container(pod.Spec.EphemeralContainers[i].EphemeralContainerCommon)
		ofContainer(&container, configMaps, secrets)
	}
	delete(configMaps, RootCA)
	return Set{ConfigMaps: configMaps.list(), Secrets: secrets.list(), Audience: pod.Annotations[keys.Token]}
}

func ofContainer(container *corev1.Container, configMaps, secrets names) {
	for _, from := range container.EnvFrom {
		if from.ConfigMapRef != nil {
			configMaps.add(from.ConfigMapRef.Name)
		}
		if from.SecretRef != nil {
			secrets.add(from.SecretRef.Name)
		}
	}
	for _, variable := range container.Env {
		if variable.ValueFrom == nil {
			continue
		}
		if reference := variable.ValueFrom.ConfigMapKeyRef; reference != nil {
			configMaps.add(reference.Name)
		}
		if reference := variable.ValueFrom.SecretKeyRef; reference != nil {
			secrets.add(reference.Name)
		}
	}
}

// names is a set of names.
type names map[string]struct{}

func (n names) add(name string) {
	if len(validation.IsDNS1123Subdomain(name)) == 0 && !strings.HasPrefix(name, TokenPrefix) {
		n[name] = struct{}{}
	}
}

func (n names) addLocal(reference *corev1.LocalObjectReference) {
	if reference != nil {
		n.add(reference.Name)
	}
}

func (n names) list() []string { return slices.Sorted(maps.Keys(n)) }
