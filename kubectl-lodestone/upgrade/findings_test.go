package upgrade

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/confinement"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

func homeCluster(names ...string) *remotev1alpha1.HomeCluster {
	return &remotev1alpha1.HomeCluster{
		ObjectMeta: metav1.ObjectMeta{Name: "fleet"},
		Spec:       remotev1alpha1.HomeClusterSpec{Namespaces: remotev1alpha1.NamespacePolicy{Names: names}},
	}
}

func namespacesOf(home string, names ...string) (all []*corev1.Namespace) {
	for _, name := range names {
		all = append(all, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{keys.HomeID: home}}})
	}
	return all
}

func lines(findings []Finding) (all []string) {
	for _, finding := range findings {
		all = append(all, finding.String())
	}
	return all
}

func TestAHomeClusterThatListsNoNamespaces(t *testing.T) {
	for name, test := range map[string]struct {
		installation Installation
		want         []string
	}{
		"there is none": {},
		"it lists some": {installation: Installation{Homes: []*remotev1alpha1.HomeCluster{homeCluster("shop-*")}}},
		"all that it has end in its ID": {installation: Installation{
			Homes: []*remotev1alpha1.HomeCluster{homeCluster()}, Namespaces: namespacesOf("fleet", "shop-fleet", "web-fleet"),
		}},
		"it has none yet": {
			installation: Installation{Homes: []*remotev1alpha1.HomeCluster{homeCluster()}, Namespaces: namespacesOf("other", "shop")},
			want: []string{"HomeCluster fleet: it lists no namespaces and so may have those of any name; after the upgrade it keeps the 0 that " +
				"it has and gets new ones only if their names end in -fleet; list in its spec.namespaces.names the others that it may have, such " +
				"as shop-*, or '*' for any as until now"},
		},
		"it has some of home's names": {
			installation: Installation{
				Homes: []*remotev1alpha1.HomeCluster{homeCluster()}, Namespaces: namespacesOf("fleet", "web", "shop", "db-fleet"),
			},
			want: []string{"HomeCluster fleet: it lists no namespaces and so may have those of any name; after the upgrade it keeps the 3 that " +
				"it has and gets new ones only if their names end in -fleet; list in its spec.namespaces.names the others that it may have, such " +
				"as shop,web, or '*' for any as until now"},
		},
	} {
		t.Run(name, func(t *testing.T) { assert.Equal(t, test.want, lines(namesNotListed(test.installation))) })
	}
}

func TestAHomeClusterWithClaimsOfAClassWithVolumesOfTheOwner(t *testing.T) {
	claim := func(namespace, class, home string) *corev1.PersistentVolumeClaim {
		return &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: class, Labels: map[string]string{keys.HomeID: home}},
			Spec:       corev1.PersistentVolumeClaimSpec{StorageClassName: ptr.To(class)},
		}
	}
	given := func() Installation {
		volume := &corev1.PersistentVolume{Spec: corev1.PersistentVolumeSpec{StorageClassName: "pool"}}
		existing := namespacesOf("fleet", "old")
		existing[0].Labels[keys.ExistingVolumes] = keys.ExistingVolumesAllowed
		return Installation{
			Homes:      []*remotev1alpha1.HomeCluster{homeCluster("*")},
			Namespaces: append(namespacesOf("fleet", "shop"), existing...),
			Classes: []*storagev1.StorageClass{
				{ObjectMeta: metav1.ObjectMeta{Name: "fast"}, Provisioner: "disk"}, {ObjectMeta: metav1.ObjectMeta{Name: "pool"}, Provisioner: "disk"},
				{ObjectMeta: metav1.ObjectMeta{Name: "static"}, Provisioner: "kubernetes.io/no-provisioner"},
			},
			Volumes: []*corev1.PersistentVolume{volume},
			Claims: []*corev1.PersistentVolumeClaim{claim("shop", "fast", "fleet"), claim("shop", "pool", "fleet"), claim("shop", "pool", "fleet"),
				claim("shop", "static", ""), claim("old", "static", "fleet"), claim("elsewhere", "static", "other")},
		}
	}
	assert.Equal(t, []string{"HomeCluster fleet: it has claims of storage class pool, which has volumes without a claim or no provisioner; " +
		"after the upgrade new claims of it are refused; give those volumes a claimRef, or list pool in its spec.storageClasses with the other " +
		"classes that it may use"}, lines(classesNotAllowed(given())))

	listed := given()
	listed.Homes[0].Spec.StorageClasses = []string{"fast"}
	assert.Empty(t, classesNotAllowed(listed), "the owner has decided")
	claimed := given()
	claimed.Volumes[0].Spec.ClaimRef = &corev1.ObjectReference{Namespace: "shop", Name: "mine"}
	assert.Empty(t, classesNotAllowed(claimed))
}

// confined returns an installation of a remote cluster whose policy is that of the version, changed.
func confined(change func(*Installation)) Installation {
	built := confinement.Confinement{
		Policy:  &admissionv1.ValidatingAdmissionPolicy{Spec: admissionv1.ValidatingAdmissionPolicySpec{}},
		Binding: &admissionv1.ValidatingAdmissionPolicyBinding{},
	}
	i := Installation{Homes: []*remotev1alpha1.HomeCluster{homeCluster("*")}, Built: built, Confinement: built}
	if change != nil {
		change(&i)
	}
	return i
}

func TestWhatConfinesHomeClusters(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*Installation)
		says   string
	}{
		"it is that of the version": {},
		"it is missing": {change: func(i *Installation) { i.Confinement.Policy = nil },
			says: "ValidatingAdmissionPolicy lodestone-home is missing"},
		"its binding is missing": {change: func(i *Installation) { i.Confinement.Binding = nil },
			says: "ValidatingAdmissionPolicyBinding lodestone-home is missing"},
		"it is another": {change: func(i *Installation) {
			i.Confinement.Policy = &admissionv1.ValidatingAdmissionPolicy{Spec: admissionv1.ValidatingAdmissionPolicySpec{
				Validations: []admissionv1.Validation{{Expression: "true"}}}}
		}, says: "is another than this version of the plugin was built with"},
		"it may not be read": {change: func(i *Installation) { i.Confinement, i.Unread = confinement.Confinement{}, []string{policies} }},
		"there is no home cluster, so nothing to confine": {change: func(i *Installation) {
			i.Confinement, i.Homes = confinement.Confinement{}, nil
		}},
	} {
		t.Run(name, func(t *testing.T) {
			found := lines(Findings(confined(test.change)))
			if test.says == "" {
				assert.Empty(t, found)
				return
			}
			require.Len(t, found, 1)
			assert.Contains(t, found[0], test.says)
			assert.Contains(t, found[0], "apply all of deploy/remote")
		})
	}
}

func TestWhatIsAtHome(t *testing.T) {
	tolerant := func(name string) *appsv1.DaemonSet {
		set := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: name}}
		set.Spec.Template.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
		return set
	}
	virtual := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "west", Labels: map[string]string{keys.VirtualNodeRole: ""}}}
	remote := func(network v1alpha1.PodNetwork, ranges ...string) *v1alpha1.RemoteCluster {
		return &v1alpha1.RemoteCluster{ObjectMeta: metav1.ObjectMeta{Name: "west"},
			Spec: v1alpha1.RemoteClusterSpec{PodNetwork: network, PodCIDRs: ranges}}
	}
	for name, test := range map[string]struct {
		installation Installation
		says         string
	}{
		"a DaemonSet that tolerates every taint": {
			installation: Installation{DaemonSets: []*appsv1.DaemonSet{tolerant("proxy")}, Nodes: []*corev1.Node{virtual}},
			says:         "DaemonSets kube-system/proxy: they want a pod on virtual nodes",
		},
		"one that tolerates none": {installation: Installation{
			DaemonSets: []*appsv1.DaemonSet{{ObjectMeta: metav1.ObjectMeta{Name: "log"}}}, Nodes: []*corev1.Node{virtual}}},
		"one without a virtual node": {installation: Installation{DaemonSets: []*appsv1.DaemonSet{tolerant("proxy")}}},
		"a routed cluster without ranges": {installation: Installation{Remotes: []*v1alpha1.RemoteCluster{remote(v1alpha1.Routed)}},
			says: "RemoteCluster west: its podNetwork is Routed and it has no podCIDRs"},
		"a routed cluster with ranges": {installation: Installation{
			Remotes: []*v1alpha1.RemoteCluster{remote(v1alpha1.Routed, "10.244.0.0/16")}}},
		"a cluster apart": {installation: Installation{Remotes: []*v1alpha1.RemoteCluster{remote(v1alpha1.Isolated)}}},
	} {
		t.Run(name, func(t *testing.T) {
			found := lines(Findings(test.installation))
			if test.says == "" {
				assert.Empty(t, found)
				return
			}
			require.Len(t, found, 1)
			assert.Contains(t, found[0], test.says)
		})
	}
}

func TestForWhichHomeNamespaceANamespaceIs(t *testing.T) {
	made := func(recorded string) *corev1.Namespace {
		namespace := namespacesOf("fleet", "shop")[0]
		namespace.Annotations = map[string]string{keys.MadeFor: "fleet/shop"}
		if recorded != "" {
			namespace.Annotations[keys.HomeNamespaceUID] = recorded
		}
		return namespace
	}
	for name, test := range map[string]struct {
		namespace *corev1.Namespace
		asking    types.UID
		says      string
	}{
		"it is recorded":                     {namespace: made("u1"), asking: "u1"},
		"it is recorded, and nobody asks":    {namespace: made("u1")},
		"it is not recorded":                 {namespace: made(""), asking: "u1", says: "without a record of its UID"},
		"another one asks":                   {namespace: made("u1"), asking: "u2", says: "kubectl lodestone rebind namespace shop"},
		"the agent did not make it for home": {namespace: namespacesOf("fleet", "shop")[0]},
	} {
		t.Run(name, func(t *testing.T) {
			i := confined(func(i *Installation) { i.Namespaces = []*corev1.Namespace{test.namespace} })
			if test.asking != "" {
				i.Requests = []*remotev1alpha1.NamespaceRequest{{
					ObjectMeta: metav1.ObjectMeta{Namespace: "lodestone-home-fleet", Name: "shop"},
					Spec:       remotev1alpha1.NamespaceRequestSpec{HomeNamespace: "shop", HomeNamespaceUID: test.asking},
				}}
			}
			found := lines(Findings(i))
			if test.says == "" {
				assert.Empty(t, found)
				return
			}
			require.Len(t, found, 1)
			assert.Contains(t, found[0], test.says)
		})
	}
}

func TestVirtualNodesThatGetAZone(t *testing.T) {
	node := func(zone string) *corev1.Node {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "west", Labels: map[string]string{keys.Cluster: "west"}}}
		if zone != "" {
			node.Labels[corev1.LabelTopologyZone] = zone
		}
		return node
	}
	west := func(zone string) []*v1alpha1.RemoteCluster {
		r := &v1alpha1.RemoteCluster{ObjectMeta: metav1.ObjectMeta{Name: "west"}}
		r.Spec.Topology.Zone = zone
		return []*v1alpha1.RemoteCluster{r}
	}
	over := func(key string) *corev1.Pod {
		return &corev1.Pod{Spec: corev1.PodSpec{TopologySpreadConstraints: []corev1.TopologySpreadConstraint{{TopologyKey: key}}}}
	}
	spread, overHosts := over(corev1.LabelTopologyZone), over(corev1.LabelHostname)
	apart := &corev1.Pod{Spec: corev1.PodSpec{Affinity: &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
		PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{
			{PodAffinityTerm: corev1.PodAffinityTerm{TopologyKey: corev1.LabelTopologyZone}}}}}}}
	for name, test := range map[string]struct {
		installation Installation
		found        bool
	}{
		"pods are spread over zones": {Installation{Remotes: west(""), Nodes: []*corev1.Node{node("")}, Pods: []*corev1.Pod{spread}}, true},
		"pods are kept apart":        {Installation{Remotes: west(""), Nodes: []*corev1.Node{node("")}, Pods: []*corev1.Pod{apart}}, true},
		"no pod heeds zones":         {Installation{Remotes: west(""), Nodes: []*corev1.Node{node("")}, Pods: []*corev1.Pod{overHosts}}, false},
		"it has a zone":              {Installation{Remotes: west(""), Nodes: []*corev1.Node{node("z")}, Pods: []*corev1.Pod{spread}}, false},
		"its zone is set":            {Installation{Remotes: west("z"), Nodes: []*corev1.Node{node("")}, Pods: []*corev1.Pod{spread}}, false},
		"nodes of others":            {Installation{Nodes: []*corev1.Node{node("")}, Pods: []*corev1.Pod{spread}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			found := lines(Findings(test.installation))
			if !test.found {
				assert.Empty(t, found)
				return
			}
			assert.Equal(t, []string{"Node west: it has no zone; after the upgrade it has that of the nodes of west, or west where these are in " +
				"several, and counts for pods that are spread over zones or kept apart by them; set spec.topology.zone of RemoteCluster west if " +
				"it is to be another"},
				found)
		})
	}
}
