package route_test

import (
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
	"github.com/lodestone-storage/lodestone/pkg/backing"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/virtualclass"
	"github.com/lodestone-storage/lodestone/provisioner/claims/route"
)

const (
	waits  = storagev1.VolumeBindingWaitForFirstConsumer
	atOnce = storagev1.VolumeBindingImmediate
)

func class(t *testing.T, parameters map[string]string) virtualclass.Class {
	t.Helper()
	parsed, err := virtualclass.Parse(&storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: "lodestone"}, Provisioner: keys.Driver, VolumeBindingMode: ptr.To(waits), Parameters: parameters})
	require.NoError(t, err)
	return parsed
}

func node(cluster string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}}
	if cluster != keys.Home {
		n.Labels = map[string]string{keys.Cluster: cluster}
	}
	return n
}

func claim(annotations map[string]string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "data", Annotations: annotations}}
}

func offer(name string, mode storagev1.VolumeBindingMode) v1alpha1.OfferedClass {
	return v1alpha1.OfferedClass{Name: name, BindingMode: mode}
}

// known is a cluster with two classes, the first of which is its default.
func known() route.ClusterClasses {
	standard := offer("standard", waits)
	standard.Default = true
	return route.ClusterClasses{Known: true, Offered: []v1alpha1.OfferedClass{standard, offer("fast", atOnce)}}
}

type routeRow struct {
	node       *corev1.Node
	parameters map[string]string
	claim      *corev1.PersistentVolumeClaim
	closed     bool   // the namespace is not opened for offloading
	only       string // the clusters that the namespace lists
	cluster    route.ClusterClasses
}

// namespace is the claim's namespace.
func (r routeRow) namespace() *corev1.Namespace {
	namespace := &corev1.Namespace{}
	if !r.closed {
		namespace.Labels = map[string]string{keys.Offload: keys.OffloadEnabled}
	}
	if r.only != "" {
		namespace.Annotations = map[string]string{keys.OffloadClusters: r.only}
	}
	return namespace
}

func (r routeRow) to(t *testing.T) (route.Route, error) {
	t.Helper()
	if r.claim == nil {
		r.claim = claim(nil)
	}
	return route.To(route.Input{
		Claim: r.claim, Class: class(t, r.parameters), Node: r.node, Namespace: r.namespace(),
		Cluster: func(string) route.ClusterClasses { return r.cluster },
	})
}

func TestTo(t *testing.T) {
	for name, test := range map[string]struct {
		routeRow
		cluster, class string
		deferred       bool
	}{
		"a node at home gets a twin of the default class": {
			routeRow: routeRow{node: node(keys.Home), cluster: known()}, cluster: keys.Home, class: "standard", deferred: true},
		"a node at home gets a twin of the local class": {
			routeRow: routeRow{node: node(keys.Home), cluster: known(), parameters: map[string]string{keys.LocalClass: "fast"}}, cluster: keys.Home,
			class: "fast"},
		"a node at home needs no offloaded namespace": {
			routeRow: routeRow{node: node(keys.Home), cluster: known(), closed: true}, cluster: keys.Home, class: "standard", deferred: true},
		"a virtual node gets a shadow in its cluster": {
			routeRow: routeRow{node: node("west"), cluster: known()}, cluster: "west", class: "standard", deferred: true},
		"a namespace that lists the cluster may use it": {
			routeRow: routeRow{node: node("west"), cluster: known(), only: "east, west"}, cluster: "west", class: "standard", deferred: true},
		"a remote class goes before the default": {
			routeRow: routeRow{node: node("west"), cluster: known(), parameters: map[string]string{keys.RemoteClass: "fast"}}, cluster: "west",
			class: "fast"},
		"what the RemoteCluster prefers goes before the default": {
			routeRow: routeRow{node: node("west"), cluster: route.ClusterClasses{Known: true, StorageClassName: "fast", Offered: known().Offered}},
			cluster:  "west", class: "fast"},
		"what the virtual class names goes before what the RemoteCluster prefers": {
			routeRow: routeRow{node: node("west"), cluster: route.ClusterClasses{Known: true, StorageClassName: "fast", Offered: known().Offered},
				parameters: map[string]string{keys.RemoteClass: "standard"}},
			cluster: "west", class: "standard", deferred: true},
		"what the claim asks for goes before all": {
			routeRow: routeRow{node: node("west"), cluster: known(), claim: claim(map[string]string{keys.Class: "fast"}),
				parameters: map[string]string{keys.RemoteClass: "standard", keys.Classes: "fast"}},
			cluster: "west", class: "fast"},
		"a static class that binds at once will do at home": {
			routeRow: routeRow{node: node(keys.Home),
				cluster: route.ClusterClasses{Known: true,
					Offered: []v1alpha1.OfferedClass{{Name: "nfs", Default: true, Static: true, BindingMode: atOnce}}}},
			cluster: keys.Home, class: "nfs"},
		"a static class that waits will do in a remote cluster, where pods use the claim": {
			routeRow: routeRow{node: node("west"),
				cluster: route.ClusterClasses{Known: true,
					Offered: []v1alpha1.OfferedClass{{Name: "local", Default: true, Static: true, BindingMode: waits}}}},
			cluster: "west", class: "local", deferred: true},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := test.to(t)
			require.NoError(t, err)
			assert.Equal(t, test.cluster, got.Cluster)
			assert.Equal(t, test.class, got.Class.Name)
			assert.Equal(t, "node-1", got.Node)
			assert.Equal(t, test.deferred, got.Deferred())
		})
	}
}

func TestToRefuses(t *testing.T) {
	leaving := known()
	leaving.Leaving = true
	only := func(c v1alpha1.OfferedClass) route.ClusterClasses {
		c.Default = true
		return route.ClusterClasses{Known: true, Offered: []v1alpha1.OfferedClass{c}}
	}
	for name, test := range map[string]struct {
		routeRow
		reason, says, node string
	}{
		"a cluster that the class leaves out": {
			routeRow: routeRow{node: node("west"), cluster: known(), parameters: map[string]string{keys.Clusters: "east"}},
			reason:   "ClusterNotAllowed", says: keys.Clusters},
		"home where the class leaves it out": {
			routeRow: routeRow{node: node(keys.Home), cluster: known(), parameters: map[string]string{keys.Clusters: "west"}},
			reason:   "ClusterNotAllowed", says: `"home"`},
		"a label of a cluster that nobody knows": {
			routeRow: routeRow{node: node("west")}, reason: "UnknownCluster", says: "RemoteCluster"},
		"a cluster that is leaving": {
			routeRow: routeRow{node: node("west"), cluster: leaving}, reason: "ClusterLeaving", says: "use another"},
		"a namespace that is not offloaded": {
			routeRow: routeRow{node: node("west"), cluster: known(), closed: true}, reason: "NotOffloaded", says: keys.Offload},
		"a namespace that lists another cluster": {
			routeRow: routeRow{node: node("west"), cluster: known(), only: "east, north"}, reason: "NotOpen", says: `"east, north"`},
		"a real class that the cluster does not have": {
			routeRow: routeRow{node: node("west"), cluster: known(), parameters: map[string]string{keys.RemoteClass: "gold"}},
			reason:   route.NoRealClass, says: `"gold"`},
		"a cluster without a default class": {
			routeRow: routeRow{node: node("west"),
				cluster: route.ClusterClasses{Known: true, Offered: []v1alpha1.OfferedClass{offer("fast", atOnce)}}},
			reason: route.NoRealClass, says: "default"},
		"home without classes": {
			routeRow: routeRow{node: node(keys.Home), cluster: route.ClusterClasses{Known: true}}, reason: route.NoRealClass,
			says: "the home cluster"},
		"a static class at home that only the scheduler binds": {
			routeRow: routeRow{node: node(keys.Home), cluster: only(v1alpha1.OfferedClass{Name: "local", Static: true, BindingMode: waits})},
			reason:   "StaticClass", says: `"local"`},
		"a class at home whose secrets depend on the namespace": {
			routeRow: routeRow{node: node(keys.Home), cluster: only(v1alpha1.OfferedClass{Name: "vault", Templated: true, BindingMode: atOnce})},
			reason:   "TemplatedClass", says: `"vault"`},
		"a node whose label is empty, alone": {
			routeRow: routeRow{node: &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1", Labels: map[string]string{keys.Cluster: ""}}},
				cluster: known()},
			reason: "InvalidNodeLabel", says: "remove the label", node: "node-1"},
		"a node that is labelled as home, alone": {
			routeRow: routeRow{node: &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1", Labels: map[string]string{keys.Cluster: keys.Home}}},
				cluster: known()},
			reason: "InvalidNodeLabel", says: "remove the label", node: "node-1"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := test.to(t)
			var refused *route.Refused
			require.ErrorAs(t, err, &refused)
			assert.Equal(t, test.reason, refused.Reason)
			assert.Contains(t, refused.Error(), test.says)
			assert.Equal(t, test.node, refused.Node)
		})
	}
}

func TestValidate(t *testing.T) {
	for name, test := range map[string]struct {
		spec corev1.PersistentVolumeClaimSpec
		says string
	}{
		"a plain claim is fine":             {},
		"an empty attributes class is fine": {spec: corev1.PersistentVolumeClaimSpec{VolumeAttributesClassName: ptr.To("")}},
		"a selector cannot be honoured": {spec: corev1.PersistentVolumeClaimSpec{Selector: &metav1.LabelSelector{}},
			says: "spec.selector"},
		"an attributes class is passed on": {spec: corev1.PersistentVolumeClaimSpec{VolumeAttributesClassName: ptr.To("gold")}},
		"a copy of a claim is fine": {
			spec: corev1.PersistentVolumeClaimSpec{DataSource: &corev1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: "data"}},
		},
		"a snapshot is fine": {
			spec: corev1.PersistentVolumeClaimSpec{DataSource: &corev1.TypedLocalObjectReference{APIGroup: ptr.To("snapshot.storage.k8s.io"),
				Kind: "VolumeSnapshot", Name: "friday"}},
		},
		"what only a populator knows would be lost": {
			spec: corev1.PersistentVolumeClaimSpec{DataSourceRef: &corev1.TypedObjectReference{APIGroup: ptr.To("example.com"), Kind: "Image",
				Name: "base"}}, says: `Image "base"`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := claim(nil)
			c.Spec = test.spec
			for who, err := range map[string]error{
				"Validate": route.ValidateClaim(c),
				"To": func() error {
					_, err := routeRow{node: node(keys.Home), cluster: known(), claim: c}.to(t)
					return err
				}(),
			} {
				if test.says == "" {
					require.NoError(t, err, who)
					continue
				}
				var invalid *route.Invalid
				require.ErrorAs(t, err, &invalid, who)
				assert.Contains(t, invalid.Error(), test.says, who)
			}
		})
	}
}

func TestToOfAClassThatIsNotListedIsInvalidEverywhere(t *testing.T) {
	for _, cluster := range []string{keys.Home, "west"} {
		_, err := routeRow{node: node(cluster), cluster: known(), claim: claim(map[string]string{keys.Class: "fast"})}.to(t)
		var invalid *route.Invalid
		require.ErrorAs(t, err, &invalid)
		assert.Contains(t, invalid.Message, keys.Classes)
	}
}

func TestANodeOutsideTheTopologiesOfTheRealClassIsRefusedAlone(t *testing.T) {
	zonal := &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: "zonal"}, Provisioner: "disk.example.com", VolumeBindingMode: ptr.To(waits),
		AllowedTopologies: []corev1.TopologySelectorTerm{{MatchLabelExpressions: []corev1.TopologySelectorLabelRequirement{{Key: "zone",
			Values: []string{"a"}}}}},
	}
	cluster := route.HomeClasses([]*storagev1.StorageClass{zonal})
	given := routeRow{node: node(keys.Home), cluster: cluster, parameters: map[string]string{keys.LocalClass: "zonal"}}
	_, err := given.to(t)
	var refused *route.Refused
	require.ErrorAs(t, err, &refused)
	assert.Equal(t, "NotInTopology", refused.Reason)
	assert.Equal(t, "node-1", refused.Node)
	assert.Contains(t, refused.Message, `"zonal"`)

	given.node.Labels = map[string]string{"zone": "a"}
	to, err := given.to(t)
	require.NoError(t, err)
	assert.Equal(t, "zonal", to.Class.Name)
	assert.True(t, to.Deferred())
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
		// provisioner is the program that may create the volume at once.
		provisioner string
	}{
		"a twin of a class that waits carries the selected node": {route: route.Route{Cluster: keys.Home, Node: "node-1", Class: waits},
			selected: "node-1", provisioner: "disk"},
		"a twin of a class that binds at once does not": {route: route.Route{Cluster: keys.Home, Node: "node-1", Class: atOnce},
			provisioner: "disk"},
		"a shadow never does, for nodes there have names of their own": {route: route.Route{Cluster: "west", Node: "node-1", Class: waits}},
		"a shadow that binds at once may be provisioned at once": {route: route.Route{Cluster: "west", Node: "node-1", Class: atOnce},
			provisioner: "disk"},
		"a provisioner that may have another name is left to others": {route: route.Route{Cluster: keys.Home, Node: "node-1", Class: inTree}},
	} {
		t.Run(name, func(t *testing.T) {
			claim := virtualClaim()
			before := claim.DeepCopy()
			b := route.BackingClaim(claim, test.route, types.NamespacedName{Namespace: "there", Name: "name"}, "h1")
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
	b := route.BackingClaim(claim,
		route.Route{Cluster: keys.Home, Source: types.NamespacedName{Namespace: "lodestone-storage", Name: "pvc-s1"}},
		types.NamespacedName{Namespace: "lodestone-storage", Name: "pvc-u1"}, "h1")
	assert.Equal(t, &corev1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: "pvc-s1"}, b.Spec.DataSource,
		"the source's twin, not the name that the user wrote")
	assert.Nil(t, b.Spec.DataSourceRef)
	assert.Equal(t, "pvc-s1", backing.CopyOf(b))
	assert.Equal(t, "gold", backing.Attributes(b))

	claim.Spec.VolumeAttributesClassName = ptr.To("")
	b = route.BackingClaim(claim, route.Route{Cluster: keys.Home}, types.NamespacedName{Namespace: "lodestone-storage", Name: "pvc-u1"},
		"h1")
	assert.Nil(t, b.Spec.DataSource, "what the route does not name is not asked for")
	assert.Nil(t, b.Spec.VolumeAttributesClassName)
}

func TestEphemeralVolumeGoesOnlyWhereCopiesOfPodsUseItsClaim(t *testing.T) {
	class, err := virtualclass.Parse(&storagev1.StorageClass{
		Provisioner: keys.Driver, VolumeBindingMode: ptr.To(storagev1.VolumeBindingWaitForFirstConsumer),
	})
	require.NoError(t, err)
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "app", Name: "web-scratch",
		OwnerReferences: []metav1.OwnerReference{
			{APIVersion: "v1", Kind: "Pod", Name: "web", Controller: ptr.To(true)},
		}}}
	opened := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{keys.Offload: keys.OffloadEnabled}}}
	to := func(node *corev1.Node) (route.Route, error) {
		return route.To(route.Input{Claim: claim, Class: class, Node: node, Namespace: opened,
			Cluster: func(string) route.ClusterClasses {
				return route.ClusterClasses{Known: true, Offered: []v1alpha1.OfferedClass{{Name: "real", Default: true}}}
			}})
	}
	_, err = to(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "west", Labels: map[string]string{keys.Cluster: "west"}}})
	var refused *route.Refused
	require.ErrorAs(t, err, &refused)
	assert.Equal(t, "EphemeralVolume", refused.Reason)
	assert.Contains(t, refused.Message, `pod "web"`)

	route, err := to(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "west",
		Labels: map[string]string{keys.Cluster: "west", keys.VirtualNodeRole: ""}}})
	require.NoError(t, err)
	assert.Equal(t, "west", route.Cluster)

	route, err = to(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "home-1"}})
	require.NoError(t, err)
	assert.Equal(t, keys.Home, route.Cluster)
}

func TestSourcesThatAreUnderstood(t *testing.T) {
	const kind = "PersistentVolumeClaim"
	local := func(kind, name string) corev1.PersistentVolumeClaimSpec {
		return corev1.PersistentVolumeClaimSpec{DataSource: &corev1.TypedLocalObjectReference{Kind: kind, Name: name}}
	}
	ref := func(r corev1.TypedObjectReference) corev1.PersistentVolumeClaimSpec {
		return corev1.PersistentVolumeClaimSpec{DataSourceRef: &r}
	}
	for name, test := range map[string]struct {
		spec corev1.PersistentVolumeClaimSpec
		want string
		// snapshot and replica are what the claim is to be made from.
		snapshot, replica, says string
	}{
		"an empty claim":                  {},
		"a copy of a claim":               {spec: local(kind, "source"), want: "source"},
		"a copy of a claim, by reference": {spec: ref(corev1.TypedObjectReference{Kind: kind, Name: "source"}), want: "source"},
		"an empty group is none": {spec: ref(corev1.TypedObjectReference{APIGroup: ptr.To(""), Kind: kind, Name: "source"}),
			want: "source"},
		"its own namespace, named": {spec: ref(corev1.TypedObjectReference{Kind: kind, Name: "source", Namespace: ptr.To("shop")}),
			want: "source"},
		"a claim of another namespace": {spec: ref(corev1.TypedObjectReference{Kind: kind, Name: "source", Namespace: ptr.To("bank")}),
			says: `namespace "bank"`},
		"a source without a name": {spec: local(kind, ""), says: "worse than none"},
		"a snapshot": {spec: ref(corev1.TypedObjectReference{APIGroup: ptr.To("snapshot.storage.k8s.io"),
			Kind: "VolumeSnapshot", Name: "friday"}), snapshot: "friday"},
		"a snapshot, by the older field": {
			spec: corev1.PersistentVolumeClaimSpec{DataSource: &corev1.TypedLocalObjectReference{APIGroup: ptr.To("snapshot.storage.k8s.io"),
				Kind: "VolumeSnapshot", Name: "friday"}}, snapshot: "friday",
		},
		"a snapshot of another namespace": {spec: ref(corev1.TypedObjectReference{APIGroup: ptr.To("snapshot.storage.k8s.io"),
			Kind: "VolumeSnapshot", Name: "friday", Namespace: ptr.To("bank")}), says: `namespace "bank"`},
		"a version of a replica": {spec: ref(corev1.TypedObjectReference{APIGroup: ptr.To("lodestone.dev"), Kind: "VolumeReplica",
			Name: "data-west"}), replica: "data-west"},
		"a replica of another namespace": {spec: ref(corev1.TypedObjectReference{APIGroup: ptr.To("lodestone.dev"), Kind: "VolumeReplica",
			Name: "data-west", Namespace: ptr.To("bank")}), says: `namespace "bank"`},
		"a move is none": {spec: ref(corev1.TypedObjectReference{APIGroup: ptr.To("lodestone.dev"), Kind: "VolumeMove", Name: "data"}),
			says: `VolumeMove "data"`},
		"a snapshot of no API group": {spec: local("VolumeSnapshot", "friday"), says: `VolumeSnapshot "friday"`},
		"another kind that is called the same": {spec: ref(corev1.TypedObjectReference{APIGroup: ptr.To("example.com"), Kind: kind,
			Name: "source"}), says: "a claim, a VolumeSnapshot or a VolumeReplica only"},
	} {
		t.Run(name, func(t *testing.T) {
			c := claim(nil)
			c.Spec = test.spec
			got, err := route.CopyOf(c)
			assert.Equal(t, test.want, got)
			assert.Equal(t, test.snapshot, route.SnapshotOf(c))
			assert.Equal(t, test.replica, route.ReplicaOf(c))
			if test.says == "" {
				require.NoError(t, err)
				return
			}
			var invalid *route.Invalid
			require.ErrorAs(t, err, &invalid)
			assert.Contains(t, invalid.Message, test.says)
		})
	}
}
