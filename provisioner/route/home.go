package route

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/virtualclass"
)

// Home is the home cluster with its storage classes.
func Home(classes []*storagev1.StorageClass) Cluster {
	return Cluster{Known: true, Offered: virtualclass.Offer(classes), topologies: virtualclass.Topologies(classes)}
}

// usableForTwin refuses real classes that cannot work for a claim that no pod
// uses and that lives in the storage namespace, and nodes that the class has no
// volumes for: its real provisioner would only fail, again and again.
func usableForTwin(class v1alpha1.OfferedClass, cluster Cluster, node *corev1.Node) error {
	switch {
	case class.Static && class.BindingMode == storagev1.VolumeBindingWaitForFirstConsumer:
		return &Refused{Reason: "StaticClass", Message: fmt.Sprintf("real storage class %q has hand-made volumes that only the scheduler binds: name a class with a provisioner in the virtual class", class.Name)}
	case class.Templated:
		return &Refused{Reason: "TemplatedClass", Message: fmt.Sprintf("the parameters of real storage class %q depend on the claim's namespace, which is not that of the backing claim: name another class in the virtual class", class.Name)}
	case !virtualclass.Within(cluster.topologies[class.Name], node.Labels):
		return &Refused{Node: node.Name, Reason: "NotInTopology", Message: fmt.Sprintf("real storage class %q has no volumes for node %q, which is in none of its allowedTopologies: let the pod run on a node that is, or name another class in the virtual class", class.Name, node.Name)}
	}
	return nil
}
