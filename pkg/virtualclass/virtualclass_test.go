package virtualclass_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/virtualclass"
)

func virtual(parameters map[string]string) *storagev1.StorageClass {
	return &storagev1.StorageClass{
		ObjectMeta:        metav1.ObjectMeta{Name: "lodestone"},
		Provisioner:       keys.Driver,
		VolumeBindingMode: ptr.To(storagev1.VolumeBindingWaitForFirstConsumer),
		Parameters:        parameters,
	}
}

func TestIs(t *testing.T) {
	assert.True(t, virtualclass.Is(virtual(nil)))
	assert.False(t, virtualclass.Is(&storagev1.StorageClass{Provisioner: "disk.csi.dev"}))
	assert.False(t, virtualclass.Is(nil))
}

func TestParseRefusesWhatCannotWork(t *testing.T) {
	immediate, unset := virtual(nil), virtual(nil)
	immediate.VolumeBindingMode = ptr.To(storagev1.VolumeBindingImmediate)
	unset.VolumeBindingMode = nil
	for name, test := range map[string]struct {
		class *storagev1.StorageClass
		want  string
	}{
		"a class that binds at once":     {class: immediate, want: "volumeBindingMode"},
		"a class without a binding mode": {class: unset, want: "volumeBindingMode"},
		"an unknown parameter":           {class: virtual(map[string]string{"tier": "gold"}), want: `unknown parameter "tier"`},
		"a misspelt parameter": {class: virtual(map[string]string{"lodestone.dev/localclass": "fast"}),
			want: `"lodestone.dev/localclass"`},
		"a remote class of a cluster without ID":  {class: virtual(map[string]string{keys.RemoteClass + ".": "fast"}), want: "unknown parameter"},
		"of several unknown ones always the same": {class: virtual(map[string]string{"b": "", "a": "", "c": ""}), want: `"a"`},
		"a list of clusters that names none":      {class: virtual(map[string]string{keys.Clusters: " , "}), want: keys.Clusters},
		"an unknown rule for siblings": {class: virtual(map[string]string{keys.Siblings: "Spread"}),
			want: `"Spread" in parameter lodestone.dev/siblings: create it anew with one of pack, spread, ignore`},
		"an empty rule for siblings": {class: virtual(map[string]string{keys.Siblings: ""}), want: keys.Siblings},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := virtualclass.Parse(test.class)
			require.Error(t, err)
			assert.Contains(t, err.Error(), test.want)
			assert.Contains(t, err.Error(), `"lodestone"`, "the class is named")
		})
	}
}

func TestParseKeepsReclaimPolicyAndMountOptions(t *testing.T) {
	class := virtual(nil)
	class.MountOptions = []string{"noatime"}
	parsed, err := virtualclass.Parse(class)
	require.NoError(t, err)
	assert.Equal(t, "lodestone", parsed.Name)
	assert.Equal(t, []string{"noatime"}, parsed.MountOptions)
	assert.Equal(t, corev1.PersistentVolumeReclaimDelete, parsed.ReclaimPolicy, "as Kubernetes has it by default")

	class.ReclaimPolicy = ptr.To(corev1.PersistentVolumeReclaimRetain)
	parsed, err = virtualclass.Parse(class)
	require.NoError(t, err)
	assert.Equal(t, corev1.PersistentVolumeReclaimRetain, parsed.ReclaimPolicy)
}

func TestAllows(t *testing.T) {
	for name, test := range map[string]struct {
		parameters map[string]string
		yes, no    []string
	}{
		"without the parameter every cluster": {yes: []string{keys.Home, "west", "east"}},
		"with it only those that it lists": {parameters: map[string]string{keys.Clusters: "home, west"}, yes: []string{keys.Home, "west"},
			no: []string{"east", ""}},
		"home is left out where it is not listed": {parameters: map[string]string{keys.Clusters: "west"}, yes: []string{"west"},
			no: []string{keys.Home}},
	} {
		t.Run(name, func(t *testing.T) {
			class, err := virtualclass.Parse(virtual(test.parameters))
			require.NoError(t, err)
			for _, cluster := range test.yes {
				assert.True(t, class.Allows(cluster), cluster)
			}
			for _, cluster := range test.no {
				assert.False(t, class.Allows(cluster), cluster)
			}
		})
	}
}

func TestSiblings(t *testing.T) {
	assert.Equal(t, keys.SiblingsIgnore, virtualclass.Class{}.Siblings(), "kube-scheduler spreads them unless the class says otherwise")
	for _, rule := range []string{keys.SiblingsPack, keys.SiblingsSpread, keys.SiblingsIgnore} {
		class, err := virtualclass.Parse(virtual(map[string]string{keys.Siblings: rule}))
		require.NoError(t, err)
		assert.Equal(t, rule, class.Siblings())
	}
}

func TestRealClassName(t *testing.T) {
	all := map[string]string{
		keys.LocalClass: "fast", keys.RemoteClass: "standard", keys.RemoteClass + ".west": "ssd", keys.Classes: "gold, silver",
	}
	for name, test := range map[string]struct {
		parameters  map[string]string
		cluster     string
		annotations map[string]string
		want        string
		err         string
	}{
		"without parameters home chooses itself":             {cluster: keys.Home},
		"without parameters a remote cluster chooses itself": {cluster: "west"},
		"home has the local class":                           {parameters: all, cluster: keys.Home, want: "fast"},
		"a remote cluster has the remote class":              {parameters: all, cluster: "east", want: "standard"},
		"a remote cluster may have one of its own":           {parameters: all, cluster: "west", want: "ssd"},
		"the local class does not count elsewhere":           {parameters: map[string]string{keys.LocalClass: "fast"}, cluster: "west"},
		"a remote class does not count at home": {parameters: map[string]string{keys.RemoteClass: "standard"},
			cluster: keys.Home},
		"a claim may ask for a listed class": {parameters: all, cluster: "west",
			annotations: map[string]string{keys.Class: "gold"}, want: "gold"},
		"a claim may ask for it at home too": {parameters: all, cluster: keys.Home,
			annotations: map[string]string{keys.Class: "silver"}, want: "silver"},
		"a claim may not ask for another class": {parameters: all, cluster: "west",
			annotations: map[string]string{keys.Class: "fast"}, err: `"fast"`},
		"a claim may not ask where none is listed": {cluster: "west", annotations: map[string]string{keys.Class: "gold"},
			err: keys.Classes},
		"an empty wish is a wish for a class that is not listed": {parameters: all, cluster: "west",
			annotations: map[string]string{keys.Class: ""}, err: keys.Class},
	} {
		t.Run(name, func(t *testing.T) {
			class, err := virtualclass.Parse(virtual(test.parameters))
			require.NoError(t, err)
			got, err := class.RealClassName(test.cluster, test.annotations)
			if test.err != "" {
				assert.ErrorContains(t, err, test.err)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, test.want, got)
		})
	}
}

const (
	stable = "storageclass.kubernetes.io/is-default-class"
	beta   = "storageclass.beta.kubernetes.io/is-default-class"
)

func real(name string, change ...func(*storagev1.StorageClass)) *storagev1.StorageClass {
	class := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: "disk.csi.dev"}
	for _, c := range change {
		c(class)
	}
	return class
}

func marked(annotation, value string, minute int) func(*storagev1.StorageClass) {
	return func(class *storagev1.StorageClass) {
		class.Annotations = map[string]string{annotation: value}
		class.CreationTimestamp = metav1.NewTime(time.Date(2026, 1, 2, 3, minute, 0, 0, time.UTC))
	}
}

func TestOfferTellsWhatMattersOfAClass(t *testing.T) {
	offered := virtualclass.Offer([]*storagev1.StorageClass{
		real("plain"),
		virtual(nil),
		real("full", func(c *storagev1.StorageClass) {
			c.VolumeBindingMode = ptr.To(storagev1.VolumeBindingWaitForFirstConsumer)
			c.AllowVolumeExpansion = ptr.To(true)
		}),
		real("hand-made", func(c *storagev1.StorageClass) { c.Provisioner = "kubernetes.io/no-provisioner" }),
		real("by-namespace", func(c *storagev1.StorageClass) {
			c.Parameters = map[string]string{"csi.storage.k8s.io/node-publish-secret-namespace": "${pvc.namespace}"}
		}),
		real("by-volume", func(c *storagev1.StorageClass) {
			c.Parameters = map[string]string{"csi.storage.k8s.io/provisioner-secret-name": "${pv.name}"}
		}),
	})
	assert.Equal(t, []v1alpha1.OfferedClass{
		{Name: "by-namespace", Provisioner: "disk.csi.dev", BindingMode: storagev1.VolumeBindingImmediate, Templated: true},
		{Name: "by-volume", Provisioner: "disk.csi.dev", BindingMode: storagev1.VolumeBindingImmediate},
		{Name: "full", Provisioner: "disk.csi.dev", BindingMode: storagev1.VolumeBindingWaitForFirstConsumer, AllowVolumeExpansion: true},
		{Name: "hand-made", Provisioner: "kubernetes.io/no-provisioner", BindingMode: storagev1.VolumeBindingImmediate, Static: true},
		{Name: "plain", Provisioner: "disk.csi.dev", BindingMode: storagev1.VolumeBindingImmediate},
	}, offered)
	assert.Empty(t, virtualclass.Offer(nil))
}

func TestHomesGetClassesWithoutVolumesOfOthers(t *testing.T) {
	static := real("static", func(c *storagev1.StorageClass) { c.Provisioner = "kubernetes.io/no-provisioner" })
	classes := []*storagev1.StorageClass{real("slow"), virtual(nil), static, real("pool"), real("fast")}
	assert.Equal(t, []string{"fast", "slow"}, virtualclass.ForHomes(classes, map[string]bool{"pool": true, "": true}))
	assert.Empty(t, virtualclass.ForHomes(nil, nil))

	assert.True(t, virtualclass.Unclaimed(&corev1.PersistentVolume{}))
	assert.False(t, virtualclass.Unclaimed(&corev1.PersistentVolume{Spec: corev1.PersistentVolumeSpec{
		ClaimRef: &corev1.ObjectReference{Name: "kept-for-a-claim"}}}))
}

func TestOfferMarksOneDefaultAsKubernetesDoes(t *testing.T) {
	markedVirtual := virtual(nil)
	marked(stable, "true", 59)(markedVirtual)
	for name, test := range map[string]struct {
		classes []*storagev1.StorageClass
		want    string
	}{
		"none is marked":                   {classes: []*storagev1.StorageClass{real("a")}},
		"the marked one":                   {classes: []*storagev1.StorageClass{real("a"), real("b", marked(stable, "true", 1))}, want: "b"},
		"the older spelling counts":        {classes: []*storagev1.StorageClass{real("a", marked(beta, "true", 1))}, want: "a"},
		"marked with another value is not": {classes: []*storagev1.StorageClass{real("a", marked(stable, "false", 1))}},
		"the newest of several": {classes: []*storagev1.StorageClass{real("a", marked(stable, "true", 2)),
			real("b", marked(stable, "true", 1))}, want: "a"},
		"the first by name among equals": {classes: []*storagev1.StorageClass{real("b", marked(stable, "true", 1)),
			real("a", marked(stable, "true", 1))}, want: "a"},
		"never a virtual class, newest or not": {classes: []*storagev1.StorageClass{markedVirtual, real("a", marked(stable, "true", 1))},
			want: "a"},
		"a virtual class alone is no default": {classes: []*storagev1.StorageClass{markedVirtual}},
	} {
		t.Run(name, func(t *testing.T) {
			got := ""
			for _, class := range virtualclass.Offer(test.classes) {
				if class.Default {
					assert.Empty(t, got, "only one")
					got = class.Name
				}
			}
			assert.Equal(t, test.want, got)
		})
	}
}

func TestResolve(t *testing.T) {
	offered := []v1alpha1.OfferedClass{{Name: "fast"}, {Name: "slow", Default: true}}
	for name, test := range map[string]struct {
		name    string
		offered []v1alpha1.OfferedClass
		want    string
		err     string
	}{
		"a class by its name":                {name: "fast", offered: offered, want: "fast"},
		"the default where none is named":    {offered: offered, want: "slow"},
		"a name that is not offered":         {name: "gold", offered: offered, err: `cluster "west" has no real storage class "gold"`},
		"no default where none is named":     {offered: offered[:1], err: `cluster "west" has no default storage class`},
		"a cluster without classes":          {name: "fast", err: `no real storage class "fast"`},
		"a cluster without classes, no name": {err: "no default storage class"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := virtualclass.Resolve(test.name, `cluster "west"`, test.offered)
			if test.err != "" {
				assert.ErrorContains(t, err, test.err)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, test.want, got.Name)
		})
	}
}

func term(expressions ...corev1.TopologySelectorLabelRequirement) corev1.TopologySelectorTerm {
	return corev1.TopologySelectorTerm{MatchLabelExpressions: expressions}
}

func in(key string, values ...string) corev1.TopologySelectorLabelRequirement {
	return corev1.TopologySelectorLabelRequirement{Key: key, Values: values}
}

func TestWithin(t *testing.T) {
	labels := map[string]string{"zone": "a", "rack": "1"}
	for name, test := range map[string]struct {
		terms []corev1.TopologySelectorTerm
		want  bool
	}{
		"no terms are everywhere":            {want: true},
		"a value of several":                 {terms: []corev1.TopologySelectorTerm{term(in("zone", "b", "a"))}, want: true},
		"another value":                      {terms: []corev1.TopologySelectorTerm{term(in("zone", "b"))}},
		"all expressions of a term count":    {terms: []corev1.TopologySelectorTerm{term(in("zone", "a"), in("rack", "2"))}},
		"one term of several is enough":      {terms: []corev1.TopologySelectorTerm{term(in("zone", "b")), term(in("rack", "1"))}, want: true},
		"a label that the node has not":      {terms: []corev1.TopologySelectorTerm{term(in("row", ""))}},
		"a term without expressions is none": {terms: []corev1.TopologySelectorTerm{term()}},
	} {
		t.Run(name, func(t *testing.T) { assert.Equal(t, test.want, virtualclass.Within(test.terms, labels)) })
	}
}

func TestTopologies(t *testing.T) {
	terms := []corev1.TopologySelectorTerm{term(in("zone", "a"))}
	assert.Equal(t, map[string][]corev1.TopologySelectorTerm{"zonal": terms}, virtualclass.Topologies([]*storagev1.StorageClass{
		{ObjectMeta: metav1.ObjectMeta{Name: "everywhere"}},
		{ObjectMeta: metav1.ObjectMeta{Name: "zonal"}, AllowedTopologies: terms},
	}))
}

func TestCarries(t *testing.T) {
	for name, test := range map[string]struct {
		parameters map[string]string
		yes, no    []string
	}{
		"without the parameter nothing": {no: []string{"team", ""}},
		"an empty list nothing":         {parameters: map[string]string{keys.Carry: " , "}, no: []string{"team", ""}},
		"exact keys": {parameters: map[string]string{keys.Carry: "team, example.com/cost"},
			yes: []string{"team", "example.com/cost"}, no: []string{"teams", "tea", "example.com/costs", "example.com/"}},
		"keys that begin so": {parameters: map[string]string{keys.Carry: "backup.example.com/*"},
			yes: []string{"backup.example.com/daily"}, no: []string{"backup.example.org/daily", "my.backup.example.com/daily"}},
		"all, but what Kubernetes and Lodestone act upon": {parameters: map[string]string{keys.Carry: "*"},
			yes: []string{"team", "example.com/cost", "app.kubernetes.io/name", "notkubernetes.io/x"},
			no: []string{keys.Claim, keys.ClaimUID, keys.SelectedNode, keys.BetaStorageProvisioner, "kubernetes.io/x", "K8S.io/x",
				"storage.k8s.io/x",
				"remote.lodestone.dev/x", "kubectl.kubernetes.io/last-applied-configuration"}},
	} {
		t.Run(name, func(t *testing.T) {
			class, err := virtualclass.Parse(virtual(test.parameters))
			require.NoError(t, err)
			for _, key := range test.yes {
				assert.True(t, class.Carries(key), key)
			}
			for _, key := range test.no {
				assert.False(t, class.Carries(key), key)
			}
		})
	}
}

func TestParseRefusesPatternsThatCannotMatch(t *testing.T) {
	for pattern, says := range map[string]string{
		"*/daily":               "at most at their end",
		"team**":                "at most at their end",
		"team a":                "at most at their end",
		"lodestone.dev/*":       "never carried",
		"pv.kubernetes.io/x":    "never carried",
		"storage.k8s.io/*":      "never carried",
		"team, kubernetes.io/*": "never carried",
	} {
		_, err := virtualclass.Parse(virtual(map[string]string{keys.Carry: pattern}))
		require.Error(t, err, pattern)
		assert.Contains(t, err.Error(), says)
	}
}
