package mapped

import (
	"slices"

	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/namespaces"
	"github.com/lodestone-storage/lodestone/provisioner/slim"
)

// Copied reports whether a copy of a home pod may run in a cluster: home lets
// the pod go only once it has read there that none does, and needs its rights
// for that. The virtual node of a cluster has the cluster's name.
func Copied(pod *slim.Pod, cluster string) bool {
	return pod.Node == cluster && slices.Contains(pod.Finalizers, keys.RemotePodFinalizer)
}

// PodChanged has a namespace looked at when a pod begins or ends to need it. Before
// is nil for a new pod, after for one that is gone. It does not block.
func (k *Keeper) PodChanged(before, after *slim.Pod) {
	either := after
	if either == nil {
		either = before
	}
	needed, needs := before != nil && Copied(before, k.Cluster), after != nil && Copied(after, k.Cluster)
	if needed != needs {
		k.queue.Add(namespaces.Remote(k.Strategy, either.Namespace, k.HomeID))
	}
}

// VolumeGone has the namespaces looked at that a virtual volume may have held. It
// does not block.
func (k *Keeper) VolumeGone() {
	for _, name := range k.Recorded() {
		k.queue.Add(name)
	}
}
