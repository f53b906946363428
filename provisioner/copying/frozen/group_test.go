package frozen

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
)

func TestOnlyTheSourcesOfAGroupGetItsLabel(t *testing.T) {
	ref := func(name string) backing.Ref {
		return backing.Ref{Namespace: "n", Name: name, UID: types.UID("b-" + name)}
	}
	g := Group{Label: keys.GroupPrefix + "m1", Of: []Frozen{{Ref: ref("data")}, {Ref: ref("logs")}}}
	client := fake.NewClientset()
	claims := client.CoreV1().PersistentVolumeClaims("n")
	for _, name := range []string{"data", "logs", "else"} {
		_, err := claims.Create(t.Context(), &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("b-" + name),
			Labels: map[string]string{"team": "red"}}}, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	require.NoError(t, g.label(t.Context(), claims))
	found, err := claims.List(t.Context(), metav1.ListOptions{LabelSelector: g.Label + "=true,team=red"})
	require.NoError(t, err)
	require.Len(t, found.Items, 2)

	require.NoError(t, setLabel(t.Context(), claims, ref("else"), g.Label, "true"))
	why, err := RefusalOf(g.label(t.Context(), claims))
	require.NoError(t, err, "it is refused for good")
	assert.Contains(t, why, "claim else has label "+keys.GroupPrefix+"m1 too")
}
