package copying

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/virtualclass"
	"github.com/lodestone-storage/lodestone/provisioner/claims/route"
	"github.com/lodestone-storage/lodestone/provisioner/claims/steps"
)

// Targets say where copies of virtual claims may go. Class and Space return home objects from caches, nil if there are none; View
// returns the state of a cluster for claims of a home namespace.
type Targets struct {
	Class func(name string) *storagev1.StorageClass
	Space func(name string) *corev1.Namespace
	View  func(cluster, namespace string) steps.Cluster
}

// ClassOf returns the virtual class of a claim.
func (t Targets) ClassOf(claim *corev1.PersistentVolumeClaim) (virtualclass.Class, error) {
	name := ""
	if claim.Spec.StorageClassName != nil {
		name = *claim.Spec.StorageClassName
	}
	class := t.Class(name)
	if class == nil || !virtualclass.Is(class) {
		return virtualclass.Class{}, fmt.Errorf("storage class %q of claim %s is not a virtual one, or is gone: create it again", name,
			claim.Name)
	}
	return virtualclass.Parse(class)
}

// Route returns where a claim would go as a new one, empty, to the cluster of a node, and to a real class if one is named: one that the
// virtual class lists, or the one that the claim gets there anyhow. The error says why it cannot go there.
func (t Targets) Route(claim *corev1.PersistentVolumeClaim, real string, node *corev1.Node) (route.Route, error) {
	class, err := t.ClassOf(claim)
	if err != nil {
		return route.Route{}, err
	}
	wanted := claim.DeepCopy()
	wanted.Spec.DataSource, wanted.Spec.DataSourceRef = nil, nil
	in := route.Input{
		Claim: wanted, Class: class, Node: node, Namespace: t.Space(claim.Namespace),
		Cluster: func(id string) route.ClusterClasses { return t.View(id, claim.Namespace).ClusterClasses },
	}
	to, err := route.To(in)
	if real != "" && (err != nil || to.Class.Name != real) {
		metav1.SetMetaDataAnnotation(&wanted.ObjectMeta, keys.Class, real)
		to, err = route.To(in)
	}
	if err != nil {
		return route.Route{}, fmt.Errorf("claim %q cannot go there: %w", claim.Name, err)
	}
	return to, nil
}
