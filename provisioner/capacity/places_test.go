package capacity

import (
	"testing"

	"github.com/stretchr/testify/assert"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

func TestTheLargestPlaceOfEachClusterIsKnownOrNot(t *testing.T) {
	const unknown = "unknown"
	class := func(name, provisioner string, parameters map[string]string) *storagev1.StorageClass {
		return &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name, UID: "u1"}, Provisioner: provisioner, Parameters: parameters,
			VolumeBindingMode: ptr.To(storagev1.VolumeBindingWaitForFirstConsumer)}
	}
	told := func(free, largest string) *storagev1.CSIStorageCapacity {
		c := &storagev1.CSIStorageCapacity{StorageClassName: "real", NodeTopology: &metav1.LabelSelector{}, Capacity: ptr.To(resource.MustParse(free))}
		if largest != "" {
			c.MaximumVolumeSize = ptr.To(resource.MustParse(largest))
		}
		return c
	}
	remote := func(classes ...v1alpha1.OfferedClass) *v1alpha1.RemoteCluster {
		return &v1alpha1.RemoteCluster{ObjectMeta: metav1.ObjectMeta{Name: "west"}, Status: v1alpha1.RemoteClusterStatus{StorageClasses: classes}}
	}
	offers := func(name, free string) v1alpha1.OfferedClass {
		offered := v1alpha1.OfferedClass{Name: name, Default: true}
		if free != "" {
			offered.Free = ptr.To(resource.MustParse(free))
		}
		return offered
	}
	local := map[string]string{keys.LocalClass: "real"}
	for name, test := range map[string]struct {
		parameters map[string]string
		told       []*storagev1.CSIStorageCapacity
		remotes    []*v1alpha1.RemoteCluster
		want       map[string]string
	}{
		"drivers tell nothing":                     {parameters: local, remotes: []*v1alpha1.RemoteCluster{remote(offers("fast", ""))}, want: map[string]string{keys.Home: unknown, "west": unknown}},
		"the largest of several counts":            {parameters: local, told: []*storagev1.CSIStorageCapacity{told("3Gi", ""), told("9Gi", "5Gi"), told("1Gi", "")}, want: map[string]string{keys.Home: "5Gi"}},
		"there is room nowhere":                    {parameters: local, told: []*storagev1.CSIStorageCapacity{told("0", "")}, want: map[string]string{keys.Home: "0"}},
		"both are known":                           {parameters: local, told: []*storagev1.CSIStorageCapacity{told("3Gi", "")}, remotes: []*v1alpha1.RemoteCluster{remote(offers("fast", "7Gi"))}, want: map[string]string{keys.Home: "3Gi", "west": "7Gi"}},
		"a cluster that nobody looked at yet":      {parameters: local, told: []*storagev1.CSIStorageCapacity{told("3Gi", "")}, remotes: []*v1alpha1.RemoteCluster{remote()}, want: map[string]string{keys.Home: "3Gi", "west": unknown}},
		"a cluster without a class for it":         {parameters: map[string]string{keys.LocalClass: "real", keys.RemoteClass: "slow"}, told: []*storagev1.CSIStorageCapacity{told("3Gi", "")}, remotes: []*v1alpha1.RemoteCluster{remote(offers("fast", "7Gi"))}, want: map[string]string{keys.Home: "3Gi"}},
		"a cluster that the class keeps out of":    {parameters: map[string]string{keys.LocalClass: "real", keys.Clusters: keys.Home}, told: []*storagev1.CSIStorageCapacity{told("3Gi", "")}, remotes: []*v1alpha1.RemoteCluster{remote(offers("fast", ""))}, want: map[string]string{keys.Home: "3Gi"}},
		"a class that claims choose and none else": {parameters: map[string]string{keys.LocalClass: "real", keys.RemoteClass: "slow", keys.Classes: "fast"}, told: []*storagev1.CSIStorageCapacity{told("3Gi", "")}, remotes: []*v1alpha1.RemoteCluster{remote(offers("fast", "7Gi"))}, want: map[string]string{keys.Home: "3Gi", "west": unknown}},
	} {
		t.Run(name, func(t *testing.T) {
			world := World{
				Classes: []*storagev1.StorageClass{class("virtual", keys.Driver, test.parameters), class("real", "disk", nil)},
				Drivers: []*storagev1.CSIDriver{{ObjectMeta: metav1.ObjectMeta{Name: "disk"}, Spec: storagev1.CSIDriverSpec{StorageCapacity: ptr.To(true)}}},
				Remotes: test.remotes, Capacities: test.told,
			}
			got := map[string]string{}
			for id, limit := range Largest(world, Plan(world))["virtual"] {
				if got[id] = unknown; limit != nil {
					got[id] = limit.String()
				}
			}
			assert.Equal(t, test.want, got)
		})
	}
}
