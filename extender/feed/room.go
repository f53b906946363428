package feed

import (
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/lodestone-storage/lodestone/extender/snapshot"
)

// room returns the feed of how much room there is at home. Without it, as where
// the right to read it was not given, only a preference is missing.
func room(client kubernetes.Interface, view *snapshot.Snapshot) Feed {
	capacities := client.StorageV1().CSIStorageCapacities(metav1.NamespaceAll)
	feed := newFeed("csistoragecapacities", capacities, client, view.Room, snapshot.FromCapacity, &storagev1.CSIStorageCapacity{})
	feed.optional = true
	return feed
}
