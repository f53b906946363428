package flow

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/backing"
	"github.com/lodestone-storage/lodestone/provisioner/clusters"
	"github.com/lodestone-storage/lodestone/provisioner/decide"
)

// The informer of claims lags behind: the claim still seems to have the node that
// refused it. A twin made for that node would be refused there again.
func TestNodeThatWasJustTakenOffAClaimIsNotUsedAgain(t *testing.T) {
	seen := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "data", UID: "c", ResourceVersion: "5",
			Annotations: map[string]string{keys.SelectedNode: "full", keys.StorageProvisioner: keys.Driver}},
		Spec: corev1.PersistentVolumeClaimSpec{StorageClassName: ptr.To("virtual")},
	}
	client := fake.NewClientset()
	client.PrependReactor("patch", "persistentvolumeclaims", func(clienttesting.Action) (bool, runtime.Object, error) {
		patched := seen.DeepCopy()
		patched.ResourceVersion = "6"
		delete(patched.Annotations, keys.SelectedNode)
		return true, patched, nil
	})
	sources, err := NewSources(informers.NewSharedInformerFactory(client, 0))
	require.NoError(t, err)
	require.NoError(t, sources.Claims.GetStore().Add(seen))
	f := New(Config{Client: client, Sources: sources, Clusters: clusters.New(clusters.Config{}), Place: backing.Place{StorageNamespace: "storage"}})
	f.publisher = idlePublisher{}
	node := func() string { return f.observe("c", false).Claim.Annotations[keys.SelectedNode] }
	require.Equal(t, "full", node())

	require.NoError(t, f.reschedule(t.Context(), decide.Observation{Claim: seen}, nil))
	assert.Empty(t, node())

	chosen := seen.DeepCopy()
	chosen.ResourceVersion, chosen.Annotations[keys.SelectedNode] = "7", "other"
	require.NoError(t, sources.Claims.GetStore().Update(chosen))
	assert.Equal(t, "other", node(), "what is newer than the write counts")

	require.NoError(t, sources.Claims.GetStore().Delete(chosen))
	assert.Nil(t, f.observe("c", false).Claim)
	assert.Empty(t, f.written.claims)
}
