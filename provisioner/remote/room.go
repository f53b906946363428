package remote

import (
	"context"
	"math"

	authorizationv1 "k8s.io/api/authorization/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/controller"
)

// roomRights are the rights to read storage capacities. Only a preference among clusters
// depends on them.
var roomRights = []authorizationv1.ResourceAttributes{
	{Verb: "list", Group: "storage.k8s.io", Resource: "csistoragecapacities"},
	{Verb: "watch", Group: "storage.k8s.io", Resource: "csistoragecapacities"},
}

// showsRoom says whether home has the right to read the cluster's storage capacities.
func showsRoom(ctx context.Context, client kubernetes.Interface) (bool, error) {
	for _, attributes := range roomRights {
		if ok, err := allowed(ctx, client, attributes); err != nil || !ok {
			return false, err
		}
	}
	return true, nil
}

// watchRoom starts to watch storage capacities. It is idempotent.
func (c *connection) watchRoom() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.room != nil {
		return
	}
	c.room = c.factory.Storage().V1().CSIStorageCapacities().Informer()
	// There may be an object for each node and class. SetTransform fails only on an
	// informer that has started, which this one has not.
	_ = c.room.SetTransform(slimCapacity)
	c.factory.StartWithContext(c.ctx)
}

func slimCapacity(obj any) (any, error) {
	obj, err := Trusted(obj)
	if err != nil {
		return nil, err
	}
	capacity, ok := obj.(*storagev1.CSIStorageCapacity)
	if !ok {
		return obj, nil
	}
	return &storagev1.CSIStorageCapacity{
		ObjectMeta: metav1.ObjectMeta{Namespace: capacity.Namespace, Name: capacity.Name, UID: capacity.UID,
			ResourceVersion: capacity.ResourceVersion},
		StorageClassName:  capacity.StorageClassName,
		Capacity:          capacity.Capacity,
		MaximumVolumeSize: capacity.MaximumVolumeSize,
	}, nil
}

// room is the free capacity for new volumes of a real class in a cluster, in bytes.
type room struct {
	// free is the sum, largest the size of the largest possible volume.
	free, largest float64
	// unmeasured is true where the driver reports only the largest volume.
	unmeasured bool
}

// free returns the room of each real class, without classes for which no driver reports
// any; read is false until the cache is complete.
func (c *connection) free() (free map[string]room, read bool) {
	c.mu.Lock()
	watched := c.room
	c.mu.Unlock()
	if watched == nil || !watched.HasSynced() {
		return nil, false
	}
	free = map[string]room{}
	for _, capacity := range controller.All[storagev1.CSIStorageCapacity](watched) {
		if capacity.Capacity == nil && capacity.MaximumVolumeSize == nil {
			continue
		}
		sum, had := free[capacity.StorageClassName]
		largest := capacity.MaximumVolumeSize
		if largest == nil {
			largest = capacity.Capacity
		}
		sum.largest = max(0, sum.largest, largest.AsApproximateFloat64())
		sum.unmeasured = capacity.Capacity == nil && (sum.unmeasured || !had)
		if capacity.Capacity != nil {
			sum.free += max(0, capacity.Capacity.AsApproximateFloat64())
		}
		free[capacity.StorageClassName] = sum
	}
	return free, true
}

// offered returns the real classes of a usable cluster with their room, given those in the
// status. The caller holds the lock.
func (c *Cluster) offered(before []v1alpha1.OfferedClass) []v1alpha1.OfferedClass {
	offered := c.connection.offered()
	if !c.verdict.room {
		return offered
	}
	if free, read := c.connection.free(); read {
		withRoom(offered, free, before)
	} else {
		keepRoom(offered, before)
	}
	return offered
}

// withRoom sets the room of each offered class. Where it hardly changed it keeps the value
// in the status, so that small writes to volumes cause no write here.
func withRoom(offered []v1alpha1.OfferedClass, free map[string]room, before []v1alpha1.OfferedClass) {
	written := roomOf(before)
	for i := range offered {
		now, known := free[offered[i].Name]
		if !known {
			continue
		}
		old := written[offered[i].Name]
		if !now.unmeasured {
			offered[i].Free = rewritten(old.Free, now.free)
		}
		offered[i].MaximumVolumeSize = rewritten(old.MaximumVolumeSize, now.largest)
	}
}

// rewritten returns the old value if the new one hardly differs.
func rewritten(old *resource.Quantity, now float64) *resource.Quantity {
	if old != nil && !differs(old.AsApproximateFloat64(), now) {
		return old
	}
	// A value beyond int64 is written as a large int64.
	return resource.NewQuantity(int64(min(now, math.MaxInt64/2)), resource.BinarySI)
}

// keepRoom sets the room of each offered class to the value in the status.
func keepRoom(offered, before []v1alpha1.OfferedClass) {
	written := roomOf(before)
	for i := range offered {
		old := written[offered[i].Name]
		offered[i].Free, offered[i].MaximumVolumeSize = old.Free, old.MaximumVolumeSize
	}
}

func roomOf(classes []v1alpha1.OfferedClass) map[string]v1alpha1.OfferedClass {
	written := map[string]v1alpha1.OfferedClass{}
	for _, class := range classes {
		written[class.Name] = class
	}
	return written
}

// differs says whether the values differ by a twentieth or more.
func differs(before, now float64) bool {
	return math.Abs(now-before) >= before/20 && now != before
}

// sameOffer says whether two lists offer the same classes, apart from their room.
func sameOffer(a, b []v1alpha1.OfferedClass) bool {
	return equality.Semantic.DeepEqual(roomless(a), roomless(b))
}

func roomless(classes []v1alpha1.OfferedClass) []v1alpha1.OfferedClass {
	without := make([]v1alpha1.OfferedClass, len(classes))
	for i, class := range classes {
		class.Free, class.MaximumVolumeSize = nil, nil
		without[i] = class
	}
	return without
}
