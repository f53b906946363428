package snapshot_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/extender/snapshot"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/refusal"
)

func TestFromClaimThatIsACopy(t *testing.T) {
	const kind = "PersistentVolumeClaim"
	for name, test := range map[string]struct {
		spec corev1.PersistentVolumeClaimSpec
		want string
	}{
		"no source":                    {},
		"a claim":                      {spec: corev1.PersistentVolumeClaimSpec{DataSource: &corev1.TypedLocalObjectReference{Kind: kind, Name: "data"}}, want: "data"},
		"a claim, by reference":        {spec: corev1.PersistentVolumeClaimSpec{DataSourceRef: &corev1.TypedObjectReference{Kind: kind, Name: "data"}}, want: "data"},
		"a claim of its own namespace": {spec: corev1.PersistentVolumeClaimSpec{DataSourceRef: &corev1.TypedObjectReference{Kind: kind, Name: "data", Namespace: ptr.To("app")}}, want: "data"},
		"a claim of another namespace": {spec: corev1.PersistentVolumeClaimSpec{DataSourceRef: &corev1.TypedObjectReference{Kind: kind, Name: "data", Namespace: ptr.To("other")}}},
		"a snapshot":                   {spec: corev1.PersistentVolumeClaimSpec{DataSource: &corev1.TypedLocalObjectReference{APIGroup: ptr.To("snapshot.storage.k8s.io"), Kind: "VolumeSnapshot", Name: "data"}}},
		"another kind of that name":    {spec: corev1.PersistentVolumeClaimSpec{DataSourceRef: &corev1.TypedObjectReference{APIGroup: ptr.To("example.com"), Kind: kind, Name: "data"}}},
		"a copy that has its volume":   {spec: corev1.PersistentVolumeClaimSpec{VolumeName: "pv", DataSource: &corev1.TypedLocalObjectReference{Kind: kind, Name: "data"}}},
	} {
		t.Run(name, func(t *testing.T) {
			claim, _ := snapshot.FromClaim(&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "app"}, Spec: test.spec})
			assert.Equal(t, test.want, claim.Source)
		})
	}
}

func TestFromClaimReadsItsState(t *testing.T) {
	pvc := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Annotations:     map[string]string{keys.Move: "move-uid", keys.SelectedNode: "home-1"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", UID: "pod-1", Controller: ptr.To(true)}},
		},
	}
	claim, _ := snapshot.FromClaim(pvc)
	assert.Equal(t, &snapshot.Claim{OwnerUID: "pod-1", OfPod: true, Moving: true, SelectedNode: "home-1"}, claim)

	pvc.Annotations[keys.Move] = ""
	pvc.OwnerReferences[0].Kind = "DatabasePod"
	pvc.Spec.VolumeName, pvc.Status.Phase = "pv", corev1.ClaimBound
	claim, _ = snapshot.FromClaim(pvc)
	assert.Equal(t, &snapshot.Claim{OwnerUID: "pod-1", VolumeName: "pv", Bound: true}, claim, "an empty annotation is no move; a node matters only until there is a volume")
}

// Annotations may be 256 KiB long, and anybody who may write claims may write them.
func TestFromClaimKeepsLittleOfWhatUsersWrite(t *testing.T) {
	long := strings.Repeat("x", 20<<10)
	refused, err := refusal.Encode([]refusal.Refusal{
		{Cluster: long, Until: time.Unix(1000, 0)}, {Cluster: "west", Node: long, Until: time.Unix(1000, 0)},
		{Cluster: "east", Reason: long, Message: long, Until: time.Unix(1000, 0)},
	})
	require.NoError(t, err)
	claim, _ := snapshot.FromClaim(&corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{
			keys.Class: long, keys.SelectedNode: long, keys.Refused: refused, corev1.BetaStorageClassAnnotation: long,
		}},
		Spec: corev1.PersistentVolumeClaimSpec{DataSource: &corev1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: long}},
	})
	huge := strings.Repeat("x", 1<<20)
	bound, _ := snapshot.FromClaim(&corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{{UID: types.UID(huge), Controller: ptr.To(true)}}},
		Spec:       corev1.PersistentVolumeClaimSpec{VolumeName: huge},
	})
	volume, _ := snapshot.FromVolume(&corev1.PersistentVolume{Spec: corev1.PersistentVolumeSpec{ClaimRef: &corev1.ObjectReference{UID: types.UID(huge)}}})
	kept := []string{
		claim.Choice[keys.Class], claim.SelectedNode, claim.ClassName, claim.Source, bound.VolumeName, bound.OwnerUID, volume.ClaimUID,
	}
	require.Len(t, claim.Refusals, 1, "the others name no place")
	assert.Equal(t, "east", claim.Refusals[0].Cluster)
	for _, text := range append(kept, claim.Refusals[0].Reason) {
		assert.NotEmpty(t, text)
		assert.Less(t, len(text), 300)
	}
}
