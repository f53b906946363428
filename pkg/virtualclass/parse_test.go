package virtualclass_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

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
		"a class that binds at once":              {class: immediate, want: "volumeBindingMode"},
		"a class without a binding mode":          {class: unset, want: "volumeBindingMode"},
		"an unknown parameter":                    {class: virtual(map[string]string{"tier": "gold"}), want: `unknown parameter "tier"`},
		"a misspelt parameter":                    {class: virtual(map[string]string{"lodestone.dev/localclass": "fast"}), want: `"lodestone.dev/localclass"`},
		"a remote class of a cluster without ID":  {class: virtual(map[string]string{keys.RemoteClass + ".": "fast"}), want: "unknown parameter"},
		"of several unknown ones always the same": {class: virtual(map[string]string{"b": "", "a": "", "c": ""}), want: `"a"`},
		"a list of clusters that names none":      {class: virtual(map[string]string{keys.Clusters: " , "}), want: keys.Clusters},
		"an unknown rule for siblings":            {class: virtual(map[string]string{keys.Siblings: "Spread"}), want: `"Spread" in parameter lodestone.dev/siblings: create it anew with one of pack, spread, ignore`},
		"an empty rule for siblings":              {class: virtual(map[string]string{keys.Siblings: ""}), want: keys.Siblings},
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
		"without the parameter every cluster":     {yes: []string{keys.Home, "west", "east"}},
		"with it only those that it lists":        {parameters: map[string]string{keys.Clusters: "home, west"}, yes: []string{keys.Home, "west"}, no: []string{"east", ""}},
		"home is left out where it is not listed": {parameters: map[string]string{keys.Clusters: "west"}, yes: []string{"west"}, no: []string{keys.Home}},
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
	assert.Equal(t, keys.SiblingsPack, virtualclass.Class{}.Siblings(), "they stay together unless the class says otherwise")
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
		"without parameters home chooses itself":                 {cluster: keys.Home},
		"without parameters a remote cluster chooses itself":     {cluster: "west"},
		"home has the local class":                               {parameters: all, cluster: keys.Home, want: "fast"},
		"a remote cluster has the remote class":                  {parameters: all, cluster: "east", want: "standard"},
		"a remote cluster may have one of its own":               {parameters: all, cluster: "west", want: "ssd"},
		"the local class does not count elsewhere":               {parameters: map[string]string{keys.LocalClass: "fast"}, cluster: "west"},
		"a remote class does not count at home":                  {parameters: map[string]string{keys.RemoteClass: "standard"}, cluster: keys.Home},
		"a claim may ask for a listed class":                     {parameters: all, cluster: "west", annotations: map[string]string{keys.Class: "gold"}, want: "gold"},
		"a claim may ask for it at home too":                     {parameters: all, cluster: keys.Home, annotations: map[string]string{keys.Class: "silver"}, want: "silver"},
		"a claim may not ask for another class":                  {parameters: all, cluster: "west", annotations: map[string]string{keys.Class: "fast"}, err: `"fast"`},
		"a claim may not ask where none is listed":               {cluster: "west", annotations: map[string]string{keys.Class: "gold"}, err: keys.Classes},
		"an empty wish is a wish for a class that is not listed": {parameters: all, cluster: "west", annotations: map[string]string{keys.Class: ""}, err: keys.Class},
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
