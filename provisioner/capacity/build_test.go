package capacity

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

const namespace = "lodestone-system"

func virtual(name string, parameters ...string) *storagev1.StorageClass {
	class := &storagev1.StorageClass{
		ObjectMeta:        metav1.ObjectMeta{Name: name, UID: types.UID("uid-of-" + name)},
		Provisioner:       keys.Driver,
		VolumeBindingMode: ptr.To(storagev1.VolumeBindingWaitForFirstConsumer),
		Parameters:        map[string]string{},
	}
	for i := 0; i < len(parameters); i += 2 {
		class.Parameters[parameters[i]] = parameters[i+1]
	}
	return class
}

func real(name string) *storagev1.StorageClass {
	return &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: "disk.example.com"}
}

// zonal is a real class whose volumes are in one zone, and in none by its second term.
func zonal(name, zone string) *storagev1.StorageClass {
	class := real(name)
	class.AllowedTopologies = []corev1.TopologySelectorTerm{
		{MatchLabelExpressions: []corev1.TopologySelectorLabelRequirement{{Key: "zone", Values: []string{"z", zone}}}}, {},
	}
	return class
}

func defaulted(class *storagev1.StorageClass) *storagev1.StorageClass {
	class.Annotations = map[string]string{"storageclass.kubernetes.io/is-default-class": "true"}
	return class
}

// telling is the driver of real classes; whether kube-scheduler heeds what it tells.
func telling(heeded bool) *storagev1.CSIDriver {
	return &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: "disk.example.com"}, Spec: storagev1.CSIDriverSpec{StorageCapacity: ptr.To(heeded)}}
}

// told is what a driver tells of the nodes of a zone; sizes may be empty.
func told(class, zone, free, largest string) *storagev1.CSIStorageCapacity {
	return &storagev1.CSIStorageCapacity{
		ObjectMeta:        metav1.ObjectMeta{Namespace: "driver", Name: class + "-" + zone},
		StorageClassName:  class,
		NodeTopology:      &metav1.LabelSelector{MatchLabels: map[string]string{"zone": zone}},
		Capacity:          size(free),
		MaximumVolumeSize: size(largest),
	}
}

func size(s string) *resource.Quantity {
	if s == "" {
		return nil
	}
	return ptr.To(resource.MustParse(s))
}

func remote(name string, offered ...v1alpha1.OfferedClass) *v1alpha1.RemoteCluster {
	return &v1alpha1.RemoteCluster{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: v1alpha1.RemoteClusterStatus{StorageClasses: offered}}
}

func offer(name, free, largest string) v1alpha1.OfferedClass {
	return v1alpha1.OfferedClass{Name: name, Free: size(free), MaximumVolumeSize: size(largest)}
}

// scheduler does what kube-scheduler does with capacities.
type scheduler []*storagev1.CSIStorageCapacity

func (s scheduler) hasRoom(t *testing.T, class, request string, node map[string]string) bool {
	t.Helper()
	wanted := resource.MustParse(request)
	return slices.ContainsFunc(s, func(capacity *storagev1.CSIStorageCapacity) bool {
		limit := capacity.MaximumVolumeSize
		if limit == nil {
			limit = capacity.Capacity
		}
		if capacity.StorageClassName != class || limit == nil || limit.Value() < wanted.Value() || capacity.NodeTopology == nil {
			return false
		}
		selector, err := metav1.LabelSelectorAsSelector(capacity.NodeTopology)
		require.NoError(t, err)
		return selector.Matches(labels.Set(node))
	})
}

func published(w World) scheduler {
	return Compare(Plan(w), nil, namespace).Create
}

func node(pairs ...string) map[string]string {
	set := map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		set[pairs[i]] = pairs[i+1]
	}
	return set
}
