// Package podparts makes the pods that an informer keeps share in memory what is equal in them.
// Thousands of pods are made from a few templates: their containers, environments, resources,
// probes, tolerations and labels are the same, and decoding gives each pod a copy of its own. Share
// and Template keep one instance of each part. What they return equals what they were given, but
// must not be changed in place: objects of an informer never may.
package podparts

import (
	"crypto/sha256"
	"encoding/binary"
	"maps"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/controller"
)

// Transform is the transform function of informers on pods and ShadowPods. It makes them share their
// equal parts; of other objects it only drops who manages which field. It is idempotent. It encodes what
// it is given: quantities that take long to compute with must have been refused before.
func Transform(obj any) (any, error) {
	switch object := obj.(type) {
	case *corev1.Pod:
		Share(object)
	case *remotev1alpha1.ShadowPod:
		Meta(&object.ObjectMeta)
		Template(&object.Spec.Pod)
	default:
		return controller.DropManagedFields(obj)
	}
	return obj, nil
}

// Share makes a pod share its equal parts with those that came before.
func Share(pod *corev1.Pod) {
	Meta(&pod.ObjectMeta)
	spec(&pod.Spec)
	status(&pod.Status)
}

// Template is Share for the template of a pod.
func Template(template *corev1.PodTemplateSpec) {
	Meta(&template.ObjectMeta)
	spec(&template.Spec)
}

// Meta makes metadata share its equal parts, and drops who manages which field.
func Meta(m *metav1.ObjectMeta) {
	m.ManagedFields = nil
	m.Namespace, m.GenerateName = text(m.Namespace), text(m.GenerateName)
	m.Labels, m.Annotations = entries(m.Labels), entries(m.Annotations)
	m.Finalizers = lists.of(m.Finalizers, func(b []byte) []byte {
		for _, one := range m.Finalizers {
			b = part(b, []byte(one))
		}
		return b
	})
	m.OwnerReferences = owners.of(m.OwnerReferences, func(b []byte) []byte {
		for i := range m.OwnerReferences {
			b = part(b, encoded(&m.OwnerReferences[i]))
		}
		return b
	})
}

// spec takes apart what differs from pod to pod, so that the rest is equal.
func spec(s *corev1.PodSpec) {
	own := *s
	s.Containers, s.InitContainers, s.EphemeralContainers, s.Volumes = nil, nil, nil, nil
	s.NodeName, s.Hostname = "", ""
	*s = *specs.of(s, func(b []byte) []byte { return append(b, encoded(s)...) })
	// Decoding leaves room for more elements.
	s.Containers, s.InitContainers = exact(own.Containers), exact(own.InitContainers)
	s.EphemeralContainers, s.Volumes = own.EphemeralContainers, exact(own.Volumes)
	s.NodeName, s.Hostname = text(own.NodeName), own.Hostname
	for _, all := range [][]corev1.Container{s.Containers, s.InitContainers} {
		for i := range all {
			container(&all[i])
		}
	}
	for i := range s.Volumes {
		volume := &s.Volumes[i]
		if !strings.HasPrefix(volume.Name, tokenVolume) {
			volume.Name = text(volume.Name)
		}
		volume.VolumeSource = *sources.of(&volume.VolumeSource, func(b []byte) []byte { return append(b, encoded(&volume.VolumeSource)...) })
	}
}

// exact returns a copy of a list without room for more.
func exact[T any](list []T) []T {
	if cap(list) == len(list) {
		return list
	}
	copied := make([]T, len(list))
	copy(copied, list)
	return copied
}

// tokenVolume is the prefix of the volume with a token that admission gives to each pod, under a name
// of its own.
const tokenVolume = "kube-api-access-"

func container(c *corev1.Container) {
	mounts := exact(c.VolumeMounts)
	c.VolumeMounts = nil
	*c = *containers.of(c, func(b []byte) []byte { return append(b, encoded(c)...) })
	c.VolumeMounts = mounts
	for i := range mounts {
		mount := &mounts[i]
		if !strings.HasPrefix(mount.Name, tokenVolume) {
			mount.Name = text(mount.Name)
		}
		mount.MountPath, mount.SubPath = text(mount.MountPath), text(mount.SubPath)
	}
}

func status(s *corev1.PodStatus) {
	s.Phase, s.QOSClass = corev1.PodPhase(text(string(s.Phase))), corev1.PodQOSClass(text(string(s.QOSClass)))
	s.HostIP = text(s.HostIP)
	s.Conditions, s.ContainerStatuses = exact(s.Conditions), exact(s.ContainerStatuses)
	s.InitContainerStatuses = exact(s.InitContainerStatuses)
	s.PodIPs, s.HostIPs = exact(s.PodIPs), exact(s.HostIPs)
	for i := range s.HostIPs {
		s.HostIPs[i].IP = text(s.HostIPs[i].IP)
	}
	for i := range s.Conditions {
		c := &s.Conditions[i]
		c.Type, c.Status = corev1.PodConditionType(text(string(c.Type))), corev1.ConditionStatus(text(string(c.Status)))
		c.Reason, c.Message = text(c.Reason), text(c.Message)
	}
	for _, all := range [][]corev1.ContainerStatus{s.InitContainerStatuses, s.ContainerStatuses} {
		for i := range all {
			containerStatus(&all[i])
		}
	}
}

func containerStatus(s *corev1.ContainerStatus) {
	own := *s
	s.State, s.LastTerminationState, s.ContainerID = corev1.ContainerState{}, corev1.ContainerState{}, ""
	*s = *statuses.of(s, func(b []byte) []byte { return append(b, encoded(s)...) })
	s.State, s.LastTerminationState, s.ContainerID = own.State, own.LastTerminationState, own.ContainerID
}

// entries returns the shared instance of a map.
func entries(m map[string]string) map[string]string {
	if len(m) == 0 {
		return m
	}
	return textMaps.of(m, func(b []byte) []byte {
		for _, key := range slices.Sorted(maps.Keys(m)) {
			b = part(part(b, []byte(key)), []byte(m[key]))
		}
		return b
	})
}

// text returns the shared instance of a string.
func text(s string) string {
	if s == "" || len(s) > longestText {
		return s
	}
	return texts.of(s, func(b []byte) []byte { return append(b, s...) })
}

// longestText is the longest string that is shared by itself, in bytes: longer ones are rarely equal.
const longestText = 128

// part appends a part to a key, with its length first, so that different values never have equal
// keys.
func part(key, value []byte) []byte {
	return append(binary.AppendUvarint(key, uint64(len(value))), value...)
}

// encoded returns the protobuf form of a part. Entries of maps are in order in it.
func encoded(value interface{ Marshal() ([]byte, error) }) []byte {
	data, err := value.Marshal()
	if err != nil {
		panic(err) // Kubernetes' own types can all be encoded
	}
	return data
}

// most is how many parts a table keeps: users decide what is in pods. A full table starts empty
// again; then an equal part may be in memory twice.
const most = 16384

// table has one instance of each part, by the hash of its content.
type table[V any] struct {
	// own returns an instance of a part that the table may keep.
	own func(V) V

	mu    sync.Mutex
	known map[[sha256.Size]byte]V
}

// of returns the shared instance of a part; key appends its whole content.
func (t *table[V]) of(v V, key func([]byte) []byte) V {
	hash := sha256.Sum256(key(nil))
	t.mu.Lock()
	defer t.mu.Unlock()
	if known, ok := t.known[hash]; ok {
		return known
	}
	if t.known == nil || len(t.known) >= most {
		t.known = map[[sha256.Size]byte]V{}
	}
	v = t.own(v)
	t.known[hash] = v
	return v
}

func copied[T any](v *T) *T {
	kept := *v
	return &kept
}

// The tables, shared by all informers.
var (
	texts      = &table[string]{own: strings.Clone}
	textMaps   = &table[map[string]string]{own: func(m map[string]string) map[string]string { return m }}
	lists      = &table[[]string]{own: slices.Clip[[]string]}
	owners     = &table[[]metav1.OwnerReference]{own: slices.Clip[[]metav1.OwnerReference]}
	specs      = &table[*corev1.PodSpec]{own: copied[corev1.PodSpec]}
	containers = &table[*corev1.Container]{own: copied[corev1.Container]}
	sources    = &table[*corev1.VolumeSource]{own: copied[corev1.VolumeSource]}
	statuses   = &table[*corev1.ContainerStatus]{own: copied[corev1.ContainerStatus]}
)
