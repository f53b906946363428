package controller

import (
	"encoding/binary"
	"encoding/json"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// PackPod packs a pod. Pods of one workload have their spec in common, but for the node, the name of the host, and the names of
// claims and of the volume with the token; and who made them, unless that is a ShadowPod; and what the remote agent has applied.
func PackPod(pod *corev1.Pod) metav1.ObjectMetaAccessor { return Pack[pods](pod) }

// PackShadowPod packs a ShadowPod: the spec of its pod is in common with others, but for the names of claims. One whose
// template could not be read stays as it is.
func PackShadowPod(shadow *remotev1alpha1.ShadowPod) metav1.ObjectMetaAccessor {
	if shadow.Spec.Unreadable != "" {
		return shadow
	}
	return Pack[shadowPods](shadow)
}

type pods struct{}

// tokenVolume is the name of the volume with a token that admission gives to each pod, before what it adds to it.
const tokenVolume = "kube-api-access-"

// Split implements Codec.
func (pods) Split(p *corev1.Pod) (own, common []byte) {
	its := corev1.Pod{ObjectMeta: p.ObjectMeta, Status: p.Status,
		Spec: corev1.PodSpec{NodeName: p.Spec.NodeName, Hostname: p.Spec.Hostname, Volumes: []corev1.Volume{{Name: tokenOf(&p.Spec)}}}}
	its.GenerateName, its.Finalizers = "", nil
	shared := metav1.ObjectMeta{GenerateName: p.GenerateName, Finalizers: p.Finalizers}
	if !ofShadowPod(p) {
		its.OwnerReferences, shared.OwnerReferences = nil, p.OwnerReferences
	}
	if applied, ok := p.Annotations[keys.Applied]; ok {
		delete(its.Annotations, keys.Applied)
		shared.Annotations = map[string]string{keys.Applied: applied}
	}
	p.ObjectMeta = shared
	p.Status, p.Spec.NodeName, p.Spec.Hostname = corev1.PodStatus{}, "", ""
	rename(&p.Spec, its.Spec.Volumes[0].Name, tokenVolume)
	for _, name := range takeClaims(&p.Spec) {
		its.Spec.Volumes = append(its.Spec.Volumes, corev1.Volume{Name: name})
	}
	return EncodePart(&its), EncodePart(p)
}

// Join implements Codec.
func (pods) Join(own, common []byte) *corev1.Pod {
	its, p := DecodePart[corev1.Pod](own), DecodePart[corev1.Pod](common)
	its.GenerateName, its.Finalizers = p.GenerateName, p.Finalizers
	if !ofShadowPod(its) {
		its.OwnerReferences = p.OwnerReferences
	}
	if applied, ok := p.Annotations[keys.Applied]; ok {
		metav1.SetMetaDataAnnotation(&its.ObjectMeta, keys.Applied, applied)
	}
	p.ObjectMeta, p.Status, p.Spec.NodeName, p.Spec.Hostname = its.ObjectMeta, its.Status, its.Spec.NodeName, its.Spec.Hostname
	if token := its.Spec.Volumes[0].Name; token != "" {
		rename(&p.Spec, tokenVolume, token)
	}
	var names []string
	for _, volume := range its.Spec.Volumes[1:] {
		names = append(names, volume.Name)
	}
	giveClaims(&p.Spec, names)
	return p
}

// ofShadowPod reports whether a ShadowPod owns a pod. It owns no other, while the owners of other pods own many.
func ofShadowPod(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.OwnerReferences, func(owner metav1.OwnerReference) bool { return owner.Kind == "ShadowPod" })
}

// tokenOf returns the name of the volume with the token of a pod; empty if there is none, or if another volume has a name that
// it could be mistaken for.
func tokenOf(spec *corev1.PodSpec) (name string) {
	for i := range spec.Volumes {
		switch volume := spec.Volumes[i].Name; {
		case volume == tokenVolume:
			return ""
		case name == "" && strings.HasPrefix(volume, tokenVolume):
			name = volume
		}
	}
	return name
}

// rename gives a volume another name, wherever it is mounted.
func rename(spec *corev1.PodSpec, from, to string) {
	if from == "" {
		return
	}
	for i := range spec.Volumes {
		if spec.Volumes[i].Name == from {
			spec.Volumes[i].Name = to
		}
	}
	mounts := func(all []corev1.VolumeMount) {
		for i := range all {
			if all[i].Name == from {
				all[i].Name = to
			}
		}
	}
	for i := range spec.InitContainers {
		mounts(spec.InitContainers[i].VolumeMounts)
	}
	for i := range spec.Containers {
		mounts(spec.Containers[i].VolumeMounts)
	}
	for i := range spec.EphemeralContainers {
		mounts(spec.EphemeralContainers[i].VolumeMounts)
	}
}

// takeClaims removes the names of claims from a spec and returns them, and giveClaims puts them back.
func takeClaims(spec *corev1.PodSpec) (names []string) {
	for i := range spec.Volumes {
		if claim := spec.Volumes[i].PersistentVolumeClaim; claim != nil {
			names = append(names, claim.ClaimName)
			claim.ClaimName = ""
		}
	}
	return names
}

func giveClaims(spec *corev1.PodSpec, names []string) {
	for i := range spec.Volumes {
		if claim := spec.Volumes[i].PersistentVolumeClaim; claim != nil {
			claim.ClaimName, names = names[0], names[1:]
		}
	}
}

type shadowPods struct{}

// ownShadow is what is a ShadowPod's own besides metadata. Metadata is no part of it: JSON cannot hold each time that another
// cluster may write.
type ownShadow struct {
	Home     remotev1alpha1.HomePod
	Start    bool
	Grace    *int64 `json:",omitempty"`
	Status   remotev1alpha1.ShadowPodStatus
	Hostname string   `json:",omitempty"`
	Claims   []string `json:",omitempty"`
}

// Split implements Codec.
func (shadowPods) Split(s *remotev1alpha1.ShadowPod) (own, common []byte) {
	template := &s.Spec.Pod
	its := ownShadow{Home: s.Spec.Home, Start: s.Spec.Start, Grace: s.Spec.GracePeriodSeconds, Status: s.Status,
		Hostname: template.Spec.Hostname, Claims: takeClaims(&template.Spec)}
	template.Spec.Hostname = ""
	rest, err := json.Marshal(its)
	if err != nil {
		panic(err) // Texts and numbers can be encoded.
	}
	for _, meta := range []*metav1.ObjectMeta{&s.ObjectMeta, &template.ObjectMeta} {
		part := EncodePart(meta)
		own = append(binary.AppendUvarint(own, uint64(len(part))), part...)
	}
	return append(own, rest...), EncodePart(&template.Spec)
}

// Join implements Codec.
func (shadowPods) Join(own, common []byte) *remotev1alpha1.ShadowPod {
	s := &remotev1alpha1.ShadowPod{}
	for _, meta := range []*metav1.ObjectMeta{&s.ObjectMeta, &s.Spec.Pod.ObjectMeta} {
		size, n := binary.Uvarint(own)
		*meta, own = *DecodePart[metav1.ObjectMeta](own[n:][:size]), own[n:][size:]
	}
	var its ownShadow
	if err := json.Unmarshal(own, &its); err != nil {
		panic(err) // Split has made it.
	}
	s.Spec.Home, s.Spec.Start, s.Spec.GracePeriodSeconds, s.Status = its.Home, its.Start, its.Grace, its.Status
	s.Spec.Pod.Spec = *DecodePart[corev1.PodSpec](common)
	s.Spec.Pod.Spec.Hostname = its.Hostname
	giveClaims(&s.Spec.Pod.Spec, its.Claims)
	return s
}
