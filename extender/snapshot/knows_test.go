package snapshot_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/extender/snapshot"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// A copy is judged by its source's volume: if Kubernetes has bound the source,
// that volume will be seen in a moment. A user cannot write that it is bound.
func TestKnowsWaitsForTheVolumeOfASource(t *testing.T) {
	view := snapshot.New()
	pod := snapshot.Pod{Namespace: "app", Volumes: []snapshot.PodVolume{{ClaimName: "copy"}}}
	view.Claims.Set("app/copy", &snapshot.Claim{UID: "copy", Source: "data"})
	assert.True(t, view.Knows(pod), "the source may never be made")
	view.Claims.Set("app/data", &snapshot.Claim{UID: "data", VolumeName: "pv"})
	assert.True(t, view.Knows(pod), "its user wrote the volume's name")
	view.Claims.Set("app/data", &snapshot.Claim{UID: "data", VolumeName: "pv", Bound: true})
	assert.False(t, view.Knows(pod))
	view.Volumes.Set("pv", &snapshot.Volume{Cluster: "west", ClaimUID: "data"})
	assert.True(t, view.Knows(pod))
}

// Which nodes a volume allows is not known before the volume is.
func TestKnowsWaitsForTheVolumeOfAClaim(t *testing.T) {
	view := snapshot.New()
	pod := snapshot.Pod{Namespace: "app", Volumes: []snapshot.PodVolume{{ClaimName: "data"}}}
	view.Claims.Set("app/data", &snapshot.Claim{UID: "data", VolumeName: "pv"})
	assert.True(t, view.Knows(pod), "its user wrote the volume's name")
	view.Claims.Set("app/data", &snapshot.Claim{UID: "data", VolumeName: "pv", Bound: true})
	assert.False(t, view.Knows(pod))
	view.Volumes.Set("pv", &snapshot.Volume{ClaimUID: "data"})
	assert.True(t, view.Knows(pod), "a volume that may be anywhere is known as well")
}

// A virtual class may be created and used within the same second: until it is seen,
// it would count as one that is not virtual.
func TestKnowsWaitsForTheClassOfAClaim(t *testing.T) {
	for name, provisioner := range map[string]string{"a virtual class": keys.Driver, "a real class": "disk.example.com"} {
		t.Run(name, func(t *testing.T) {
			view := snapshot.New()
			pod := snapshot.Pod{Namespace: "app", Volumes: []snapshot.PodVolume{{ClaimName: "data"}}}
			view.Claims.Set("app/data", &snapshot.Claim{UID: "data"})
			assert.True(t, view.Knows(pod), "it names no class")
			view.Claims.Set("app/data", &snapshot.Claim{UID: "data", ClassName: "new"})
			assert.False(t, view.Knows(pod))
			class := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "new"}, Provisioner: provisioner}
			view.StorageClasses().Set("new", class)
			assert.True(t, view.Knows(pod))
			view.StorageClasses().Delete("new")
			assert.False(t, view.Knows(pod))
			view.StorageClasses().Replace(map[string]*storagev1.StorageClass{"new": class})
			assert.True(t, view.Knows(pod))
			view.StorageClasses().Replace(nil)
			view.Claims.Set("app/data", &snapshot.Claim{UID: "data", ClassName: "new", VolumeName: "pv"})
			assert.True(t, view.Knows(pod), "where a volume is named, the class no longer matters")
		})
	}
}
