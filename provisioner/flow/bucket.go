package flow

import (
	"hash/maphash"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/backing"
	"github.com/lodestone-storage/lodestone/provisioner/slim"
)

// An index has a set for each of its keys, which needs several times the memory of
// the key. Where keys are nearly all different many share a set, a bucket, and
// whoever looks for one looks through its bucket.
const bucketCount = 4096

var (
	// seed is one of its own in each process, so that nobody can choose names that
	// all fall into one bucket.
	seed        = maphash.MakeSeed()
	bucketNames = func() (names [bucketCount]string) {
		for i := range names {
			names[i] = strconv.Itoa(i)
		}
		return names
	}()
)

// bucket is the key of an index for something that is known by a key.
func bucket(key string) string { return bucketNames[maphash.String(seed, key)%bucketCount] }

// buckets are those of several keys, each once.
func buckets(of []string) []string {
	if len(of) == 0 {
		return nil
	}
	names := make([]string, 0, len(of))
	for _, key := range of {
		if name := bucket(key); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// Claim returns the claim with a UID, nil if there is none.
func (s Sources) Claim(uid types.UID) *corev1.PersistentVolumeClaim { return s.claim(uid) }

func (s Sources) claim(uid types.UID) *corev1.PersistentVolumeClaim {
	for _, claim := range indexed[corev1.PersistentVolumeClaim](s.Claims, byUID, bucket(string(uid))) {
		if claim.UID == uid {
			return claim
		}
	}
	return nil
}

// podsOf returns the pods that use a claim, given by namespace/name.
func (s Sources) podsOf(claim string) []*slim.Pod {
	return slices.DeleteFunc(indexed[slim.Pod](s.Pods, byClaim, bucket(claim)), func(pod *slim.Pod) bool {
		return !slices.Contains(pod.Claims, claim)
	})
}

// attachedTo returns a node that a volume, given by name, is attached to; empty if
// there is none.
func (s Sources) attachedTo(volume string) string {
	for _, attachment := range indexed[storagev1.VolumeAttachment](s.Attachments, byVolume, bucket(volume)) {
		if name := attachment.Spec.Source.PersistentVolumeName; name != nil && *name == volume {
			return attachment.Spec.NodeName
		}
	}
	return ""
}

// VolumeOf returns the virtual volume that has its data in a remote cluster and was
// made with a handle, nil if there is none or more than one. The handle stays as it was
// when the backing claim is made anew: what that is now, the volume's annotation says.
func (s Sources) VolumeOf(handle backing.Ref) *corev1.PersistentVolume {
	found := slices.DeleteFunc(indexed[corev1.PersistentVolume](s.Volumes, byBacking, bucket(string(handle.UID))), func(volume *corev1.PersistentVolume) bool {
		return handleOf(volume) != handle.String()
	})
	if len(found) != 1 {
		return nil
	}
	return found[0]
}

// handleOf returns the handle of a virtual volume with its data in a remote cluster,
// empty for any other.
func handleOf(volume *corev1.PersistentVolume) string {
	if csi := volume.Spec.CSI; csi != nil && csi.Driver == keys.Driver {
		return csi.VolumeHandle
	}
	return ""
}

// backingsOf returns the UIDs of the backing claim of a virtual volume, and of the one
// that it was made with.
func backingsOf(volume *corev1.PersistentVolume) []string {
	var uids []string
	for _, text := range []string{volume.Annotations[keys.Backing], handleOf(volume)} {
		if ref, err := backing.ParseRef(text); err == nil {
			uids = append(uids, string(ref.UID))
		}
	}
	return uids
}

// volumesOf returns the virtual volumes of a backing claim.
func (s Sources) volumesOf(claim types.UID) []*corev1.PersistentVolume {
	return slices.DeleteFunc(indexed[corev1.PersistentVolume](s.Volumes, byBacking, bucket(string(claim))), func(volume *corev1.PersistentVolume) bool {
		ref, err := backing.ParseRef(volume.Annotations[keys.Backing])
		return err != nil || ref.UID != claim
	})
}
