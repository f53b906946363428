package mapped

import (
	"slices"

	"k8s.io/client-go/tools/cache"

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

// onPods has a namespace looked at when a pod begins or ends to need it.
func (k *Keeper) onPods() cache.ResourceEventHandler {
	look := func(pod *slim.Pod) { k.queue.Add(namespaces.Remote(k.Strategy, pod.Namespace, k.HomeID)) }
	one := func(obj any) {
		if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
			obj = gone.Obj
		}
		if pod, ok := obj.(*slim.Pod); ok && Copied(pod, k.Cluster) {
			look(pod)
		}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc: one,
		UpdateFunc: func(old, obj any) {
			before, _ := old.(*slim.Pod)
			after, _ := obj.(*slim.Pod)
			if before != nil && after != nil && Copied(before, k.Cluster) != Copied(after, k.Cluster) {
				look(after)
			}
		},
		DeleteFunc: one,
	}
}
