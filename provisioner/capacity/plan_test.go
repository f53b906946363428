package capacity

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

var (
	homeA   = node("zone", "a")
	homeB   = node("zone", "b")
	west    = node("zone", "a", keys.Cluster, "west")
	unknown = node(keys.Cluster, "east")
)

func TestANodeHasRoomUnlessItIsKnownToHaveNone(t *testing.T) {
	westOf := func(free, largest string) []*v1alpha1.RemoteCluster {
		offered := offer("std", free, largest)
		offered.Default = true
		return []*v1alpha1.RemoteCluster{remote("west", offered)}
	}
	for name, test := range map[string]struct {
		virtual    *storagev1.StorageClass
		capacities []*storagev1.CSIStorageCapacity
		remotes    []*v1alpha1.RemoteCluster
		drivers    []*storagev1.CSIDriver
		request    string
		room, none []map[string]string
	}{
		"nothing is told of any class": {
			remotes: westOf("", ""), request: "1Pi", room: []map[string]string{homeA, homeB, west, unknown}},
		"a zone of home is too small": {
			capacities: []*storagev1.CSIStorageCapacity{told("std", "a", "1Gi", ""), told("std", "b", "9Gi", "")},
			request:    "5Gi", room: []map[string]string{homeB, unknown}, none: []map[string]string{homeA}},
		"a driver tells of which kube-scheduler heeds nothing": {
			capacities: []*storagev1.CSIStorageCapacity{told("std", "a", "1Gi", "")}, drivers: []*storagev1.CSIDriver{telling(false)},
			request: "5Gi", room: []map[string]string{homeA, homeB}},
		"a driver tells that does not say whether it is heeded": {
			capacities: []*storagev1.CSIStorageCapacity{told("std", "a", "1Gi", "")},
			drivers:    []*storagev1.CSIDriver{{ObjectMeta: metav1.ObjectMeta{Name: "disk.example.com"}}},
			request:    "5Gi", room: []map[string]string{homeA, homeB}},
		"objects of a driver that is gone": {
			capacities: []*storagev1.CSIStorageCapacity{told("std", "a", "1Gi", "")}, drivers: []*storagev1.CSIDriver{},
			request: "5Gi", room: []map[string]string{homeA, homeB}},
		"a zone of home of which nothing is told, while of others it is": {
			capacities: []*storagev1.CSIStorageCapacity{told("std", "a", "9Gi", "")},
			request:    "5Gi", room: []map[string]string{homeA}, none: []map[string]string{homeB}},
		"room in a zone of home is none in a remote cluster's node of that zone": {
			capacities: []*storagev1.CSIStorageCapacity{told("std", "a", "9Gi", "")}, remotes: westOf("1Gi", "1Gi"),
			request: "5Gi", room: []map[string]string{homeA}, none: []map[string]string{west}},
		"the largest volume counts, not the sum": {
			capacities: []*storagev1.CSIStorageCapacity{told("std", "a", "100Gi", "4Gi")}, remotes: westOf("100Gi", "4Gi"),
			request: "5Gi", none: []map[string]string{homeA, west}},
		"a driver tells the largest volume alone": {
			capacities: []*storagev1.CSIStorageCapacity{told("std", "a", "", "9Gi")}, request: "5Gi", room: []map[string]string{homeA}},
		"a driver tells no size": {
			capacities: []*storagev1.CSIStorageCapacity{told("std", "a", "", "")}, request: "1", none: []map[string]string{homeA, homeB}},
		"a driver tells of no node": {
			capacities: []*storagev1.CSIStorageCapacity{{StorageClassName: "std", Capacity: size("9Gi")}}, request: "1",
			none: []map[string]string{homeA}},
		"a driver tells of nodes in a way that cannot be read": {
			capacities: []*storagev1.CSIStorageCapacity{{StorageClassName: "std", Capacity: size("9Gi"),
				NodeTopology: &metav1.LabelSelector{MatchLabels: map[string]string{"zone": strings.Repeat("a", 64)}}}},
			request: "1", none: []map[string]string{homeA}},
		"a remote cluster is full": {
			remotes: westOf("0", "0"), request: "1", room: []map[string]string{homeA, unknown}, none: []map[string]string{west}},
		"a remote cluster tells less than nothing": {
			remotes: westOf("-5Gi", "-1"), request: "1", none: []map[string]string{west}},
		"a remote cluster of which the largest volume was not written yet": {
			remotes: westOf("9Gi", ""), request: "5Gi", room: []map[string]string{west}},
		"a remote cluster of which nothing is known yet": {
			remotes: []*v1alpha1.RemoteCluster{remote("west")}, request: "5Gi", room: []map[string]string{west, unknown}},
		"another class has no room": {
			capacities: []*storagev1.CSIStorageCapacity{told("other", "a", "1", "")}, request: "5Gi", room: []map[string]string{homeA, homeB}},
		"the class names a real one by cluster": {
			virtual:    virtual("v", keys.LocalClass, "fast", keys.RemoteClass+".west", "ssd"),
			capacities: []*storagev1.CSIStorageCapacity{told("std", "a", "1", ""), told("fast", "a", "9Gi", "")},
			remotes:    []*v1alpha1.RemoteCluster{remote("west", offer("std", "100Gi", ""), offer("ssd", "1Gi", ""))},
			request:    "5Gi", room: []map[string]string{homeA}, none: []map[string]string{west}},
		"a RemoteCluster names its real class": {
			remotes: []*v1alpha1.RemoteCluster{func() *v1alpha1.RemoteCluster {
				named := remote("west", offer("std", "100Gi", ""), offer("ssd", "1Gi", ""))
				named.Spec.StorageClassName = "ssd"
				return named
			}()},
			request: "5Gi", none: []map[string]string{west}},
		"claims may choose a class that has room": {
			virtual:    virtual("v", keys.Classes, "fast"),
			capacities: []*storagev1.CSIStorageCapacity{told("std", "a", "1", ""), told("fast", "b", "9Gi", "")},
			remotes: []*v1alpha1.RemoteCluster{remote("west", v1alpha1.OfferedClass{Name: "std", Default: true, Free: size("1")},
				offer("fast", "9Gi", ""))},
			request: "5Gi", room: []map[string]string{homeB, west}, none: []map[string]string{homeA}},
		"a cluster tells only the largest volume": {
			virtual: virtual("v"), remotes: westOf("", "2Gi"), request: "5Gi", none: []map[string]string{west}},
		"claims may choose a class that tells nothing": {
			virtual:    virtual("v", keys.Classes, "fast"),
			capacities: []*storagev1.CSIStorageCapacity{told("std", "a", "1", "")}, request: "5Gi", room: []map[string]string{homeA, homeB}},
		"a cluster that the class keeps out is for others to judge": {
			virtual: virtual("v", keys.Clusters, "home"), remotes: westOf("1", "1"), request: "5Gi", room: []map[string]string{west}},
		"a real class that is not there is for others to judge": {
			virtual: virtual("v", keys.LocalClass, "gold", keys.RemoteClass, "gold"), remotes: westOf("1", "1"), request: "5Gi",
			room: []map[string]string{homeA, west}},
		"a class that cannot be read is for others to judge": {
			virtual: virtual("v", "no-such", "parameter"), capacities: []*storagev1.CSIStorageCapacity{told("std", "a", "1", "")},
			remotes: westOf("1", "1"),
			request: "5Gi", room: []map[string]string{homeA, homeB, west, unknown}},
		"a real class is confined to a zone": {
			virtual: virtual("v", keys.LocalClass, "zonal"), remotes: westOf("9Gi", ""),
			request: "5Gi", room: []map[string]string{homeB, west, unknown}, none: []map[string]string{homeA, node("rack", "1")}},
		"a real class is confined to a zone, and tells what is there": {
			virtual:    virtual("v", keys.LocalClass, "zonal"),
			capacities: []*storagev1.CSIStorageCapacity{told("zonal", "a", "9Gi", ""), told("zonal", "b", "9Gi", "")},
			request:    "5Gi", room: []map[string]string{homeB}, none: []map[string]string{homeA}},
		"a real class is confined to a zone that is full": {
			virtual:    virtual("v", keys.LocalClass, "zonal"),
			capacities: []*storagev1.CSIStorageCapacity{told("zonal", "a", "9Gi", ""), told("zonal", "b", "1Gi", "")},
			request:    "5Gi", none: []map[string]string{homeA, homeB}},
		"claims may choose a class that is confined to a zone": {
			virtual:    virtual("v", keys.Classes, "zonal"),
			capacities: []*storagev1.CSIStorageCapacity{told("std", "a", "1", ""), told("std", "b", "1", "")},
			request:    "5Gi", room: []map[string]string{homeB}, none: []map[string]string{homeA}},
		"a RemoteCluster whose name no node can have": {
			remotes: []*v1alpha1.RemoteCluster{remote(strings.Repeat("a", 64))}, request: "5Gi", room: []map[string]string{west, unknown, homeA}},
	} {
		t.Run(name, func(t *testing.T) {
			class := test.virtual
			if class == nil {
				class = virtual("v")
			}
			drivers := []*storagev1.CSIDriver{telling(true)}
			if test.drivers != nil {
				drivers = test.drivers
			}
			objects := published(World{
				Classes:    []*storagev1.StorageClass{class, defaulted(real("std")), real("fast"), real("other"), zonal("zonal", "b")},
				Capacities: test.capacities, Remotes: test.remotes, Drivers: drivers,
			})
			for _, labels := range test.room {
				assert.True(t, objects.hasRoom(t, "v", test.request, labels), "room on %v", labels)
			}
			for _, labels := range test.none {
				assert.False(t, objects.hasRoom(t, "v", test.request, labels), "no room on %v", labels)
			}
			assert.Empty(t, published(World{Classes: []*storagev1.StorageClass{real("std")}, Capacities: test.capacities, Remotes: test.remotes,
				Drivers: drivers}), "only virtual classes are published")
		})
	}
}

func TestObjectsGoWithTheirClassAndKeepTheirNames(t *testing.T) {
	w := World{
		Classes:    []*storagev1.StorageClass{virtual("v"), virtual("w"), defaulted(real("std"))},
		Capacities: []*storagev1.CSIStorageCapacity{told("std", "a", "9Gi", "3Gi"), told("std", "b", "9Gi", "")},
		Remotes:    []*v1alpha1.RemoteCluster{remote("west"), remote("east")},
		Drivers:    []*storagev1.CSIDriver{telling(true)},
	}
	objects := published(w)
	require.Len(t, objects, 2*(2+2+1), "for each class the zones, the remote clusters and whatever else there is")
	names := map[string]bool{}
	for _, object := range objects {
		names[object.Name] = true
		assert.Equal(t, namespace, object.Namespace)
		assert.True(t, Published(object, namespace))
		require.Len(t, object.OwnerReferences, 1)
		assert.Equal(t, metav1.OwnerReference{APIVersion: "storage.k8s.io/v1", Kind: "StorageClass", Name: object.StorageClassName,
			UID: w.Classes[strings.Index("vw", object.StorageClassName)].UID}, object.OwnerReferences[0])
	}
	assert.Len(t, names, len(objects))
	w.Capacities = []*storagev1.CSIStorageCapacity{told("std", "b", "1Gi", ""), told("std", "a", "1Gi", "")}
	w.Capacities[0].Name = "made-again"
	w.Remotes = []*v1alpha1.RemoteCluster{remote("east"), remote("west")}
	for _, object := range published(w) {
		assert.True(t, names[object.Name], "neither sizes nor order nor names of others matter")
	}
}

// kube-scheduler excludes nodes by the largest volume, and prefers some by the whole room.
func TestRoomThatIsUnknownWeighsLikeTheRoomThatIsKnown(t *testing.T) {
	class := func(free, largest string) v1alpha1.OfferedClass {
		offered := offer("std", free, largest)
		offered.Default = true
		return offered
	}
	for name, test := range map[string]struct {
		capacities []*storagev1.CSIStorageCapacity
		remotes    []*v1alpha1.RemoteCluster
		want       map[string]string // room by cluster, and the largest volume
	}{
		"nothing is known": {remotes: []*v1alpha1.RemoteCluster{remote("west", class("", ""))},
			want: map[string]string{keys.Home: "7Ei 7Ei", "west": "7Ei 7Ei", "": "7Ei 7Ei"}},
		"home tells": {capacities: []*storagev1.CSIStorageCapacity{told("std", "a", "9Gi", "")},
			remotes: []*v1alpha1.RemoteCluster{remote("west")},
			want:    map[string]string{keys.Home: "9Gi <nil>", "west": "9Gi 7Ei", "": "9Gi 7Ei"}},
		"a remote cluster tells": {remotes: []*v1alpha1.RemoteCluster{remote("west", class("5Gi", "3Gi"))},
			want: map[string]string{keys.Home: "5Gi 7Ei", "west": "5Gi 3Gi", "": "5Gi 7Ei"}},
		"the middle one of several that are known": {
			remotes: []*v1alpha1.RemoteCluster{
				remote("west", class("5Gi", "")), remote("north", class("1Ti", "")), remote("east", class("7Gi", ""))},
			want: map[string]string{keys.Home: "7Gi 7Ei", "west": "5Gi <nil>", "north": "1Ti <nil>", "east": "7Gi <nil>", "": "7Gi 7Ei"}},
		"only the largest volume is known": {capacities: []*storagev1.CSIStorageCapacity{told("std", "a", "", "2Gi")},
			remotes: []*v1alpha1.RemoteCluster{remote("west", class("5Gi", ""))},
			want:    map[string]string{keys.Home: "5Gi 2Gi", "west": "5Gi <nil>", "": "5Gi 7Ei"}},
		"a full one": {capacities: []*storagev1.CSIStorageCapacity{told("std", "a", "0", "")}, remotes: []*v1alpha1.RemoteCluster{remote("west")},
			want: map[string]string{keys.Home: "0 <nil>", "west": "0 7Ei", "": "0 7Ei"}},
	} {
		t.Run(name, func(t *testing.T) {
			got := map[string]string{}
			for _, segment := range Plan(World{Classes: []*storagev1.StorageClass{virtual("v"), defaulted(real("std"))}, Capacities: test.capacities,
				Remotes: test.remotes, Drivers: []*storagev1.CSIDriver{telling(true)}}) {
				got[clusterOf(segment)] = segment.Free.String() + " " + segment.Largest.String()
			}
			assert.Equal(t, test.want, got)
		})
	}
}

func TestOfTwoThatTellOfTheSameNodesTheLargerCounts(t *testing.T) {
	twice := told("std", "a", "9Gi", "")
	twice.Name = "other"
	for _, capacities := range [][]*storagev1.CSIStorageCapacity{{told("std", "a", "1Gi", ""), twice}, {twice, told("std", "a", "1Gi", "")}} {
		objects := published(World{Classes: []*storagev1.StorageClass{virtual("v"), defaulted(real("std"))}, Capacities: capacities,
			Drivers: []*storagev1.CSIDriver{telling(true)}})
		assert.Len(t, objects, 2)
		assert.True(t, objects.hasRoom(t, "v", "5Gi", homeA))
	}
}

func TestTheLargestPlaceOfEachClusterIsKnownOrNot(t *testing.T) {
	const unknown = "unknown"
	class := func(name, provisioner string, parameters map[string]string) *storagev1.StorageClass {
		return &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name, UID: "u1"}, Provisioner: provisioner, Parameters: parameters,
			VolumeBindingMode: ptr.To(storagev1.VolumeBindingWaitForFirstConsumer)}
	}
	told := func(free, largest string) *storagev1.CSIStorageCapacity {
		c := &storagev1.CSIStorageCapacity{StorageClassName: "real", NodeTopology: &metav1.LabelSelector{},
			Capacity: ptr.To(resource.MustParse(free))}
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
		"drivers tell nothing": {parameters: local, remotes: []*v1alpha1.RemoteCluster{remote(offers("fast", ""))},
			want: map[string]string{keys.Home: unknown, "west": unknown}},
		"the largest of several counts": {parameters: local, told: []*storagev1.CSIStorageCapacity{told("3Gi", ""), told("9Gi", "5Gi"),
			told("1Gi", "")}, want: map[string]string{keys.Home: "5Gi"}},
		"there is room nowhere": {parameters: local, told: []*storagev1.CSIStorageCapacity{told("0", "")},
			want: map[string]string{keys.Home: "0"}},
		"both are known": {parameters: local, told: []*storagev1.CSIStorageCapacity{told("3Gi", "")},
			remotes: []*v1alpha1.RemoteCluster{remote(offers("fast", "7Gi"))}, want: map[string]string{keys.Home: "3Gi", "west": "7Gi"}},
		"a cluster that nobody looked at yet": {parameters: local, told: []*storagev1.CSIStorageCapacity{told("3Gi", "")},
			remotes: []*v1alpha1.RemoteCluster{remote()}, want: map[string]string{keys.Home: "3Gi", "west": unknown}},
		"a cluster without a class for it": {parameters: map[string]string{keys.LocalClass: "real", keys.RemoteClass: "slow"},
			told: []*storagev1.CSIStorageCapacity{told("3Gi", "")}, remotes: []*v1alpha1.RemoteCluster{remote(offers("fast", "7Gi"))},
			want: map[string]string{keys.Home: "3Gi"}},
		"a cluster that the class keeps out of": {parameters: map[string]string{keys.LocalClass: "real", keys.Clusters: keys.Home},
			told: []*storagev1.CSIStorageCapacity{told("3Gi", "")}, remotes: []*v1alpha1.RemoteCluster{remote(offers("fast", ""))},
			want: map[string]string{keys.Home: "3Gi"}},
		"a class that claims choose and none else": {parameters: map[string]string{keys.LocalClass: "real", keys.RemoteClass: "slow",
			keys.Classes: "fast"}, told: []*storagev1.CSIStorageCapacity{told("3Gi", "")},
			remotes: []*v1alpha1.RemoteCluster{remote(offers("fast", "7Gi"))}, want: map[string]string{keys.Home: "3Gi", "west": unknown}},
	} {
		t.Run(name, func(t *testing.T) {
			world := World{
				Classes: []*storagev1.StorageClass{class("virtual", keys.Driver, test.parameters), class("real", "disk", nil)},
				Drivers: []*storagev1.CSIDriver{{ObjectMeta: metav1.ObjectMeta{Name: "disk"},
					Spec: storagev1.CSIDriverSpec{StorageCapacity: ptr.To(true)}}},
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
