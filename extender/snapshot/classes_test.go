package snapshot

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/virtualclass"
)

func storageClass(name, provisioner string, defaultSince int64) *storagev1.StorageClass {
	class := &storagev1.StorageClass{
		ObjectMeta:  metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(time.Unix(defaultSince, 0))},
		Provisioner: provisioner, VolumeBindingMode: ptr.To(storagev1.VolumeBindingWaitForFirstConsumer),
	}
	if defaultSince > 0 {
		class.Annotations = map[string]string{"storageclass.kubernetes.io/is-default-class": "true"}
	}
	return class
}

func TestStorageClassesAreVirtualOrReal(t *testing.T) {
	view := New()
	classes := view.StorageClasses()
	driver := func(parameters map[string]string, claim Claim) string {
		virtual := storageClass("virtual", keys.Driver, 0)
		virtual.Parameters = parameters
		class, _ := FromStorageClass(virtual)
		return view.HomeDriver(class, &claim)
	}
	assert.Empty(t, driver(nil, Claim{}), "there is no default class yet")

	classes.Set("lodestone", storageClass("lodestone", keys.Driver, 3))
	classes.Set("slow", storageClass("slow", "tape", 1))
	classes.Set("fast", storageClass("fast", "disk", 2))
	assert.Equal(t, "disk", driver(nil, Claim{}), "the newest default class that is real")
	assert.Equal(t, "tape", driver(map[string]string{keys.LocalClass: "slow"}, Claim{}))
	assert.Empty(t, driver(map[string]string{keys.LocalClass: "lodestone"}, Claim{}), "a virtual class is no real one")
	chosen := Claim{Choice: map[string]string{keys.Class: "slow"}}
	assert.Equal(t, "tape", driver(map[string]string{keys.Classes: "slow"}, chosen))
	assert.Empty(t, driver(nil, chosen), "a class that is not listed is not used")
	assert.Equal(t, 1, view.Classes.Len())
	assert.Equal(t, 3, classes.Len())

	classes.Set("fast", storageClass("fast", keys.Driver, 2))
	assert.Equal(t, "tape", driver(nil, Claim{}), "it was made anew as a virtual one")
	assert.Equal(t, 2, view.Classes.Len())
	classes.Set("fast", storageClass("fast", "disk", 2))
	assert.Equal(t, 1, view.Classes.Len(), "and as a real one again")

	classes.Delete("fast")
	assert.Equal(t, "tape", driver(nil, Claim{}))
	classes.Replace(map[string]*storagev1.StorageClass{"new": storageClass("new", "disk", 4), "other": storageClass("other", keys.Driver, 0)})
	assert.Equal(t, "disk", driver(nil, Claim{}))
	_, known := view.Classes.Get("lodestone")
	assert.False(t, known, "what a new list lacks is gone")
	classes.Delete("other")
	assert.Zero(t, view.Classes.Len())
}

func TestFromStorageClass(t *testing.T) {
	class := &storagev1.StorageClass{
		ObjectMeta:        metav1.ObjectMeta{Name: "lodestone"},
		Provisioner:       keys.Driver,
		VolumeBindingMode: ptr.To(storagev1.VolumeBindingWaitForFirstConsumer),
		Parameters:        map[string]string{keys.Clusters: "home"},
	}
	virtual, ok := FromStorageClass(class)
	require.True(t, ok)
	assert.False(t, virtual.Invalid)
	assert.True(t, virtual.Allows("home"))
	assert.False(t, virtual.Allows("west"))

	class.Parameters["unknown"] = "x"
	virtual, ok = FromStorageClass(class)
	assert.True(t, ok, "an invalid virtual class must still be known")
	assert.True(t, virtual.Invalid)

	class.Provisioner = "real.example"
	_, ok = FromStorageClass(class)
	assert.False(t, ok)
}

func TestRoomIsTheSumOfItsParts(t *testing.T) {
	room := NewRoom()
	is := func(class string, want float64) {
		t.Helper()
		free, known := room.Free(class)
		assert.True(t, known, class)
		assert.InDelta(t, want, free, 0, class)
	}
	unknown := func(class string) {
		t.Helper()
		_, known := room.Free(class)
		assert.False(t, known, class)
	}
	unknown("fast")
	room.Set("a", Capacity{ClassName: "fast", Bytes: 1})
	room.Set("b", Capacity{ClassName: "fast", Bytes: 2})
	room.Set("c", Capacity{ClassName: "slow", Bytes: 0})
	is("fast", 3)
	is("slow", 0)
	assert.Equal(t, 3, room.Len())

	room.Set("a", Capacity{ClassName: "fast", Bytes: 5})
	is("fast", 7)
	room.Set("b", Capacity{ClassName: "slow", Bytes: 2})
	is("fast", 5)
	is("slow", 2)
	room.Delete("a")
	room.Delete("gone")
	unknown("fast")

	room.Replace(map[string]Capacity{"d": {ClassName: "fast", Bytes: 4}, "e": {ClassName: "fast", Bytes: 4}})
	is("fast", 8)
	unknown("slow")
	room.Delete("d")
	is("fast", 4)
	room.Replace(nil)
	unknown("fast")
	room.Set("f", Capacity{ClassName: "fast", Bytes: 1})
	is("fast", 1)
}

func TestRoomIsReadWhileItChanges(t *testing.T) {
	room := NewRoom()
	var writers sync.WaitGroup
	for part := range 4 {
		writers.Go(func() {
			for i := range 200 {
				room.Set(fmt.Sprint(part), Capacity{ClassName: "fast", Bytes: int64(i)})
				room.Delete(fmt.Sprint(part))
			}
			room.Set(fmt.Sprint(part), Capacity{ClassName: "fast", Bytes: 1})
		})
	}
	for range 1000 {
		free, known := room.Free("fast")
		assert.GreaterOrEqual(t, free, 0.0)
		assert.True(t, known || free == 0)
	}
	writers.Wait()
	free, _ := room.Free("fast")
	assert.InDelta(t, 4, free, 0)
}

func TestFromCapacity(t *testing.T) {
	_, told := FromCapacity(&storagev1.CSIStorageCapacity{StorageClassName: "fast"})
	assert.False(t, told, "how much there is is not said")
	for quantity, want := range map[string]int64{"0": 0, "1Ki": 1024, "-1": 0} {
		entry, told := FromCapacity(&storagev1.CSIStorageCapacity{StorageClassName: "fast", Capacity: ptr.To(resource.MustParse(quantity))})
		assert.True(t, told)
		assert.Equal(t, Capacity{ClassName: "fast", Bytes: want}, entry)
	}
}

func TestRoomForAClaim(t *testing.T) {
	view := New()
	for name, class := range map[string]*storagev1.StorageClass{
		"fast": {Provisioner: "disk.example.com"},
		"disk": {Provisioner: "disk.example.com"},
		"base": {Provisioner: keys.Driver},
	} {
		class.Name = name
		if name == "disk" {
			class.Annotations = map[string]string{"storageclass.kubernetes.io/is-default-class": "true"}
		}
		view.StorageClasses().Set(name, class)
		view.Room.Set(name, Capacity{ClassName: name, Bytes: int64(len(name))})
	}
	view.Room.Set("gone", Capacity{ClassName: "gone", Bytes: 1})
	free := func(bytes int64) *resource.Quantity { return resource.NewQuantity(bytes, resource.BinarySI) }
	view.Clusters.Set("west", &Cluster{DefaultClass: "ssd", Offered: []v1alpha1.OfferedClass{
		{Name: "ssd", Free: free(10)}, {Name: "fast", Free: free(20)}, {Name: "mute"}, {Name: "full", Free: free(0)},
		{Name: "odd", Free: free(-3)}}})
	view.Clusters.Set("east", &Cluster{Offered: []v1alpha1.OfferedClass{{Name: "main", Default: true, Free: free(30)}}})

	for name, test := range map[string]struct {
		parameters map[string]string
		choice     string
		cluster    string
		class      string
		free       float64
		known      bool
	}{
		"home's default class": {cluster: keys.Home, class: "disk", free: 4, known: true},
		"a class at home": {cluster: keys.Home, parameters: map[string]string{keys.LocalClass: "fast"}, class: "fast",
			free: 4, known: true},
		"a class that home does not have": {cluster: keys.Home, parameters: map[string]string{keys.LocalClass: "gone"}},
		"a virtual class is no real one":  {cluster: keys.Home, parameters: map[string]string{keys.LocalClass: "base"}},
		"the class of the RemoteCluster":  {cluster: "west", class: "ssd", free: 10, known: true},
		"the default class there":         {cluster: "east", class: "main", free: 30, known: true},
		"a class there": {cluster: "west", parameters: map[string]string{keys.RemoteClass: "fast"}, class: "fast",
			free: 20, known: true},
		"the class that the claim asks for": {cluster: "west", parameters: map[string]string{keys.Classes: "fast"}, choice: "fast",
			class: "fast", free: 20, known: true},
		"a class that the claim may not ask for": {cluster: "west", choice: "fast"},
		"a class of which nothing is told":       {cluster: "west", parameters: map[string]string{keys.RemoteClass: "mute"}},
		"a full class": {cluster: "west", parameters: map[string]string{keys.RemoteClass: "full"}, class: "full",
			known: true},
		"a class whose cluster tells nonsense": {cluster: "west", parameters: map[string]string{keys.RemoteClass: "odd"}, class: "odd",
			known: true},
		"a class that is not offered there":       {cluster: "west", parameters: map[string]string{keys.RemoteClass: "gone"}},
		"a cluster of which nothing is known":     {cluster: "north"},
		"a node that stands for no known cluster": {cluster: ""},
	} {
		t.Run(name, func(t *testing.T) {
			parsed, err := virtualclass.Parse(&storagev1.StorageClass{
				ObjectMeta: metav1.ObjectMeta{Name: "lodestone"}, Provisioner: keys.Driver, Parameters: test.parameters,
				VolumeBindingMode: ptr.To(storagev1.VolumeBindingWaitForFirstConsumer),
			})
			assert.NoError(t, err)
			claim := &Claim{}
			if test.choice != "" {
				claim.Choice = map[string]string{keys.Class: test.choice}
			}
			name, free, known := view.RoomFor(&Class{Class: parsed}, claim, test.cluster)
			assert.Equal(t, test.class, name)
			assert.InDelta(t, test.free, free, 0)
			assert.Equal(t, test.known, known)
		})
	}
}
