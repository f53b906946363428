package snapshots

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/lodestone-storage/lodestone/pkg/backing"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/volumesnapshot"
	"github.com/lodestone-storage/lodestone/provisioner/snapshots/decide"
)

func TestOnlyTheClaimsOfAGroupHaveItsLabel(t *testing.T) {
	for name, row := range map[string]struct {
		forged string // another claim that has the label
		says   string
	}{
		"nobody else has it": {},
		"somebody labelled another claim, which must not be taken too": {forged: "other", says: "claim shop/other in cluster west has label"},
	} {
		t.Run(name, func(t *testing.T) {
			o := decide.GroupObservation{
				Content: &volumesnapshot.GroupContent{ObjectMeta: metav1.ObjectMeta{UID: "g1"}}, HomeID: "h1", Cluster: "west", Namespace: "shop",
			}
			label := decide.GroupLabel(o.Content)
			client := fake.NewClientset()
			add := func(name string, labels map[string]string) {
				_, err := client.CoreV1().PersistentVolumeClaims("shop").Create(t.Context(), &corev1.PersistentVolumeClaim{
					ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID("b-" + name), Labels: labels}}, metav1.CreateOptions{})
				require.NoError(t, err)
			}
			for _, name := range []string{"a", "b"} {
				add(name, map[string]string{keys.HomeID: "h1", "team": "red"})
				ref := backing.Ref{Cluster: "west", Namespace: "shop", Name: name, UID: types.UID("b-" + name)}
				o.Members = append(o.Members, decide.GroupMember{Ref: ref, Virtual: &corev1.PersistentVolume{
					ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{keys.Backing: ref.String()}}}})
			}
			add("unrelated", nil)
			if row.forged != "" {
				add(row.forged, map[string]string{label: "true"})
			}
			others, err := new(Groups).label(t.Context(), client, o)
			require.NoError(t, err)
			if row.says != "" {
				assert.Contains(t, others, row.says)
				return
			}
			assert.Empty(t, others)
			found, err := client.CoreV1().PersistentVolumeClaims("shop").List(t.Context(), metav1.ListOptions{LabelSelector: label + "=true"})
			require.NoError(t, err)
			require.Len(t, found.Items, 2)
			assert.Equal(t, "red", found.Items[0].Labels["team"], "other labels stay")
		})
	}
}
