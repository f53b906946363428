package backing_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/backing"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/virtualclass"
)

var place = backing.Place{HomeID: "h1", StorageNamespace: "lodestone-storage"}

func named(namespace, name string) types.NamespacedName {
	return types.NamespacedName{Namespace: namespace, Name: name}
}

func TestPlaceOf(t *testing.T) {
	long := strings.Repeat("a", 253)
	for name, test := range map[string]struct {
		cluster  string
		strategy v1alpha1.NamespaceStrategy
		claim    types.NamespacedName
		want     types.NamespacedName
	}{
		"a twin is in the storage namespace, named by UID": {cluster: keys.Home, claim: named("shop", "data"),
			want: named("lodestone-storage", "pvc-u1")},
		"a twin's name does not grow with its claim's": {cluster: keys.Home, claim: named("shop", long),
			want: named("lodestone-storage", "pvc-u1")},
		"a shadow has the claim's own name": {cluster: "west", strategy: v1alpha1.SameName, claim: named("shop", "data"),
			want: named("shop", "data")},
		"without a strategy the namespace is the same": {cluster: "west", claim: named("shop", "data"), want: named("shop", "data")},
		"a suffix keeps several homes apart": {cluster: "west", strategy: v1alpha1.Suffixed, claim: named("shop", long),
			want: named("shop-h1", long)},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, test.want, place.Of(test.cluster, test.strategy, test.claim, "u1"))
		})
	}
}

func TestIsOf(t *testing.T) {
	for name, test := range map[string]struct {
		labels map[string]string
		want   bool
	}{
		"both labels fit":            {labels: map[string]string{keys.ClaimUID: "u1", keys.HomeID: "h1"}, want: true},
		"of another claim":           {labels: map[string]string{keys.ClaimUID: "u2", keys.HomeID: "h1"}},
		"of another home":            {labels: map[string]string{keys.ClaimUID: "u1", keys.HomeID: "h2"}},
		"without the home":           {labels: map[string]string{keys.ClaimUID: "u1"}},
		"without the claim":          {labels: map[string]string{keys.HomeID: "h1"}},
		"made by somebody, no label": {},
	} {
		t.Run(name, func(t *testing.T) {
			b := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Labels: test.labels}}
			assert.Equal(t, test.want, backing.IsOf(b, "u1", "h1"))
		})
	}
}

func TestMarks(t *testing.T) {
	b := &corev1.PersistentVolumeClaim{}
	assert.False(t, backing.Unpublished(b), "without the mark it may hold data")
	assert.False(t, backing.Protected(b))
	b.Finalizers = []string{"kubernetes.io/pvc-protection"}
	assert.False(t, backing.Protected(b))
}

func TestOwnerOf(t *testing.T) {
	for name, test := range map[string]struct {
		at         types.NamespacedName
		uid, claim string
		want       bool
	}{
		"a twin at its place":                        {at: named("lodestone-storage", "pvc-u1"), uid: "u1", claim: "shop/data", want: true},
		"a twin of another UID":                      {at: named("lodestone-storage", "pvc-u2"), uid: "u1", claim: "shop/data"},
		"a twin elsewhere":                           {at: named("shop", "pvc-u1"), uid: "u1", claim: "shop/data"},
		"a shadow in the namespace of its claim":     {at: named("shop", "data"), uid: "u1", claim: "shop/data", want: true},
		"a shadow in the suffixed namespace":         {at: named("shop-h1", "data"), uid: "u1", claim: "shop/data", want: true},
		"a shadow that speaks for another namespace": {at: named("evil", "data"), uid: "u1", claim: "shop/data"},
		"a shadow of another name":                   {at: named("shop", "other"), uid: "u1", claim: "shop/data"},
		"a shadow that a move made": {at: named("shop", backing.Moved(long, 1)), uid: string(long), claim: "shop/data",
			want: true},
		"one in a suffixed namespace": {at: named("shop-h1", backing.Moved(long, 2)), uid: string(long), claim: "shop/data",
			want: true},
		"one in a namespace that is not its own":    {at: named("evil", backing.Moved(long, 1)), uid: string(long), claim: "shop/data"},
		"one of another UID":                        {at: named("shop", backing.Moved(long, 1)), uid: "u1", claim: "shop/data"},
		"a shadow in the namespace of another home": {at: named("shop-h2", "data"), uid: "u1", claim: "shop/data"},
		"an annotation that is no name":             {at: named("shop", "data"), uid: "u1", claim: "data"},
		"no annotation":                             {at: named("shop", "data"), uid: "u1"},
		"no UID":                                    {at: named("shop", "data"), claim: "shop/data"},
	} {
		t.Run(name, func(t *testing.T) {
			b := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: test.at.Namespace, Name: test.at.Name,
				Labels: map[string]string{keys.ClaimUID: test.uid}, Annotations: map[string]string{keys.Claim: test.claim}}}
			owner, ok := place.OwnerOf(b)
			assert.Equal(t, test.want, ok)
			if test.want {
				assert.Equal(t, named("shop", "data"), owner)
			}
		})
	}
}

func TestRef(t *testing.T) {
	b := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "data.v1", UID: "b1"}}
	ref := backing.RefTo("west", b)
	assert.Equal(t, "west/shop/data.v1/b1", ref.String())
	assert.Equal(t, named("shop", "data.v1"), ref.Key())
	read, err := backing.RefOf(&corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{keys.Backing: ref.String()}},
	})
	require.NoError(t, err)
	assert.Equal(t, ref, read)
}

func TestParseRefRefuses(t *testing.T) {
	for name, text := range map[string]string{
		"nothing":        "",
		"too few parts":  "west/shop/data",
		"too many parts": "west/shop/data/b1/more",
		"an empty part":  "west//data/b1",
		"no UID":         "west/shop/data/",
		"no cluster":     "/shop/data/b1",
	} {
		t.Run(name, func(t *testing.T) {
			_, err := backing.ParseRef(text)
			assert.ErrorContains(t, err, "cluster/namespace/name/uid")
		})
	}
	_, err := backing.RefOf(&corev1.PersistentVolume{})
	assert.Error(t, err, "a volume without the annotation")
}

const long = types.UID("5f3c0a52-6c0e-4f63-8a2e-007027119911")

func volumeOf(ref string) *corev1.PersistentVolume {
	return &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: backing.VirtualName(long),
		Annotations: map[string]string{keys.Backing: ref}}}
}

// restoredOf is the volume of a claim that was restored from a backup, with another UID.
func restoredOf(ref string) *corev1.PersistentVolume {
	volume := volumeOf(ref)
	volume.Name = "pvc-other"
	return volume
}

func TestTwin(t *testing.T) {
	plain := named("lodestone-storage", "pvc-"+string(long))
	moved := named("lodestone-storage", backing.Moved(long, 2))
	for name, test := range map[string]struct {
		volume *corev1.PersistentVolume
		want   types.NamespacedName
	}{
		"of a claim without a volume": {want: plain},
		"that never moved":            {volume: volumeOf("home/lodestone-storage/" + plain.Name + "/b"), want: plain},
		"that a move made":            {volume: volumeOf("home/lodestone-storage/" + moved.Name + "/b"), want: moved},
		"of data elsewhere":           {volume: volumeOf("west/lodestone-storage/" + moved.Name + "/b"), want: plain},
		"that another namespace has":  {volume: volumeOf("home/shop/" + moved.Name + "/b"), want: plain},
		"of a claim before it was restored": {volume: restoredOf("home/lodestone-storage/pvc-other/b"),
			want: named("lodestone-storage", "pvc-other")},
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
		"without a volume":                       {want: plain},
		"that never moved":                       {volume: volumeOf("west/shop-h1/data/b"), want: plain},
		"that a move made":                       {volume: volumeOf("west/shop-h1/" + moved.Name + "/b"), want: moved},
		"while the data is in another cluster":   {volume: volumeOf("east/shop-h1/" + moved.Name + "/b"), want: plain},
		"in another namespace is none":           {volume: volumeOf("west/other/" + moved.Name + "/b"), want: plain},
		"that a move made before a restore":      {volume: restoredOf("west/shop-h1/pvc-other-1/b"), want: named("shop-h1", "pvc-other-1")},
		"before a restore, in another namespace": {volume: restoredOf("west/other/pvc-other-1/b"), want: plain},
		"of a name that is not made of its UID":  {volume: volumeOf("west/shop-h1/else/b"), want: plain},
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

// carrying is a virtual class that copies the keys of these patterns.
func carrying(t *testing.T, patterns string) virtualclass.Class {
	t.Helper()
	class := &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: "lodestone"}, Provisioner: keys.Driver,
		VolumeBindingMode: ptr.To(storagev1.VolumeBindingWaitForFirstConsumer), Parameters: map[string]string{},
	}
	if patterns != "" {
		class.Parameters[keys.Carry] = patterns
	}
	parsed, err := virtualclass.Parse(class)
	require.NoError(t, err)
	return parsed
}

func meta(labels, annotations map[string]string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Labels: labels, Annotations: annotations}}
}

// ours are the label and annotation of a backing claim that say whose it is.
func ours(labels, annotations map[string]string) *corev1.PersistentVolumeClaim {
	b := meta(map[string]string{keys.ClaimUID: "u1"}, map[string]string{keys.Claim: "shop/data"})
	for key, value := range labels {
		b.Labels[key] = value
	}
	for key, value := range annotations {
		b.Annotations[key] = value
	}
	return b
}

func TestCarry(t *testing.T) {
	claim := meta(map[string]string{"team": "a", "app": "db", keys.ClaimUID: "forged"},
		map[string]string{"backup/daily": "yes", "team": "b", keys.Claim: "bank/gold", keys.SelectedNode: "n"})
	b := ours(nil, nil)
	backing.Carry(b, claim, carrying(t, ""))
	assert.Equal(t, ours(nil, nil), b, "a class without the parameter carries nothing")
	backing.Carry(b, claim, carrying(t, "team, backup/*"))
	assert.Equal(t, ours(map[string]string{"team": "a"}, map[string]string{"team": "b", "backup/daily": "yes",
		keys.Carried: `{"labels":["team"],"annotations":["backup/daily","team"]}`}), b)
	b = ours(nil, nil)
	backing.Carry(b, claim, carrying(t, "*"))
	assert.Equal(t, "u1", b.Labels[keys.ClaimUID], "not even with an asterisk alone")
	assert.Equal(t, "shop/data", b.Annotations[keys.Claim])
	assert.NotContains(t, b.Annotations, keys.SelectedNode)
	assert.Equal(t, "db", b.Labels["app"])

	labels, annotations := backing.CarryPatch(b, claim, carrying(t, "*"))
	assert.Empty(t, labels, "what was just carried is in step")
	assert.Empty(t, annotations)
}

func TestCarryPatch(t *testing.T) {
	const record = `{"labels":["team"]}`
	for name, test := range map[string]struct {
		b, claim            *corev1.PersistentVolumeClaim
		patterns            string
		labels, annotations map[string]any
	}{
		"nothing is carried": {b: ours(nil, nil), claim: meta(map[string]string{"team": "a"}, nil)},
		"a new label": {b: ours(nil, nil), claim: meta(map[string]string{"team": "a"}, nil), patterns: "team",
			labels: map[string]any{"team": "a"}, annotations: map[string]any{keys.Carried: record}},
		"a label that drifts": {b: ours(map[string]string{"team": "x"}, map[string]string{keys.Carried: record}),
			claim: meta(map[string]string{"team": "a"}, nil), patterns: "team", labels: map[string]any{"team": "a"}},
		"a label that is gone from the claim": {b: ours(map[string]string{"team": "a"}, map[string]string{keys.Carried: record}),
			claim: meta(nil, nil), patterns: "team",
			labels: map[string]any{"team": nil}, annotations: map[string]any{keys.Carried: nil}},
		"a label that is gone from both": {b: ours(nil, map[string]string{keys.Carried: record}), claim: meta(nil, nil), patterns: "team",
			annotations: map[string]any{keys.Carried: nil}},
		"a label that others wrote": {b: ours(map[string]string{"cost": "7"}, map[string]string{keys.Carried: record}),
			claim: meta(map[string]string{"team": "a"}, nil), patterns: "team", labels: map[string]any{"team": "a"}},
		"a record that was forged removes nothing of ours": {
			b: ours(nil, map[string]string{keys.Carried: `{"labels":["` + keys.ClaimUID + `"],"annotations":["` + keys.Claim +
				`","pv.kubernetes.io/bind-completed"]}`, "pv.kubernetes.io/bind-completed": "yes"}),
			claim: meta(nil, nil), annotations: map[string]any{keys.Carried: nil}},
		"a record that cannot be read removes nothing": {b: ours(map[string]string{"team": "a"}, map[string]string{keys.Carried: "?"}),
			claim: meta(nil, nil), annotations: map[string]any{keys.Carried: nil}},
	} {
		t.Run(name, func(t *testing.T) {
			labels, annotations := backing.CarryPatch(test.b, test.claim, carrying(t, test.patterns))
			for what, pair := range map[string][2]map[string]any{"labels": {test.labels, labels}, "annotations": {test.annotations, annotations}} {
				if len(pair[0])+len(pair[1]) > 0 {
					assert.Equal(t, pair[0], pair[1], what)
				}
			}
		})
	}
}

func TestWhatIsCarriedIsBounded(t *testing.T) {
	claim := meta(nil, map[string]string{"long": strings.Repeat("x", 4096)})
	for i := range 500 {
		claim.Annotations[fmt.Sprintf("key-%03d", i)] = "v"
	}
	b := ours(nil, nil)
	backing.Carry(b, claim, carrying(t, "*"))
	assert.NotContains(t, b.Annotations, "long")
	assert.Contains(t, b.Annotations, "key-000", "always the same ones")
	assert.Less(t, len(b.Annotations), 40)
	labels, annotations := backing.CarryPatch(b, claim, carrying(t, "*"))
	assert.Empty(t, labels)
	assert.Empty(t, annotations)
}
