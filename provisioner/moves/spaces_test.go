package moves

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
)

func TestANamespaceIsLabelledWhileAClaimIsLockedThere(t *testing.T) {
	moving := map[string]string{keys.Moving: keys.MovingNow}
	in := func(phase v1alpha1.MovePhase, namespace string) *record.Record {
		r := recordIn(phase)
		r.Namespace = namespace
		return r
	}
	for name, row := range map[string]struct {
		space, claim map[string]string
		known        *record.Record
		want         string
		again        bool
	}{
		"nothing is moved":                   {},
		"a claim is locked":                  {claim: moving, want: keys.MovingNow},
		"it is labelled already":             {space: moving, claim: moving, want: keys.MovingNow},
		"no claim is locked any more":        {space: moving},
		"a move may lock one at any time":    {space: moving, known: in(v1alpha1.MovePreCopy, "shop"), want: keys.MovingNow, again: true},
		"a move that is over locks none":     {space: moving, known: in(v1alpha1.MoveDone, "shop")},
		"nor does one of another namespace":  {space: moving, known: in(v1alpha1.MovePreCopy, "other")},
		"a move that copies has locked none": {known: in(v1alpha1.MovePreCopy, "shop")},
	} {
		t.Run(name, func(t *testing.T) {
			space := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", Labels: row.space}}
			client := fake.NewClientset(space)
			claims := cache.NewSharedIndexInformer(nil, &corev1.PersistentVolumeClaim{}, 0,
				cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
			require.NoError(t, claims.GetStore().Add(&corev1.PersistentVolumeClaim{
				ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "data", Labels: row.claim}}))
			c := New(Config{Client: client, Claims: claims, Records: NewRecords(), Space: func(string) *corev1.Namespace { return space }})
			if row.known != nil {
				c.Records.set(types.UID("m1"), row.known)
			}
			after, err := c.syncSpace(t.Context(), "shop")
			require.NoError(t, err)
			assert.Equal(t, row.again, after > 0)
			now, err := client.CoreV1().Namespaces().Get(t.Context(), "shop", metav1.GetOptions{})
			require.NoError(t, err)
			assert.Equal(t, row.want, now.Labels[keys.Moving])
		})
	}
}
