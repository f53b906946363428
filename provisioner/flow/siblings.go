package flow

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/locality"
	"github.com/lodestone-storage/lodestone/pkg/virtualclass"
	"github.com/lodestone-storage/lodestone/provisioner/decide"
	"github.com/lodestone-storage/lodestone/provisioner/route"
)

// siblings returns the other unbound virtual claims that every pod using the
// claim uses too: the scheduler chooses one node for all of them.
func (f *Flow) siblings(o decide.Observation) []decide.Sibling {
	self := o.Claim.Namespace + "/" + o.Claim.Name
	var common []string
	first := true
	for _, pod := range f.Sources.podsOf(self) {
		if pod.Finished() {
			continue
		}
		names := pod.Claims
		if first {
			common, first = slices.Clone(names), false
			continue
		}
		common = slices.DeleteFunc(common, func(name string) bool { return !slices.Contains(names, name) })
	}
	var result []decide.Sibling
	for _, name := range common {
		claim := one[corev1.PersistentVolumeClaim](f.Sources.Claims, name)
		if name == self || claim == nil || claim.Spec.VolumeName != "" || claim.DeletionTimestamp != nil || f.upstream(o.Claim, claim) ||
			!virtualclass.Is(one[storagev1.StorageClass](f.Sources.Classes, className(claim))) {
			continue
		}
		result = append(result, decide.Sibling{Claim: claim, Ready: f.ready(claim, o.Node)})
	}
	return result
}

// ready says whether a claim has, or could at once be given, its volume on a
// node.
func (f *Flow) ready(claim *corev1.PersistentVolumeClaim, node *corev1.Node) bool {
	if f.Sources.virtual(claim.UID) != nil {
		return true
	}
	if node == nil || claim.Annotations[keys.SelectedNode] != node.Name {
		return false
	}
	class, err := virtualclass.Parse(one[storagev1.StorageClass](f.Sources.Classes, className(claim)))
	if err != nil {
		return false
	}
	to, err := route.To(route.Input{
		Claim: claim, Class: class, Node: node, Namespace: one[corev1.Namespace](f.Sources.Namespaces, claim.Namespace),
		Cluster: func(id string) route.Cluster { return f.view(id, claim.Namespace).Cluster },
	})
	if err != nil {
		return false
	}
	owner := []types.NamespacedName{{Namespace: claim.Namespace, Name: claim.Name}}
	for _, b := range f.backings(claim.UID, owner, nil, []string{locality.OfNode(node.Labels)}) {
		if b.Cluster == to.Cluster {
			_, obstacle := decide.CopyFrom(claim, f.source(claim), to)
			return decide.Ready(b, to.Cluster, to.Deferred()) && (obstacle == nil || b.Claim.Status.Phase == corev1.ClaimBound)
		}
	}
	return false
}
