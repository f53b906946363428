package controller

import (
	"math"
	"strings"
	"unique"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Codec encodes objects of one type for a PackedObject.
type Codec[T any] interface {
	// Split returns what is an object's own, and what it has in common with many others. It may
	// change the object.
	Split(object *T) (own, common []byte)
	// Join returns the object that Split was given.
	Join(own, common []byte) *T
}

// PackedObject keeps an object of type T in a fraction of its memory. Most fields of an object are empty but
// take room, each of its texts, lists and maps is an allocation of its own, and much of it is the same in
// thousands of objects. A packed object is two texts, in the encoding that API servers use: what is its own,
// and what is in memory once for all objects in which it is equal. Unpack makes a new object of them; nothing
// is lost. What reads informers here unpacks what it returns; who reads a store in another way has to do so too.
type PackedObject[T any, C Codec[T]] struct {
	namespace, common unique.Handle[string]
	// text is name, UID and resource version, which caches ask for, and then what is the object's own.
	text               string
	name, uid, version uint8
}

// Pack returns an object in packed form, or the object itself if its name, UID or resource version is too
// long for that. The object must not be used any more.
func Pack[C Codec[T], T any, P interface {
	*T
	metav1.ObjectMetaAccessor
}](object P) metav1.ObjectMetaAccessor {
	meta := object.GetObjectMeta()
	o := &PackedObject[T, C]{namespace: unique.Make(meta.GetNamespace())}
	name, uid, version := meta.GetName(), string(meta.GetUID()), meta.GetResourceVersion()
	if max(len(name), len(uid), len(version)) > math.MaxUint8 {
		return object
	}
	o.name, o.uid, o.version = uint8(len(name)), uint8(len(uid)), uint8(len(version))
	identify(meta, "", "", "", "")
	var codec C
	own, common := codec.Split(object)
	o.common = unique.Make(string(common))
	var text strings.Builder
	text.Grow(len(name) + len(uid) + len(version) + len(own))
	for _, part := range []string{name, uid, version} {
		text.WriteString(part)
	}
	text.Write(own)
	o.text = text.String()
	return o
}

// Unpack returns a new object, which the caller may change.
func (o *PackedObject[T, C]) Unpack() any {
	var codec C
	object := codec.Join([]byte(o.text[int(o.name)+int(o.uid)+int(o.version):]), []byte(o.common.Value()))
	o.identify(any(object).(metav1.ObjectMetaAccessor).GetObjectMeta())
	return object
}

// GetObjectMeta implements metav1.ObjectMetaAccessor, for caches: the result has what identifies the object and its
// version, and nothing else.
func (o *PackedObject[T, C]) GetObjectMeta() metav1.Object {
	meta := &metav1.ObjectMeta{}
	o.identify(meta)
	return meta
}

func (o *PackedObject[T, C]) identify(meta metav1.Object) {
	name, rest := o.text[:o.name], o.text[o.name:]
	identify(meta, o.namespace.Value(), name, rest[:o.uid], rest[o.uid:][:o.version])
}

func identify(meta metav1.Object, namespace, name, uid, version string) {
	meta.SetNamespace(namespace)
	meta.SetName(name)
	meta.SetUID(types.UID(uid))
	meta.SetResourceVersion(version)
}

// Key is the namespace and the name of the object.
func (o *PackedObject[T, C]) Key() types.NamespacedName {
	return types.NamespacedName{Namespace: o.namespace.Value(), Name: o.text[:o.name]}
}

// Mentions says whether a text may be in what is the object's own. If not, the object need not be unpacked to look for it.
func (o *PackedObject[T, C]) Mentions(text string) bool { return strings.Contains(o.text, text) }

// Size is how much memory the object takes, in bytes, without what it has in common with others.
func (o *PackedObject[T, C]) Size() int { return header + len(o.text) }

// header is about what a packed object takes besides its text.
const header = 64

// protobuf is a pointer to a type that API servers send as protobuf.
type protobuf[T any] interface {
	*T
	Marshal() ([]byte, error)
	Unmarshal(data []byte) error
}

// EncodePart returns the protobuf form of a part of an object.
func EncodePart(part interface{ Marshal() ([]byte, error) }) []byte {
	data, err := part.Marshal()
	if err != nil {
		panic(err) // Kubernetes' own types can all be encoded
	}
	return data
}

// DecodePart returns the part that was encoded.
func DecodePart[T any, P protobuf[T]](data []byte) P {
	part := P(new(T))
	if err := part.Unmarshal(data); err != nil {
		panic(err) // EncodePart has made it
	}
	return part
}

// PackClaim packs a claim: its metadata and its volume are its own.
func PackClaim(claim *corev1.PersistentVolumeClaim) any { return Pack[claims](claim) }

// PackVolume packs a volume: its metadata, its claim and its source are its own.
func PackVolume(volume *corev1.PersistentVolume) any { return Pack[volumes](volume) }

// PackAttachment packs an attachment: nothing is in common.
func PackAttachment(attachment *storagev1.VolumeAttachment) any { return Pack[attachments](attachment) }

type claims struct{}

// Split implements Codec.
func (claims) Split(c *corev1.PersistentVolumeClaim) (own, common []byte) {
	its := corev1.PersistentVolumeClaim{ObjectMeta: c.ObjectMeta, Spec: corev1.PersistentVolumeClaimSpec{VolumeName: c.Spec.VolumeName}}
	its.Finalizers = nil
	c.ObjectMeta, c.Spec.VolumeName = metav1.ObjectMeta{Finalizers: c.Finalizers}, ""
	return EncodePart(&its), EncodePart(c)
}

// Join implements Codec.
func (claims) Join(own, common []byte) *corev1.PersistentVolumeClaim {
	its, c := DecodePart[corev1.PersistentVolumeClaim](own), DecodePart[corev1.PersistentVolumeClaim](common)
	its.Finalizers = c.Finalizers
	c.ObjectMeta, c.Spec.VolumeName = its.ObjectMeta, its.Spec.VolumeName
	return c
}

type volumes struct{}

// Split implements Codec.
func (volumes) Split(v *corev1.PersistentVolume) (own, common []byte) {
	its := corev1.PersistentVolume{ObjectMeta: v.ObjectMeta,
		Spec: corev1.PersistentVolumeSpec{ClaimRef: v.Spec.ClaimRef, PersistentVolumeSource: v.Spec.PersistentVolumeSource}}
	its.Finalizers = nil
	v.ObjectMeta = metav1.ObjectMeta{Finalizers: v.Finalizers}
	v.Spec.ClaimRef, v.Spec.PersistentVolumeSource = nil, corev1.PersistentVolumeSource{}
	return EncodePart(&its), EncodePart(v)
}

// Join implements Codec.
func (volumes) Join(own, common []byte) *corev1.PersistentVolume {
	its, v := DecodePart[corev1.PersistentVolume](own), DecodePart[corev1.PersistentVolume](common)
	its.Finalizers = v.Finalizers
	v.ObjectMeta, v.Spec.ClaimRef, v.Spec.PersistentVolumeSource = its.ObjectMeta, its.Spec.ClaimRef, its.Spec.PersistentVolumeSource
	return v
}

type attachments struct{}

// Split implements Codec.
func (attachments) Split(a *storagev1.VolumeAttachment) (own, common []byte) {
	return EncodePart(a), nil
}

// Join implements Codec.
func (attachments) Join(own, _ []byte) *storagev1.VolumeAttachment {
	return DecodePart[storagev1.VolumeAttachment](own)
}
