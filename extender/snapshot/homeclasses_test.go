package snapshot_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/extender/snapshot"
	"github.com/lodestone-storage/lodestone/pkg/keys"
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
	view := snapshot.New()
	classes := view.StorageClasses()
	driver := func(parameters map[string]string, claim snapshot.Claim) string {
		virtual := storageClass("virtual", keys.Driver, 0)
		virtual.Parameters = parameters
		class, _ := snapshot.FromStorageClass(virtual)
		return view.HomeDriver(class, &claim)
	}
	assert.Empty(t, driver(nil, snapshot.Claim{}), "there is no default class yet")

	classes.Set("lodestone", storageClass("lodestone", keys.Driver, 3))
	classes.Set("slow", storageClass("slow", "tape", 1))
	classes.Set("fast", storageClass("fast", "disk", 2))
	assert.Equal(t, "disk", driver(nil, snapshot.Claim{}), "the newest default class that is real")
	assert.Equal(t, "tape", driver(map[string]string{keys.LocalClass: "slow"}, snapshot.Claim{}))
	assert.Empty(t, driver(map[string]string{keys.LocalClass: "lodestone"}, snapshot.Claim{}), "a virtual class is no real one")
	chosen := snapshot.Claim{Choice: map[string]string{keys.Class: "slow"}}
	assert.Equal(t, "tape", driver(map[string]string{keys.Classes: "slow"}, chosen))
	assert.Empty(t, driver(nil, chosen), "a class that is not listed is not used")
	assert.Equal(t, 1, view.Classes.Len())
	assert.Equal(t, 3, classes.Len())

	classes.Set("fast", storageClass("fast", keys.Driver, 2))
	assert.Equal(t, "tape", driver(nil, snapshot.Claim{}), "it was made anew as a virtual one")
	assert.Equal(t, 2, view.Classes.Len())
	classes.Set("fast", storageClass("fast", "disk", 2))
	assert.Equal(t, 1, view.Classes.Len(), "and as a real one again")

	classes.Delete("fast")
	assert.Equal(t, "tape", driver(nil, snapshot.Claim{}))
	classes.Replace(map[string]*storagev1.StorageClass{"new": storageClass("new", "disk", 4), "other": storageClass("other", keys.Driver, 0)})
	assert.Equal(t, "disk", driver(nil, snapshot.Claim{}))
	_, known := view.Classes.Get("lodestone")
	assert.False(t, known, "what a new list lacks is gone")
	classes.Delete("other")
	assert.Zero(t, view.Classes.Len())
}
