package packed

import (
	"encoding/binary"
	"encoding/json"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
)

// Pod packs a pod: nothing is in common but its spec.
func Pod(pod *corev1.Pod) any { return Pack[pods](pod) }

// ShadowPod packs a ShadowPod: the spec of its pod is in common with others, but for the names of claims. One whose
// template could not be read stays as it is.
func ShadowPod(shadow *remotev1alpha1.ShadowPod) any {
	if shadow.Spec.Unreadable != "" {
		return shadow
	}
	return Pack[shadowPods](shadow)
}

type pods struct{}

// Split implements Codec.
func (pods) Split(p *corev1.Pod) (own, common []byte) {
	common = Encode(&p.Spec)
	p.Spec = corev1.PodSpec{}
	return Encode(p), common
}

// Join implements Codec.
func (pods) Join(own, common []byte) *corev1.Pod {
	p := Decode[corev1.Pod](own)
	p.Spec = *Decode[corev1.PodSpec](common)
	return p
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
	its := ownShadow{Home: s.Spec.Home, Start: s.Spec.Start, Grace: s.Spec.GracePeriodSeconds, Status: s.Status, Hostname: template.Spec.Hostname}
	template.Spec.Hostname = ""
	for i := range template.Spec.Volumes {
		if claim := template.Spec.Volumes[i].PersistentVolumeClaim; claim != nil {
			its.Claims = append(its.Claims, claim.ClaimName)
			claim.ClaimName = ""
		}
	}
	rest, err := json.Marshal(its)
	if err != nil {
		panic(err) // Texts and numbers can be encoded.
	}
	for _, meta := range []*metav1.ObjectMeta{&s.ObjectMeta, &template.ObjectMeta} {
		part := Encode(meta)
		own = append(binary.AppendUvarint(own, uint64(len(part))), part...)
	}
	return append(own, rest...), Encode(&template.Spec)
}

// Join implements Codec.
func (shadowPods) Join(own, common []byte) *remotev1alpha1.ShadowPod {
	s := &remotev1alpha1.ShadowPod{}
	for _, meta := range []*metav1.ObjectMeta{&s.ObjectMeta, &s.Spec.Pod.ObjectMeta} {
		size, n := binary.Uvarint(own)
		*meta, own = *Decode[metav1.ObjectMeta](own[n:][:size]), own[n:][size:]
	}
	var its ownShadow
	if err := json.Unmarshal(own, &its); err != nil {
		panic(err) // Split has made it.
	}
	s.Spec.Home, s.Spec.Start, s.Spec.GracePeriodSeconds, s.Status = its.Home, its.Start, its.Grace, its.Status
	s.Spec.Pod.Spec = *Decode[corev1.PodSpec](common)
	s.Spec.Pod.Spec.Hostname = its.Hostname
	for i := range s.Spec.Pod.Spec.Volumes {
		if claim := s.Spec.Pod.Spec.Volumes[i].PersistentVolumeClaim; claim != nil {
			claim.ClaimName, its.Claims = its.Claims[0], its.Claims[1:]
		}
	}
	return s
}
