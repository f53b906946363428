package flow

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/backing"
	"github.com/lodestone-storage/lodestone/provisioner/slim"
)

// TestEachIsFoundAmongThoseOfItsBucket has more objects than there are buckets.
func TestEachIsFoundAmongThoseOfItsBucket(t *testing.T) {
	sources, err := NewSources(informers.NewSharedInformerFactory(fake.NewClientset(), 0))
	require.NoError(t, err)
	const count = 2 * bucketCount
	name := func(i int) string { return fmt.Sprintf("x-%d", i) }
	for i := range count {
		meta := metav1.ObjectMeta{Namespace: "shop", Name: name(i), UID: types.UID(name(i))}
		require.NoError(t, sources.Claims.GetStore().Add(&corev1.PersistentVolumeClaim{ObjectMeta: meta}))
		require.NoError(t, sources.Pods.GetStore().Add(&slim.Pod{ObjectMeta: meta, Claims: []string{"shop/" + name(i), "shop/" + name(i+1)}}))
		meta.Namespace = ""
		require.NoError(t, sources.Attachments.GetStore().Add(&storagev1.VolumeAttachment{ObjectMeta: meta,
			Spec: storagev1.VolumeAttachmentSpec{NodeName: "node-of-" + name(i), Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: ptr.To(name(i))}}}))
		meta.Annotations = map[string]string{keys.Backing: "west/shop/" + name(i) + "/" + name(i)}
		// That of every third was made anew.
		handle := meta.Annotations[keys.Backing]
		if i%3 == 0 {
			handle = "west/shop/" + name(i) + "/first-" + name(i)
		}
		require.NoError(t, sources.Volumes.GetStore().Add(&corev1.PersistentVolume{ObjectMeta: meta, Spec: corev1.PersistentVolumeSpec{
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: keys.Driver, VolumeHandle: handle}}}}))
	}
	for i := range count {
		claim := sources.claim(types.UID(name(i)))
		require.NotNil(t, claim)
		assert.Equal(t, name(i), claim.Name)
		assert.Equal(t, "node-of-"+name(i), sources.attachedTo(name(i)))
		volumes := sources.volumesOf(types.UID(name(i)))
		require.Len(t, volumes, 1)
		assert.Equal(t, name(i), volumes[0].Name)
		handle := backing.Ref{Cluster: "west", Namespace: "shop", Name: name(i), UID: types.UID(name(i))}
		if i%3 == 0 {
			assert.Nil(t, sources.VolumeOf(handle), "no volume was made with it")
			handle.UID = "first-" + handle.UID
		}
		volume := sources.VolumeOf(handle)
		require.NotNil(t, volume)
		assert.Equal(t, name(i), volume.Name)
		want := 2
		if i == 0 {
			want = 1
		}
		assert.Len(t, sources.podsOf("shop/"+name(i)), want)
	}
	assert.Nil(t, sources.claim("none"))
	assert.Empty(t, sources.attachedTo("none"))
	assert.Empty(t, sources.volumesOf("none"))
	assert.Empty(t, sources.volumesOf("first-x-0"), "it is no more")
	assert.Nil(t, sources.VolumeOf(backing.Ref{Cluster: "west", Namespace: "shop", Name: "none", UID: "none"}))
	assert.Nil(t, sources.VolumeOf(backing.Ref{Cluster: "east", Namespace: "shop", Name: "x-1", UID: "x-1"}), "of another cluster")
	assert.Empty(t, sources.podsOf("shop/none"))
	assert.Equal(t, count, sources.VolumesIn("west"))
}
