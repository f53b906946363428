package snapshot

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/locality"
)

func TestFromClaim(t *testing.T) {
	refused, err := locality.EncodeRefusals([]locality.Refusal{{Cluster: "west", Reason: "Quota", Message: "a long sentence",
		Until: time.Unix(1000, 0).UTC()}})
	require.NoError(t, err)
	pvc := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			UID:         "uid-1",
			Annotations: map[string]string{keys.Class: "fast", keys.Refused: refused, "other": "left out"},
			OwnerReferences: []metav1.OwnerReference{
				{UID: "not-controlling"},
				{UID: "pod-1", Controller: ptr.To(true)},
			},
		},
		Spec: corev1.PersistentVolumeClaimSpec{StorageClassName: ptr.To("lodestone")},
	}
	claim, ok := FromClaim(pvc)
	require.True(t, ok)
	assert.Equal(t, &Claim{
		UID:       "uid-1",
		ClassName: "lodestone",
		OwnerUID:  "pod-1",
		Choice:    map[string]string{keys.Class: "fast"},
		Refusals:  []locality.Refusal{{Cluster: "west", Reason: "Quota", Until: time.Unix(1000, 0).UTC()}},
	}, claim)

	t.Run("a claim from a snapshot goes where its annotation says", func(t *testing.T) {
		from := pvc.DeepCopy()
		ref := corev1.TypedObjectReference{APIGroup: ptr.To("snapshot.storage.k8s.io"), Kind: "VolumeSnapshot", Name: "friday"}
		from.Spec.DataSourceRef = &ref
		from.Annotations[keys.SourceCluster] = "west"
		claim, _ := FromClaim(from)
		assert.True(t, claim.FromSnapshot)
		assert.Equal(t, "west", claim.SourceCluster)
		assert.Empty(t, claim.Source)
		from.Spec.DataSourceRef, from.Spec.DataSource = nil, &corev1.TypedLocalObjectReference{APIGroup: ref.APIGroup, Kind: ref.Kind,
			Name: ref.Name}
		claim, _ = FromClaim(from)
		assert.True(t, claim.FromSnapshot)
		from.Spec.VolumeName = "pv-1"
		claim, _ = FromClaim(from)
		assert.False(t, claim.FromSnapshot, "it has its volume")
	})
	t.Run("a claim is to be made from a version of a VolumeReplica", func(t *testing.T) {
		from := pvc.DeepCopy()
		from.Spec.DataSourceRef = &corev1.TypedObjectReference{APIGroup: ptr.To("lodestone.dev"), Kind: "VolumeReplica", Name: "data-west"}
		from.Annotations[keys.SourceCluster] = "west"
		claim, _ := FromClaim(from)
		assert.True(t, claim.FromSnapshot)
		assert.Equal(t, "west", claim.SourceCluster)
		from.Spec.DataSourceRef.Namespace = ptr.To("another")
		claim, _ = FromClaim(from)
		assert.False(t, claim.FromSnapshot)
	})
	t.Run("what only says so of a claim that is to be empty is nothing", func(t *testing.T) {
		empty := pvc.DeepCopy()
		empty.Annotations[keys.SourceCluster] = "west"
		claim, _ := FromClaim(empty)
		assert.False(t, claim.FromSnapshot)
		assert.Empty(t, claim.SourceCluster)
	})
	t.Run("refusals of a bound claim no longer matter", func(t *testing.T) {
		bound := pvc.DeepCopy()
		bound.Spec.VolumeName = "pv-1"
		claim, _ := FromClaim(bound)
		assert.Equal(t, "pv-1", claim.VolumeName)
		assert.Empty(t, claim.Refusals)
	})
	t.Run("the older class annotation comes first, as in Kubernetes", func(t *testing.T) {
		old := pvc.DeepCopy()
		old.Annotations[corev1.BetaStorageClassAnnotation] = "other"
		claim, _ := FromClaim(old)
		assert.Equal(t, "other", claim.ClassName)
	})
	t.Run("a claim without class, owner and annotations is kept plain", func(t *testing.T) {
		claim, ok := FromClaim(&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{UID: "uid-2"}})
		assert.True(t, ok)
		assert.Equal(t, &Claim{UID: "uid-2"}, claim)
	})
}

func TestFromVolume(t *testing.T) {
	for name, test := range map[string]struct {
		labels   map[string]string
		affinity *corev1.VolumeNodeAffinity
		source   corev1.PersistentVolumeSource
		want     Volume
		dataIn   string
		hard     bool
	}{
		"a virtual volume is where its affinity says": {
			affinity: locality.Affinity("west", nil), want: Volume{Cluster: "west"}, dataIn: "west", hard: true,
		},
		"… whatever its labels say": {
			labels:   map[string]string{keys.Cluster: "east", keys.Locality: keys.LocalityRequired},
			affinity: locality.Affinity("west", nil), want: Volume{Cluster: "west"}, dataIn: "west", hard: true,
		},
		"a volume that nobody labelled may be anywhere": {},
		"a label alone is a preference": {
			labels: map[string]string{keys.Cluster: "west"}, want: Volume{Prefers: "west"}, dataIn: "west",
		},
		"a label is a rule where an administrator says so": {
			labels: map[string]string{keys.Cluster: "west", keys.Locality: keys.LocalityRequired},
			want:   Volume{Cluster: "west", ByLabel: true}, dataIn: "west", hard: true,
		},
		"another word than required is none": {
			labels: map[string]string{keys.Cluster: "west", keys.Locality: "Required"}, want: Volume{Prefers: "west"}, dataIn: "west",
		},
		"a rule without a cluster says nothing": {
			labels: map[string]string{keys.Cluster: "", keys.Locality: keys.LocalityRequired},
		},
		"an affinity to nodes alone leaves the word to the label": {
			labels: map[string]string{keys.Cluster: keys.Home},
			affinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn,
					Values: []string{"home-1"}}},
			}}}},
			want: Volume{Prefers: keys.Home}, dataIn: keys.Home,
		},
		"the CSI driver is kept": {
			source: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "disk.example.com"}},
			want:   Volume{Driver: "disk.example.com"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			volume, ok := FromVolume(&corev1.PersistentVolume{
				ObjectMeta: metav1.ObjectMeta{Labels: test.labels},
				Spec: corev1.PersistentVolumeSpec{
					Capacity:               corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
					ClaimRef:               &corev1.ObjectReference{UID: "uid-1"},
					NodeAffinity:           test.affinity,
					PersistentVolumeSource: test.source,
				},
			})
			require.True(t, ok)
			test.want.Bytes, test.want.ClaimUID = 1<<30, "uid-1"
			assert.Equal(t, &test.want, volume)
			dataIn, hard := PodClaim{Volume: volume}.DataIn()
			assert.Equal(t, test.dataIn, dataIn)
			assert.Equal(t, test.hard, hard)
		})
	}
	_, ok := FromVolume(&corev1.PersistentVolume{Spec: corev1.PersistentVolumeSpec{NodeAffinity: locality.Affinity("west", nil)}})
	assert.False(t, ok, "a volume without claim is nobody's data")
	dataIn, hard := PodClaim{}.DataIn()
	assert.Empty(t, dataIn, "nothing is known of a volume")
	assert.False(t, hard)
}

func TestFromRemoteCluster(t *testing.T) {
	condition := func(kind string, status metav1.ConditionStatus) metav1.Condition {
		return metav1.Condition{Type: kind, Status: status}
	}
	for name, test := range map[string]struct {
		conditions []metav1.Condition
		deleted    bool
		ready      bool
	}{
		"ready":                       {conditions: []metav1.Condition{condition(v1alpha1.Ready, metav1.ConditionTrue)}, ready: true},
		"not ready":                   {conditions: []metav1.Condition{condition(v1alpha1.Ready, metav1.ConditionFalse)}},
		"unknown counts as not ready": {conditions: []metav1.Condition{condition(v1alpha1.Ready, metav1.ConditionUnknown)}},
		"only reachable":              {conditions: []metav1.Condition{condition(v1alpha1.Reachable, metav1.ConditionTrue)}},
		"not looked at yet":           {},
		"ready, but about to be gone": {conditions: []metav1.Condition{condition(v1alpha1.Ready, metav1.ConditionTrue)}, deleted: true},
	} {
		t.Run(name, func(t *testing.T) {
			object := &v1alpha1.RemoteCluster{
				Spec:   v1alpha1.RemoteClusterSpec{StorageClassName: "ssd"},
				Status: v1alpha1.RemoteClusterStatus{Conditions: test.conditions, StorageClasses: []v1alpha1.OfferedClass{{Name: "ssd"}}},
			}
			if test.deleted {
				object.DeletionTimestamp = ptr.To(metav1.Now())
			}
			cluster, ok := FromRemoteCluster(object)
			assert.True(t, ok)
			assert.Equal(t, &Cluster{Ready: test.ready, DefaultClass: "ssd", Offered: []v1alpha1.OfferedClass{{Name: "ssd"}}}, cluster)
		})
	}
}

func TestFromNodeAndNamespace(t *testing.T) {
	cluster, _ := FromNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{keys.Cluster: "west"}}})
	assert.Equal(t, "west", cluster)
	cluster, _ = FromNode(&corev1.Node{})
	assert.Equal(t, keys.Home, cluster)

	namespace := func(offload string, annotations map[string]string) *Namespace {
		entry, known := FromNamespace(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{keys.Offload: offload},
			Annotations: annotations}})
		assert.True(t, known)
		return entry
	}
	open := namespace(keys.OffloadEnabled, map[string]string{"other": "x"})
	assert.True(t, open.MayUse("west"))
	assert.True(t, open.Unlimited())
	narrow := namespace(keys.OffloadEnabled, map[string]string{keys.OffloadClusters: "east, west"})
	assert.True(t, narrow.MayUse("west"))
	assert.False(t, narrow.MayUse("north"))
	assert.False(t, narrow.Unlimited())
	closed := namespace("disabled", nil)
	assert.False(t, closed.MayUse("west"))
	assert.False(t, closed.Unlimited())
}

func TestFromClaimThatIsACopy(t *testing.T) {
	const kind = "PersistentVolumeClaim"
	for name, test := range map[string]struct {
		spec corev1.PersistentVolumeClaimSpec
		want string
	}{
		"no source": {},
		"a claim": {spec: corev1.PersistentVolumeClaimSpec{DataSource: &corev1.TypedLocalObjectReference{Kind: kind,
			Name: "data"}}, want: "data"},
		"a claim, by reference": {spec: corev1.PersistentVolumeClaimSpec{DataSourceRef: &corev1.TypedObjectReference{Kind: kind,
			Name: "data"}}, want: "data"},
		"a claim of its own namespace": {spec: corev1.PersistentVolumeClaimSpec{DataSourceRef: &corev1.TypedObjectReference{Kind: kind,
			Name: "data", Namespace: ptr.To("app")}}, want: "data"},
		"a claim of another namespace": {spec: corev1.PersistentVolumeClaimSpec{DataSourceRef: &corev1.TypedObjectReference{Kind: kind,
			Name: "data", Namespace: ptr.To("other")}}},
		"a snapshot": {
			spec: corev1.PersistentVolumeClaimSpec{DataSource: &corev1.TypedLocalObjectReference{APIGroup: ptr.To("snapshot.storage.k8s.io"),
				Kind: "VolumeSnapshot", Name: "data"}},
		},
		"another kind of that name": {
			spec: corev1.PersistentVolumeClaimSpec{DataSourceRef: &corev1.TypedObjectReference{APIGroup: ptr.To("example.com"), Kind: kind,
				Name: "data"}},
		},
		"a copy that has its volume": {spec: corev1.PersistentVolumeClaimSpec{VolumeName: "pv",
			DataSource: &corev1.TypedLocalObjectReference{Kind: kind, Name: "data"}}},
	} {
		t.Run(name, func(t *testing.T) {
			claim, _ := FromClaim(&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "app"}, Spec: test.spec})
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
	claim, _ := FromClaim(pvc)
	assert.Equal(t, &Claim{OwnerUID: "pod-1", OfPod: true, Moving: true, SelectedNode: "home-1"}, claim)

	pvc.Annotations[keys.Move] = ""
	pvc.OwnerReferences[0].Kind = "DatabasePod"
	pvc.Spec.VolumeName, pvc.Status.Phase = "pv", corev1.ClaimBound
	claim, _ = FromClaim(pvc)
	assert.Equal(t, &Claim{OwnerUID: "pod-1", VolumeName: "pv", Bound: true}, claim,
		"an empty annotation is no move; a node matters only until there is a volume")
}

// Annotations may be 256 KiB long, and anybody who may write claims may write them.
func TestFromClaimKeepsLittleOfWhatUsersWrite(t *testing.T) {
	long := strings.Repeat("x", 20<<10)
	refused, err := locality.EncodeRefusals([]locality.Refusal{
		{Cluster: long, Until: time.Unix(1000, 0)}, {Cluster: "west", Node: long, Until: time.Unix(1000, 0)},
		{Cluster: "east", Reason: long, Message: long, Until: time.Unix(1000, 0)},
	})
	require.NoError(t, err)
	claim, _ := FromClaim(&corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{
			keys.Class: long, keys.SelectedNode: long, keys.Refused: refused, corev1.BetaStorageClassAnnotation: long,
		}},
		Spec: corev1.PersistentVolumeClaimSpec{DataSource: &corev1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: long}},
	})
	huge := strings.Repeat("x", 1<<20)
	bound, _ := FromClaim(&corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{{UID: types.UID(huge), Controller: ptr.To(true)}}},
		Spec:       corev1.PersistentVolumeClaimSpec{VolumeName: huge},
	})
	volume, _ := FromVolume(&corev1.PersistentVolume{
		Spec: corev1.PersistentVolumeSpec{ClaimRef: &corev1.ObjectReference{UID: types.UID(huge)}},
	})
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

func TestMarksOfClaims(t *testing.T) {
	view := New()
	marked := func(mark string) metav1.ObjectMeta {
		return metav1.ObjectMeta{UID: "uid", Annotations: map[string]string{keys.UsableIn: mark}}
	}
	class := storageClass("disk", "disk.example.com", 1)
	class.Annotations[keys.UsableIn] = "of-class"
	view.StorageClasses().Set("disk", class)
	claim, _ := FromClaim(&corev1.PersistentVolumeClaim{ObjectMeta: marked("of-claim"),
		Spec: corev1.PersistentVolumeClaimSpec{StorageClassName: ptr.To("disk"), VolumeName: "pv"}})
	volume, _ := FromVolume(&corev1.PersistentVolume{ObjectMeta: marked("of-volume"),
		Spec: corev1.PersistentVolumeSpec{ClaimRef: &corev1.ObjectReference{UID: "uid"}}})
	marks, ordinary := view.MarksOf(PodClaim{Claim: claim, Volume: volume})
	require.True(t, ordinary)
	for _, cluster := range []string{"of-claim", "of-volume", "of-class"} {
		assert.True(t, marks.UsableIn(cluster), cluster)
	}
	assert.False(t, marks.UsableIn("west"))

	class = storageClass("disk", "disk.example.com", 1)
	view.StorageClasses().Replace(map[string]*storagev1.StorageClass{"disk": class})
	marks, _ = view.MarksOf(PodClaim{Claim: claim, Volume: volume})
	assert.False(t, marks.UsableIn("of-class"), "the mark was taken off")
}
