package move

import (
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/cli"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

func TestADrillIsMadeLikeItsClaim(t *testing.T) {
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "data", UID: "u1", Labels: map[string]string{"app": "db"},
			Annotations: map[string]string{keys.Class: "fast", keys.Move: "going"}},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, VolumeMode: ptr.To(corev1.PersistentVolumeBlock),
			StorageClassName: ptr.To("virtual"), VolumeName: "pvc-u1",
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		},
		Status: corev1.PersistentVolumeClaimStatus{Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("2Gi")}},
	}
	replica := copied("data", "east", "v2", "v1")
	d := drillOf(claim, &replica, "", "data-drill")
	assert.Equal(t, &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "data-drill",
			Annotations: map[string]string{keys.ReplicaVersion: "v2", keys.Class: "fast", keys.ReplicateTo: ""}},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: claim.Spec.AccessModes, VolumeMode: claim.Spec.VolumeMode, StorageClassName: ptr.To("virtual"),
			Resources:     corev1.VolumeResourceRequirements{Requests: claim.Status.Capacity},
			DataSourceRef: &corev1.TypedObjectReference{APIGroup: ptr.To("lodestone.dev"), Kind: "VolumeReplica", Name: "data-east"},
		},
	}, d.claim)
	assert.Equal(t, "east", d.cluster)
	replica.Spec.Standbys[0].ClassName = "gold"
	d = drillOf(claim, &replica, "v1", "tried")
	assert.Equal(t, map[string]string{keys.ReplicaVersion: "v1", keys.Class: "gold", keys.ReplicateTo: ""}, d.claim.Annotations)
	assert.Equal(t, replica.Status.Standbys[0].Versions[1].Cut.Time, d.cut)
	assert.NotContains(t, d.claim.Annotations, keys.ReplicaClaim)
	replica.Spec.Claims = []string{"data", "wal"}
	assert.Equal(t, "data", drillOf(claim, &replica, "", "tried").claim.Annotations[keys.ReplicaClaim], "of several it says of which")
}

func TestDrillsOfAStatefulSetAreFoundByOneLikeIt(t *testing.T) {
	set := cli.Reference{Kind: cli.StatefulSet, Name: "db"}
	assert.Equal(t, "data-db-drill-0", drillName("data-db-0", set))
	assert.Equal(t, "shared-drill", drillName("shared", set))
	assert.Equal(t, "data-db-0-drill", drillName("data-db-0", cli.Reference{}))
	of := func(name, cluster, of string) drill {
		return drill{claim: &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}}, of: of, cluster: cluster}
	}
	assert.Equal(t, "a StatefulSet like db, with the name db-drill, uses them, and each of its pods is scheduled to cluster east or west; "+
		"kubectl delete pvc data-db-drill-0 data-db-drill-1 -n shop removes what was made, and no version",
		howToUse([]drill{of("data-db-drill-0", "west", "data-db-0"), of("data-db-drill-1", "east", "data-db-1")}, set))
	assert.Equal(t, "a pod like that of the application, with data-drill and wal-drill in place of data and wal, is scheduled to "+
		"cluster east; kubectl delete pvc data-drill wal-drill -n shop removes what was made, and no version",
		howToUse([]drill{of("data-drill", "east", "data"), of("wal-drill", "east", "wal")}, cli.Reference{}))
}
