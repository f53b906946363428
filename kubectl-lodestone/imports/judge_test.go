package imports

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/outcome"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/virtualclass"
)

func class(t *testing.T, clusters string) virtualclass.Class {
	t.Helper()
	class := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "lodestone"}, Provisioner: keys.Driver,
		VolumeBindingMode: ptr.To(storagev1.VolumeBindingWaitForFirstConsumer), Parameters: map[string]string{}}
	if clusters != "" {
		class.Parameters[keys.Clusters] = clusters
	}
	parsed, err := virtualclass.Parse(class)
	require.NoError(t, err)
	return parsed
}

func TestUndoGoesWhileNothingIsGone(t *testing.T) {
	recorded := func(h *Home) { h.Record.Old = "pvc-o1" }
	for name, test := range map[string]struct {
		given []alter
		want  outcome.Code
	}{
		"its claim is there":                   {given: []alter{begun}},
		"it never had one":                     {given: []alter{func(h *Home) { h.Holder = nil }, begun, func(h *Home) { h.Record.From = Holder{} }}},
		"somebody else took the name":          {given: []alter{begun, made, cleared}},
		"its claim is going":                   {given: []alter{begun, going}, want: outcome.Refused},
		"its claim is gone":                    {given: []alter{begun, gone}, want: outcome.Refused},
		"the virtual claim is there":           {given: []alter{begun, made}, want: outcome.Refused},
		"the volume of before is there":        {given: []alter{begun, kept, recorded}},
		"the volume of before is going":        {given: []alter{begun, kept, recorded, func(h *Home) { h.Old.DeletionTimestamp = ptr.To(metav1.Now()) }}, want: outcome.Refused},
		"the volume of before is gone":         {given: []alter{begun, kept, recorded, func(h *Home) { h.Old = nil }}, want: outcome.Refused},
		"another one stands for the data then": {given: []alter{begun, kept, recorded, func(h *Home) { h.Old.Name = "pvc-o2" }}, want: outcome.Refused},
	} {
		t.Run(name, func(t *testing.T) {
			err := home(test.given...).undoable()
			assert.Equal(t, test.want, outcome.Of(err), "%v", err)
		})
	}
}

func TestJudgeAtHome(t *testing.T) {
	unclaimed := func(h *Home) { h.Holder, h.Real.Spec.ClaimRef, h.Real.Status.Phase = nil, nil, corev1.VolumeAvailable }
	there := func(h *Home) {
		h.Claim = &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "data"}}
	}
	for name, test := range map[string]struct {
		given    []alter
		clusters string
		want     outcome.Code
	}{
		"a claim of its own name":              {given: []alter{there}},
		"what policy Retain kept":              {given: []alter{kept}},
		"a real volume that was kept":          {given: []alter{gone, func(h *Home) { h.Real.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRetain }}},
		"a volume that nobody used yet":        {given: []alter{unclaimed}},
		"… but the name is taken":              {given: []alter{unclaimed, there}, want: outcome.Refused},
		"a pod uses it":                        {given: []alter{used}, want: outcome.Refused},
		"it is attached":                       {given: []alter{attached}, want: outcome.Refused},
		"it is being deleted":                  {given: []alter{going}, want: outcome.Refused},
		"its data is being deleted":            {given: []alter{gone}, want: outcome.Refused},
		"its claim is not bound":               {given: []alter{func(h *Home) { h.Holder.Status.Phase = corev1.ClaimLost }}, want: outcome.Refused},
		"it is virtual":                        {given: []alter{func(h *Home) { h.Real.Annotations[keys.Backing] = "west/a/b/c" }}, want: outcome.Refused},
		"it is the twin of a claim":            {given: []alter{kept, func(h *Home) { h.Owner = &corev1.PersistentVolumeClaim{} }}, want: outcome.Refused},
		"it is a twin in the making":           {given: []alter{func(h *Home) { h.Holder.Annotations = map[string]string{keys.Unpublished: "true"} }}, want: outcome.Refused},
		"its virtual volume is in use":         {given: []alter{old(corev1.VolumeBound, corev1.PersistentVolumeReclaimRetain)}, want: outcome.Refused},
		"its virtual volume deletes the data":  {given: []alter{old(corev1.VolumeReleased, corev1.PersistentVolumeReclaimDelete)}, want: outcome.Refused},
		"it belongs to a pod":                  {given: []alter{func(h *Home) { h.Holder.OwnerReferences = []metav1.OwnerReference{{Kind: "Pod"}} }}, want: outcome.Refused},
		"it belongs to another home":           {given: []alter{abroad, protected}, want: outcome.Refused},
		"another home has its claim healed":    {given: []alter{gone, retained, healed}, want: outcome.Refused},
		"it is in another namespace":           {given: []alter{elsewhere}, want: outcome.Refused},
		"… which the user named":               {given: []alter{elsewhere, chosen}},
		"it was in another namespace":          {given: []alter{gone, retained, elsewhere}, want: outcome.Refused},
		"… which the user named too":           {given: []alter{gone, retained, elsewhere, chosen}},
		"a twin of another namespace":          {given: []alter{kept, func(h *Home) { h.Old.Spec.ClaimRef.Namespace = "bank" }}, want: outcome.Refused},
		"a twin that says so itself":           {given: []alter{kept, func(h *Home) { h.Old, h.Holder.Annotations = nil, map[string]string{keys.Claim: "bank/data"} }}, want: outcome.Refused},
		"the class is of another cluster":      {clusters: "west", want: outcome.Refused},
		"the class is of this cluster as well": {clusters: "west,home"},
	} {
		t.Run(name, func(t *testing.T) {
			err := home(test.given...).Judge(class(t, test.clusters), target)
			assert.Equal(t, test.want, outcome.Of(err), "%v", err)
		})
	}
	assert.Equal(t, outcome.Refused, outcome.Of(home(there).Judge(class(t, ""), types.NamespacedName{Namespace: "shop", Name: "other"})), "another name that is taken")
}
