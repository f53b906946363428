package route_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/virtualclass"
	"github.com/lodestone-storage/lodestone/provisioner/route"
)

const (
	wait = storagev1.VolumeBindingWaitForFirstConsumer
	now  = storagev1.VolumeBindingImmediate
)

func class(t *testing.T, parameters map[string]string) virtualclass.Class {
	t.Helper()
	parsed, err := virtualclass.Parse(&storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: "lodestone"}, Provisioner: keys.Driver, VolumeBindingMode: ptr.To(wait), Parameters: parameters})
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
func known() route.Cluster {
	standard := offer("standard", wait)
	standard.Default = true
	return route.Cluster{Known: true, Offered: []v1alpha1.OfferedClass{standard, offer("fast", now)}}
}

type row struct {
	node       *corev1.Node
	parameters map[string]string
	claim      *corev1.PersistentVolumeClaim
	closed     bool   // the namespace is not offloaded
	only       string // the clusters that the namespace lists
	cluster    route.Cluster
}

// namespace is that of the claim.
func (r row) namespace() *corev1.Namespace {
	namespace := &corev1.Namespace{}
	if !r.closed {
		namespace.Labels = map[string]string{keys.Offload: keys.OffloadEnabled}
	}
	if r.only != "" {
		namespace.Annotations = map[string]string{keys.OffloadClusters: r.only}
	}
	return namespace
}

func (r row) to(t *testing.T) (route.Route, error) {
	t.Helper()
	if r.claim == nil {
		r.claim = claim(nil)
	}
	return route.To(route.Input{
		Claim: r.claim, Class: class(t, r.parameters), Node: r.node, Namespace: r.namespace(),
		Cluster: func(string) route.Cluster { return r.cluster },
	})
}

func TestTo(t *testing.T) {
	for name, test := range map[string]struct {
		row
		cluster, class string
		deferred       bool
	}{
		"a node at home gets a twin of the default class": {
			row: row{node: node(keys.Home), cluster: known()}, cluster: keys.Home, class: "standard", deferred: true},
		"a node at home gets a twin of the local class": {
			row: row{node: node(keys.Home), cluster: known(), parameters: map[string]string{keys.LocalClass: "fast"}}, cluster: keys.Home, class: "fast"},
		"a node at home needs no offloaded namespace": {
			row: row{node: node(keys.Home), cluster: known(), closed: true}, cluster: keys.Home, class: "standard", deferred: true},
		"a virtual node gets a shadow in its cluster": {
			row: row{node: node("west"), cluster: known()}, cluster: "west", class: "standard", deferred: true},
		"a namespace that lists the cluster may use it": {
			row: row{node: node("west"), cluster: known(), only: "east, west"}, cluster: "west", class: "standard", deferred: true},
		"a remote class goes before the default": {
			row: row{node: node("west"), cluster: known(), parameters: map[string]string{keys.RemoteClass: "fast"}}, cluster: "west", class: "fast"},
		"what the RemoteCluster prefers goes before the default": {
			row:     row{node: node("west"), cluster: route.Cluster{Known: true, StorageClassName: "fast", Offered: known().Offered}},
			cluster: "west", class: "fast"},
		"what the virtual class names goes before what the RemoteCluster prefers": {
			row: row{node: node("west"), cluster: route.Cluster{Known: true, StorageClassName: "fast", Offered: known().Offered},
				parameters: map[string]string{keys.RemoteClass: "standard"}},
			cluster: "west", class: "standard", deferred: true},
		"what the claim asks for goes before all": {
			row: row{node: node("west"), cluster: known(), claim: claim(map[string]string{keys.Class: "fast"}),
				parameters: map[string]string{keys.RemoteClass: "standard", keys.Classes: "fast"}},
			cluster: "west", class: "fast"},
		"a static class that binds at once will do at home": {
			row:     row{node: node(keys.Home), cluster: route.Cluster{Known: true, Offered: []v1alpha1.OfferedClass{{Name: "nfs", Default: true, Static: true, BindingMode: now}}}},
			cluster: keys.Home, class: "nfs"},
		"a static class that waits will do in a remote cluster, where pods use the claim": {
			row:     row{node: node("west"), cluster: route.Cluster{Known: true, Offered: []v1alpha1.OfferedClass{{Name: "local", Default: true, Static: true, BindingMode: wait}}}},
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
	only := func(c v1alpha1.OfferedClass) route.Cluster {
		c.Default = true
		return route.Cluster{Known: true, Offered: []v1alpha1.OfferedClass{c}}
	}
	for name, test := range map[string]struct {
		row
		reason, says, node string
	}{
		"a cluster that the class leaves out": {
			row:    row{node: node("west"), cluster: known(), parameters: map[string]string{keys.Clusters: "east"}},
			reason: "ClusterNotAllowed", says: keys.Clusters},
		"home where the class leaves it out": {
			row:    row{node: node(keys.Home), cluster: known(), parameters: map[string]string{keys.Clusters: "west"}},
			reason: "ClusterNotAllowed", says: `"home"`},
		"a label of a cluster that nobody knows": {
			row: row{node: node("west")}, reason: "UnknownCluster", says: "RemoteCluster"},
		"a cluster that is leaving": {
			row: row{node: node("west"), cluster: leaving}, reason: "ClusterLeaving", says: "use another"},
		"a namespace that is not offloaded": {
			row: row{node: node("west"), cluster: known(), closed: true}, reason: "NotOffloaded", says: keys.Offload},
		"a namespace that lists another cluster": {
			row: row{node: node("west"), cluster: known(), only: "east, north"}, reason: "NotOpen", says: `"east, north"`},
		"a real class that the cluster does not have": {
			row:    row{node: node("west"), cluster: known(), parameters: map[string]string{keys.RemoteClass: "gold"}},
			reason: route.NoRealClass, says: `"gold"`},
		"a cluster without a default class": {
			row:    row{node: node("west"), cluster: route.Cluster{Known: true, Offered: []v1alpha1.OfferedClass{offer("fast", now)}}},
			reason: route.NoRealClass, says: "default"},
		"home without classes": {
			row: row{node: node(keys.Home), cluster: route.Cluster{Known: true}}, reason: route.NoRealClass, says: "the home cluster"},
		"a static class at home that only the scheduler binds": {
			row:    row{node: node(keys.Home), cluster: only(v1alpha1.OfferedClass{Name: "local", Static: true, BindingMode: wait})},
			reason: "StaticClass", says: `"local"`},
		"a class at home whose secrets depend on the namespace": {
			row:    row{node: node(keys.Home), cluster: only(v1alpha1.OfferedClass{Name: "vault", Templated: true, BindingMode: now})},
			reason: "TemplatedClass", says: `"vault"`},
		"a node whose label is empty, alone": {
			row:    row{node: &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1", Labels: map[string]string{keys.Cluster: ""}}}, cluster: known()},
			reason: "InvalidNodeLabel", says: "remove the label", node: "node-1"},
		"a node that is labelled as home, alone": {
			row:    row{node: &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1", Labels: map[string]string{keys.Cluster: keys.Home}}}, cluster: known()},
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
		"a plain claim is fine":                     {},
		"an empty attributes class is fine":         {spec: corev1.PersistentVolumeClaimSpec{VolumeAttributesClassName: ptr.To("")}},
		"a selector cannot be honoured":             {spec: corev1.PersistentVolumeClaimSpec{Selector: &metav1.LabelSelector{}}, says: "spec.selector"},
		"an attributes class is passed on":          {spec: corev1.PersistentVolumeClaimSpec{VolumeAttributesClassName: ptr.To("gold")}},
		"a copy of a claim is fine":                 {spec: corev1.PersistentVolumeClaimSpec{DataSource: &corev1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: "data"}}},
		"a snapshot is fine":                        {spec: corev1.PersistentVolumeClaimSpec{DataSource: &corev1.TypedLocalObjectReference{APIGroup: ptr.To("snapshot.storage.k8s.io"), Kind: "VolumeSnapshot", Name: "friday"}}},
		"what only a populator knows would be lost": {spec: corev1.PersistentVolumeClaimSpec{DataSourceRef: &corev1.TypedObjectReference{APIGroup: ptr.To("example.com"), Kind: "Image", Name: "base"}}, says: `Image "base"`},
	} {
		t.Run(name, func(t *testing.T) {
			c := claim(nil)
			c.Spec = test.spec
			for who, err := range map[string]error{
				"Validate": route.Validate(c),
				"To": func() error {
					_, err := row{node: node(keys.Home), cluster: known(), claim: c}.to(t)
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
		_, err := row{node: node(cluster), cluster: known(), claim: claim(map[string]string{keys.Class: "fast"})}.to(t)
		var invalid *route.Invalid
		require.ErrorAs(t, err, &invalid)
		assert.Contains(t, invalid.Message, keys.Classes)
	}
}
