package largecluster

import (
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/lodestone-storage/lodestone/e2e/must"
	"github.com/lodestone-storage/lodestone/pkg/backing"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// soon bounds what is waited for.
const soon = 2 * time.Minute

func TestObjectsOfAFleetBelongTogether(t *testing.T) {
	for i := range 40 {
		claim, backed, virtual, real := virtualClaim(i), backingClaim(i), virtualVolume(i), realVolume(i)
		ref, err := backing.RefOf(virtual)
		require.NoError(t, err)
		assert.Equal(t, backing.RefTo(clusterOf(i), backed), ref)
		assert.Equal(t, claim.UID, virtual.Spec.ClaimRef.UID)
		assert.Equal(t, virtual.Name, claim.Spec.VolumeName)
		assert.Equal(t, real.Name, backed.Spec.VolumeName)
		assert.Equal(t, real.Name, virtual.Annotations[keys.BackingVolume])
		assert.True(t, backing.IsOf(backed, claim.UID, HomeID))
	}
}

func fleetClient(t *testing.T, cluster *Cluster) kubernetes.Interface {
	t.Helper()
	api := httptest.NewServer(cluster)
	t.Cleanup(func() {
		api.CloseClientConnections()
		api.Close()
	})
	client, err := kubernetes.NewForConfig(&rest.Config{Host: api.URL})
	require.NoError(t, err)
	return client
}

func TestFleetSharesItsBackingClaimsAmongItsClusters(t *testing.T) {
	const claims = 200
	seen := map[string]bool{}
	for r := range RemoteClusters {
		factory := informers.NewSharedInformerFactoryWithOptions(fleetClient(t, NewRemote(r, claims)), 0, informers.WithNamespace(Namespace))
		shadows := factory.Core().V1().PersistentVolumeClaims().Informer()
		factory.StartWithContext(t.Context())
		factory.WaitForCacheSync(t.Context().Done())
		for _, obj := range shadows.GetStore().List() {
			seen[obj.(*corev1.PersistentVolumeClaim).Labels[keys.ClaimUID]] = true
		}
	}
	assert.Len(t, seen, claims/2)
}

func TestClusterOfAFleetTakesWritesAndTellsItsWatches(t *testing.T) {
	home := NewHome(20, nil)
	client := fleetClient(t, home)
	factory := informers.NewSharedInformerFactory(client, 0)
	capacities := factory.Storage().V1().CSIStorageCapacities().Informer()
	factory.StartWithContext(t.Context())
	factory.WaitForCacheSync(t.Context().Done())

	system := must.Get(t, client.CoreV1().Namespaces(), metav1.NamespaceSystem)
	assert.Equal(t, HomeID, string(system.UID)[:8])
	review := must.Create(t, client.AuthorizationV1().SelfSubjectAccessReviews(), &authorizationv1.SelfSubjectAccessReview{})
	assert.True(t, review.Status.Allowed)
	assert.Empty(t, home.Writes())

	must.Create(t, client.StorageV1().CSIStorageCapacities("ns"),
		&storagev1.CSIStorageCapacity{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", GenerateName: "c-"}})
	require.Eventually(t, func() bool { return len(capacities.GetStore().List()) == 1 }, soon, time.Millisecond)
	assert.Equal(t, map[string]int{"POST /apis/storage.k8s.io/v1/namespaces/ns/csistoragecapacities": 1}, home.Writes())

	_, err := client.CoreV1().PersistentVolumeClaims(Namespace).Patch(t.Context(), ClaimName(0), "application/merge-patch+json", []byte(`{}`),
		metav1.PatchOptions{})
	require.Error(t, err, "the objects need no patch")
	assert.Len(t, home.Writes(), 2)
}
