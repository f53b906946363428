package capacity

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestOnlyWhatHasChangedIsWritten(t *testing.T) {
	segment := func(free, largest string) Segment {
		return Segment{Class: "v", UID: "uid-of-v", Pool: "std", Nodes: &metav1.LabelSelector{}, Free: size(free), Largest: size(largest)}
	}
	for name, test := range map[string]struct {
		before, now Segment
		written     bool
	}{
		"nothing":                               {before: segment("100Gi", "10Gi"), now: segment("100Gi", "10Gi")},
		"less than a twentieth":                 {before: segment("100Gi", "10Gi"), now: segment("96Gi", "10Gi")},
		"a twentieth":                           {before: segment("100Gi", "10Gi"), now: segment("95Gi", "10Gi"), written: true},
		"the largest volume":                    {before: segment("100Gi", "10Gi"), now: segment("100Gi", "11Gi"), written: true},
		"the largest volume is not told":        {before: segment("100Gi", "10Gi"), now: segment("100Gi", ""), written: true},
		"the largest volume is told":            {before: segment("100Gi", ""), now: segment("100Gi", "10Gi"), written: true},
		"the last byte":                         {before: segment("1", ""), now: segment("0", ""), written: true},
		"the first byte":                        {before: segment("0", ""), now: segment("1", ""), written: true},
		"full as before":                        {before: segment("0", "0"), now: segment("0", "0")},
		"the same, written in another way":      {before: segment("1Gi", ""), now: segment("1073741824", "")},
		"only the largest volume was ever told": {before: segment("", "10Gi"), now: segment("", "10Gi")},
	} {
		t.Run(name, func(t *testing.T) {
			before := test.before.object(namespace)
			before.ResourceVersion, before.UID = "7", "uid"
			changes := Compare([]Segment{test.now}, []*storagev1.CSIStorageCapacity{before}, namespace)
			assert.Empty(t, changes.Create)
			assert.Empty(t, changes.Delete)
			if !test.written {
				assert.Empty(t, changes.Update)
				return
			}
			require.Len(t, changes.Update, 1)
			want := before.DeepCopy()
			want.Capacity, want.MaximumVolumeSize = test.now.Free, test.now.Largest
			assert.Equal(t, want, changes.Update[0], "as it was seen, so that it fails where it has changed since")
			assert.Equal(t, test.before.object(namespace).Capacity, before.Capacity, "what was seen is not touched")
		})
	}
}

func TestWhatIsNotWantedGoesAndWhatIsGoingIsMadeAgain(t *testing.T) {
	wanted := Segment{Class: "v", Nodes: &metav1.LabelSelector{}, Free: plenty()}
	other := Segment{Class: "v", Pool: "std", Nodes: &metav1.LabelSelector{}, Free: plenty()}
	going := wanted.object(namespace)
	going.DeletionTimestamp = &metav1.Time{}
	changes := Compare([]Segment{wanted}, []*storagev1.CSIStorageCapacity{going, other.object(namespace)}, namespace)
	assert.Equal(t, []*storagev1.CSIStorageCapacity{wanted.object(namespace)}, changes.Create)
	assert.Equal(t, []*storagev1.CSIStorageCapacity{other.object(namespace)}, changes.Delete)
	assert.Empty(t, changes.Update)
}

func TestOnlyOurOwnObjectsAreTouchedAndDriversMayTellInOurNamespaceToo(t *testing.T) {
	ours := Segment{Class: "v", Nodes: &metav1.LabelSelector{}, Free: plenty()}.object(namespace)
	elsewhere := ours.DeepCopy()
	elsewhere.Namespace = "tenant"
	driver := told("std", "a", "9Gi", "")
	driver.Namespace = namespace
	published, told := split([]*storagev1.CSIStorageCapacity{ours, elsewhere, driver}, namespace)
	assert.Equal(t, []*storagev1.CSIStorageCapacity{ours}, published)
	assert.Equal(t, []*storagev1.CSIStorageCapacity{elsewhere, driver}, told)
}
