package virtualclass_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/virtualclass"
)

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

func TestOfferMarksOneDefaultAsKubernetesDoes(t *testing.T) {
	markedVirtual := virtual(nil)
	marked(stable, "true", 59)(markedVirtual)
	for name, test := range map[string]struct {
		classes []*storagev1.StorageClass
		want    string
	}{
		"none is marked":                       {classes: []*storagev1.StorageClass{real("a")}},
		"the marked one":                       {classes: []*storagev1.StorageClass{real("a"), real("b", marked(stable, "true", 1))}, want: "b"},
		"the older spelling counts":            {classes: []*storagev1.StorageClass{real("a", marked(beta, "true", 1))}, want: "a"},
		"marked with another value is not":     {classes: []*storagev1.StorageClass{real("a", marked(stable, "false", 1))}},
		"the newest of several":                {classes: []*storagev1.StorageClass{real("a", marked(stable, "true", 2)), real("b", marked(stable, "true", 1))}, want: "a"},
		"the first by name among equals":       {classes: []*storagev1.StorageClass{real("b", marked(stable, "true", 1)), real("a", marked(stable, "true", 1))}, want: "a"},
		"never a virtual class, newest or not": {classes: []*storagev1.StorageClass{markedVirtual, real("a", marked(stable, "true", 1))}, want: "a"},
		"a virtual class alone is no default":  {classes: []*storagev1.StorageClass{markedVirtual}},
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
