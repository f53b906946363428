package backing_test

import (
	"strings"
	"testing"

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
	"github.com/lodestone-storage/lodestone/provisioner/backing"
	"github.com/lodestone-storage/lodestone/provisioner/route"
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
		"a twin is in the storage namespace, named by UID": {cluster: keys.Home, claim: named("shop", "data"), want: named("lodestone-storage", "pvc-u1")},
		"a twin's name does not grow with its claim's":     {cluster: keys.Home, claim: named("shop", long), want: named("lodestone-storage", "pvc-u1")},
		"a shadow has the claim's own name":                {cluster: "west", strategy: v1alpha1.SameName, claim: named("shop", "data"), want: named("shop", "data")},
		"without a strategy the namespace is the same":     {cluster: "west", claim: named("shop", "data"), want: named("shop", "data")},
		"a suffix keeps several homes apart":               {cluster: "west", strategy: v1alpha1.Suffixed, claim: named("shop", long), want: named("shop-h1", long)},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, test.want, place.Of(test.cluster, test.strategy, test.claim, "u1"))
		})
	}
}

func virtualClaim() *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: "data", UID: "u1",
			Labels:      map[string]string{"app": "db", keys.HomeID: "forged"},
			Annotations: map[string]string{"team": "a", keys.SelectedNode: "forged", keys.Claim: "other/claim"},
		},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes:      []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			VolumeMode:       ptr.To(corev1.PersistentVolumeBlock),
			StorageClassName: ptr.To("lodestone"),
			VolumeName:       "another-volume",
			Resources:        corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("3Gi")}},
		},
	}
}

func TestNew(t *testing.T) {
	waits := v1alpha1.OfferedClass{Name: "fast", Provisioner: "disk", BindingMode: storagev1.VolumeBindingWaitForFirstConsumer}
	atOnce := v1alpha1.OfferedClass{Name: "fast", Provisioner: "disk", BindingMode: storagev1.VolumeBindingImmediate}
	inTree := v1alpha1.OfferedClass{Name: "fast", Provisioner: "kubernetes.io/disk", BindingMode: storagev1.VolumeBindingImmediate}
	for name, test := range map[string]struct {
		route    route.Route
		selected string
		// provisioner is who may make the volume at once.
		provisioner string
	}{
		"a twin of a class that waits carries the selected node":       {route: route.Route{Cluster: keys.Home, Node: "node-1", Class: waits}, selected: "node-1", provisioner: "disk"},
		"a twin of a class that binds at once does not":                {route: route.Route{Cluster: keys.Home, Node: "node-1", Class: atOnce}, provisioner: "disk"},
		"a shadow never does, for nodes there have names of their own": {route: route.Route{Cluster: "west", Node: "node-1", Class: waits}},
		"a shadow that binds at once may be provisioned at once":       {route: route.Route{Cluster: "west", Node: "node-1", Class: atOnce}, provisioner: "disk"},
		"a provisioner that may have another name is left to others":   {route: route.Route{Cluster: keys.Home, Node: "node-1", Class: inTree}},
	} {
		t.Run(name, func(t *testing.T) {
			claim := virtualClaim()
			before := claim.DeepCopy()
			b := backing.New(claim, test.route, named("there", "name"), "h1")
			assert.Equal(t, "there", b.Namespace)
			assert.Equal(t, "name", b.Name)
			assert.Equal(t, map[string]string{keys.ClaimUID: "u1", keys.HomeID: "h1"}, b.Labels, "no label of the user's")
			want := map[string]string{keys.Claim: "shop/data", keys.Unpublished: "true"}
			if test.selected != "" {
				want[keys.SelectedNode] = test.selected
			}
			if test.provisioner != "" {
				want[keys.StorageProvisioner], want[keys.BetaStorageProvisioner] = test.provisioner, test.provisioner
			}
			assert.Equal(t, want, b.Annotations, "no annotation of the user's")
			assert.Equal(t, []string{keys.BackingFinalizer}, b.Finalizers)
			assert.Equal(t, corev1.PersistentVolumeClaimSpec{
				AccessModes: before.Spec.AccessModes, VolumeMode: before.Spec.VolumeMode,
				Resources: before.Spec.Resources, StorageClassName: ptr.To("fast"),
			}, b.Spec, "and no volume name")
			assert.True(t, backing.IsOf(b, "u1", "h1"))
			assert.True(t, backing.Unpublished(b))
			assert.True(t, backing.Protected(b))

			b.Spec.AccessModes[0] = corev1.ReadOnlyMany
			b.Spec.Resources.Requests[corev1.ResourceStorage] = resource.MustParse("9Gi")
			assert.Equal(t, before, claim, "the virtual claim is not changed")
		})
	}
}

func TestNewOfACopyWithAttributes(t *testing.T) {
	claim := virtualClaim()
	claim.Spec.DataSource = &corev1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: "source"}
	claim.Spec.VolumeAttributesClassName = ptr.To("gold")
	b := backing.New(claim, route.Route{Cluster: keys.Home, Source: named("lodestone-storage", "pvc-s1")}, named("lodestone-storage", "pvc-u1"), "h1")
	assert.Equal(t, &corev1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: "pvc-s1"}, b.Spec.DataSource, "the source's twin, not the name that the user wrote")
	assert.Nil(t, b.Spec.DataSourceRef)
	assert.Equal(t, "pvc-s1", backing.CopyOf(b))
	assert.Equal(t, "gold", backing.Attributes(b))

	claim.Spec.VolumeAttributesClassName = ptr.To("")
	b = backing.New(claim, route.Route{Cluster: keys.Home}, named("lodestone-storage", "pvc-u1"), "h1")
	assert.Nil(t, b.Spec.DataSource, "what the route does not name is not asked for")
	assert.Nil(t, b.Spec.VolumeAttributesClassName)
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
		"a shadow that a move made":                  {at: named("shop", backing.Moved(long, 1)), uid: string(long), claim: "shop/data", want: true},
		"one in a suffixed namespace":                {at: named("shop-h1", backing.Moved(long, 2)), uid: string(long), claim: "shop/data", want: true},
		"one in a namespace that is not its own":     {at: named("evil", backing.Moved(long, 1)), uid: string(long), claim: "shop/data"},
		"one of another UID":                         {at: named("shop", backing.Moved(long, 1)), uid: "u1", claim: "shop/data"},
		"a shadow in the namespace of another home":  {at: named("shop-h2", "data"), uid: "u1", claim: "shop/data"},
		"an annotation that is no name":              {at: named("shop", "data"), uid: "u1", claim: "data"},
		"no annotation":                              {at: named("shop", "data"), uid: "u1"},
		"no UID":                                     {at: named("shop", "data"), claim: "shop/data"},
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
	read, err := backing.RefOf(&corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{keys.Backing: ref.String()}}})
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
