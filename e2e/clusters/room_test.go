package clusters

import (
	"testing"

	"github.com/stretchr/testify/require"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/e2e/await"
)

// showsRoom checks that the RemoteCluster of east follows what is told there of
// the room that its one real class has.
func showsRoom(t *testing.T, class string) {
	t.Helper()
	becomes := func(want string) {
		t.Helper()
		shown := func() string {
			if free := status(t, "east").StorageClasses[0].Free; free != nil {
				return free.String()
			}
			return "unknown"
		}
		await.Until(t, "the room becomes "+want, func() bool { return shown() == want }, func() any { return shown() })
	}
	capacities := east.Client().StorageV1().CSIStorageCapacities(metav1.NamespaceDefault)
	becomes("unknown")
	room, err := capacities.Create(t.Context(), &storagev1.CSIStorageCapacity{
		ObjectMeta: metav1.ObjectMeta{Name: "room"}, StorageClassName: class, Capacity: ptr.To(resource.MustParse("10Gi")),
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	becomes("10Gi")
	room.Capacity = ptr.To(resource.MustParse("0"))
	_, err = capacities.Update(t.Context(), room, metav1.UpdateOptions{})
	require.NoError(t, err)
	becomes("0")
	require.NoError(t, capacities.Delete(t.Context(), room.Name, metav1.DeleteOptions{}))
	becomes("unknown")
}
