package move

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/access"
	"github.com/lodestone-storage/lodestone/kubectl-lodestone/outcome"
)

// groups returns the names that the claims of each replica of a StatefulSet have, in
// the order of the replicas.
func groups(set *appsv1.StatefulSet) [][]string {
	var all [][]string
	start := int32(0)
	if set.Spec.Ordinals != nil {
		start = set.Spec.Ordinals.Start
	}
	for i := start; i < start+ptr.Deref(set.Spec.Replicas, 1); i++ {
		var group []string
		for _, template := range set.Spec.VolumeClaimTemplates {
			group = append(group, fmt.Sprintf("%s-%s-%d", template.Name, set.Name, i))
		}
		all = append(all, group)
	}
	return all
}

// ofStatefulSet returns the claims of each replica of a StatefulSet. Where their data is
// the provisioner says when it is to be moved: who may edit a namespace may not read
// volumes.
func ofStatefulSet(ctx context.Context, home *access.Cluster, namespace, name string) ([][]string, error) {
	set, err := home.Client.AppsV1().StatefulSets(namespace).Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, fmt.Errorf("there is no StatefulSet %q in namespace %q: kubectl get statefulsets -n %s lists them", name, namespace, namespace)
	case err != nil:
		return nil, home.Explain("get StatefulSet "+namespace+"/"+name, err)
	case len(set.Spec.VolumeClaimTemplates) == 0:
		return nil, outcome.Refuse("StatefulSet %s/%s has no volumeClaimTemplates: move the claims of its pods by name", namespace, name)
	}
	return groups(set), nil
}

// known returns a claim, or says that there is none.
func known(ctx context.Context, home *access.Cluster, namespace, name string) (*corev1.PersistentVolumeClaim, error) {
	claim, err := home.Client.CoreV1().PersistentVolumeClaims(namespace).Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, fmt.Errorf("there is no claim %q in namespace %q: kubectl get pvc -n %s lists them", name, namespace, namespace)
	case err != nil:
		return nil, home.Explain("get claim "+namespace+"/"+name, err)
	}
	return claim, nil
}
