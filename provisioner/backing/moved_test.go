package backing_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/backing"
)

const long = types.UID("5f3c0a52-6c0e-4f63-8a2e-007027119911")

func volumeOf(ref string) *corev1.PersistentVolume {
	return &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{keys.Backing: ref}}}
}

func TestTwin(t *testing.T) {
	plain := named("lodestone-storage", "pvc-"+string(long))
	moved := named("lodestone-storage", backing.Moved(long, 2))
	for name, test := range map[string]struct {
		volume *corev1.PersistentVolume
		want   types.NamespacedName
	}{
		"of a claim without a volume":                {want: plain},
		"that never moved":                           {volume: volumeOf("home/lodestone-storage/" + plain.Name + "/b"), want: plain},
		"that a move made":                           {volume: volumeOf("home/lodestone-storage/" + moved.Name + "/b"), want: moved},
		"of data elsewhere":                          {volume: volumeOf("west/lodestone-storage/" + moved.Name + "/b"), want: plain},
		"that another namespace has":                 {volume: volumeOf("home/shop/" + moved.Name + "/b"), want: plain},
		"of another claim is none":                   {volume: volumeOf("home/lodestone-storage/pvc-other/b"), want: plain},
		"of a reference that cannot be read":         {volume: volumeOf("?"), want: plain},
		"with a number that no move gives":           {volume: volumeOf("home/lodestone-storage/pvc-" + string(long) + "-02/b"), want: plain},
		"with a number and more behind it":           {volume: volumeOf("home/lodestone-storage/" + moved.Name + "-x/b"), want: plain},
		"with a number below the first move's is no": {volume: volumeOf("home/lodestone-storage/pvc-" + string(long) + "-0/b"), want: plain},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, test.want, place.Twin(long, test.volume))
		})
	}
	uid, ok := backing.TwinOf(moved.Name)
	assert.True(t, ok)
	assert.Equal(t, long, uid, "a UID may end like a number, but a number behind it is the move's")
	_, ok = backing.TwinOf("data")
	assert.False(t, ok)
}

func TestAShadowIsWhereItsVolumeSays(t *testing.T) {
	plain, moved := named("shop-h1", "data"), named("shop-h1", backing.Moved(long, 1))
	for name, test := range map[string]struct {
		volume *corev1.PersistentVolume
		want   types.NamespacedName
	}{
		"without a volume":                      {want: plain},
		"that never moved":                      {volume: volumeOf("west/shop-h1/data/b"), want: plain},
		"that a move made":                      {volume: volumeOf("west/shop-h1/" + moved.Name + "/b"), want: moved},
		"while the data is in another cluster":  {volume: volumeOf("east/shop-h1/" + moved.Name + "/b"), want: plain},
		"in another namespace is none":          {volume: volumeOf("west/other/" + moved.Name + "/b"), want: plain},
		"of a name that is not made of its UID": {volume: volumeOf("west/shop-h1/else/b"), want: plain},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, test.want, place.At("west", v1alpha1.Suffixed, named("shop", "data"), long, test.volume))
		})
	}
	assert.True(t, backing.WasMoved(moved.Name))
	assert.False(t, backing.WasMoved("pvc-"+string(long)))
	assert.False(t, backing.WasMoved("data"))
}

func TestSpare(t *testing.T) {
	b := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{UID: "b1"}}
	assert.False(t, backing.Spare(b, nil), "no move has to do with it")
	b.Labels = map[string]string{keys.MoveOf: "m1"}
	assert.True(t, backing.Spare(b, nil))
	assert.True(t, backing.Spare(b, volumeOf("west/shop/data/b2")))
	assert.False(t, backing.Spare(b, volumeOf("west/shop/data/b1")), "whoever forges the label hides no volume")
}
