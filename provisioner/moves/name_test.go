package moves

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/backing"
	"github.com/lodestone-storage/lodestone/provisioner/clusters"
)

func TestTheFirstNameThatNobodyHasIsTaken(t *testing.T) {
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "data", UID: "u1"}}
	client := fake.NewClientset()
	at := site{Access: clusters.Access{Client: client}}
	for n := range names {
		key, err := firstFree(t.Context(), at, "there", claim, "west")
		require.NoError(t, err)
		require.Equal(t, types.NamespacedName{Namespace: "there", Name: backing.Moved("u1", n+1)}, key)
		_, err = client.CoreV1().PersistentVolumeClaims("there").Create(t.Context(), &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: key.Name}}, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	_, err := firstFree(t.Context(), at, "there", claim, "west")
	var refused refusal
	require.ErrorAs(t, err, &refused, "a cluster that has every name keeps nobody asking for ever")
	assert.ErrorContains(t, err, "there/pvc-u1-1 to pvc-u1-32")
}

func TestOnlyNodesOfThisVersionFindClaimsUnderOtherNames(t *testing.T) {
	for name, test := range map[string]struct {
		labels []map[string]string
		want   bool
	}{
		"no node":                         {},
		"a node of another program":       {labels: []map[string]string{{keys.Cluster: "west"}}},
		"a node of an earlier version":    {labels: []map[string]string{{keys.Cluster: "west", keys.VirtualNodeRole: ""}}},
		"one of this version beside one":  {labels: []map[string]string{{keys.Cluster: "west"}, {keys.Claims: keys.ClaimsOfVolumes}}, want: true},
		"a node that says something else": {labels: []map[string]string{{keys.Claims: "by-name"}}},
	} {
		t.Run(name, func(t *testing.T) {
			c := New(Config{StandIns: func(string) (nodes []*corev1.Node) {
				for _, labels := range test.labels {
					nodes = append(nodes, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: labels}})
				}
				return nodes
			}})
			assert.Equal(t, test.want, c.findsClaims("west"))
		})
	}
}

func TestWhatIsToBeDoneAboutANameDependsOnWhoseItIs(t *testing.T) {
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{UID: "u1"}}
	own := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{keys.ClaimUID: "u1", keys.HomeID: "h1"}}}
	assert.Contains(t, instead(own, claim, "h1"), "move it home first")
	assert.Contains(t, instead(&corev1.PersistentVolumeClaim{}, claim, "h1"), "remove that claim there")
}
