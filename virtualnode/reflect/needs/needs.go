// Package needs computes which other objects of its namespace a pod needs in the cluster where it
// runs: Of returns the Set. It is pure.
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
	// RootCA is the ConfigMap with its own certificate authority that each cluster makes in each of
	// its namespaces. It is never copied.
	RootCA = "kube-root-ca.crt"

	// TokenPrefix and the UID of a home pod make the name of the Secret that
	// holds the pod's home API token.
	TokenPrefix = "lodestone-token-"
)

// Set is what a pod needs, by name, in alphabetical order.
type Set struct {
	// ConfigMaps and Secrets are in the pod's namespace.
	ConfigMaps, Secrets []string
	// Audience is that of the home API token that the pod asks for; empty: none.
	Audience string
}

// Token returns the name of the Secret for the home API token of a pod.
func Token(pod types.UID) string { return TokenPrefix + string(pod) }

// Of returns what a pod needs. Optional references count like others: an object that does not exist
// at home is not created in the other cluster either. Names that no object can have, and those of
// token Secrets, are left out.
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

// ofVolume adds the objects that a volume of a pod names. Volumes of claims are left out: their
// secrets belong to the cluster that has the volume.
func ofVolume(volume *corev1.Volume, configMaps, secrets names) {
	switch {
	case volume.ConfigMap != nil:
		configMaps.add(volume.ConfigMap.Name)
	case volume.Secret != nil:
		secrets.add(volume.Secret.SecretName)
	case volume.Projected != nil:
		for _, source := range volume.Projected.Sources {
			if source.ConfigMap != nil {
				configMaps.add(source.ConfigMap.Name)
			}
			if source.Secret != nil {
				secrets.add(source.Secret.Name)
			}
		}
	case volume.CSI != nil:
		secrets.addLocal(volume.CSI.NodePublishSecretRef)
	case volume.RBD != nil:
		secrets.addLocal(volume.RBD.SecretRef)
	case volume.CephFS != nil:
		secrets.addLocal(volume.CephFS.SecretRef)
	case volume.Cinder != nil:
		secrets.addLocal(volume.Cinder.SecretRef)
	case volume.FlexVolume != nil:
		secrets.addLocal(volume.FlexVolume.SecretRef)
	case volume.ISCSI != nil:
		secrets.addLocal(volume.ISCSI.SecretRef)
	case volume.ScaleIO != nil:
		secrets.addLocal(volume.ScaleIO.SecretRef)
	case volume.StorageOS != nil:
		secrets.addLocal(volume.StorageOS.SecretRef)
	case volume.AzureFile != nil:
		secrets.add(volume.AzureFile.SecretName)
	}
}

// Anything reports whether a pod needs anything in a remote cluster: it was accepted to run there,
// which its finalizer shows, and it has not ended. The phase alone does not prove the end: home's
// controllers also write Failed on a pod whose node is silent while its containers continue.
func Anything(pod *corev1.Pod) bool {
	if pod.Spec.NodeName == "" || !slices.Contains(pod.Finalizers, keys.RemotePodFinalizer) {
		return false
	}
	if pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed {
		return true
	}
	return slices.ContainsFunc(slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses),
		func(status corev1.ContainerStatus) bool { return status.State.Running != nil })
}
