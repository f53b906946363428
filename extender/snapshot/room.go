package snapshot

import (
	"maps"
	"sync"
	"sync/atomic"

	storagev1 "k8s.io/api/storage/v1"

	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/virtualclass"
)

// Capacity is a CSIStorageCapacity of the home cluster: how much room new volumes
// of a real class have in one part of it.
type Capacity struct {
	ClassName string
	Bytes     int64
}

// FromCapacity returns the entry of a CSIStorageCapacity; false when it does not
// say how much room there is.
func FromCapacity(capacity *storagev1.CSIStorageCapacity) (Capacity, bool) {
	if capacity.Capacity == nil {
		return Capacity{}, false
	}
	return Capacity{ClassName: intern(capacity.StorageClassName), Bytes: max(0, capacity.Capacity.Value())}, true
}

// Room is how much room new volumes have in the home cluster, by real class.
// Readers never wait: they see a sum that writers keep.
type Room struct {
	writers    sync.Mutex
	capacities map[string]Capacity
	pools      atomic.Pointer[map[string]pool]
}

// pool is the sum of a class. Sums may exceed an int64; a float is exact enough
// to compare them.
type pool struct {
	parts int
	free  float64
}

// NewRoom returns a Room of which nothing is known.
func NewRoom() *Room {
	room := &Room{capacities: map[string]Capacity{}}
	room.pools.Store(&map[string]pool{})
	return room
}

// Free returns how many bytes new volumes of a real class can take in all, and
// whether that is known.
func (r *Room) Free(className string) (float64, bool) {
	pool, known := (*r.pools.Load())[className]
	return pool.free, known
}

// Len returns the number of parts.
func (r *Room) Len() int {
	r.writers.Lock()
	defer r.writers.Unlock()
	return len(r.capacities)
}

// Set stores the capacity of one part.
func (r *Room) Set(key string, capacity Capacity) {
	r.change(key, func(pools map[string]pool) {
		r.capacities[key] = capacity
		add(pools, capacity)
	})
}

// Delete removes the capacity of one part, if it is there.
func (r *Room) Delete(key string) {
	r.change(key, func(map[string]pool) { delete(r.capacities, key) })
}

// change takes the old capacity of a part out of the sums, then edits. There are
// few classes, so the sums are copied.
func (r *Room) change(key string, edit func(map[string]pool)) {
	r.writers.Lock()
	defer r.writers.Unlock()
	pools := maps.Clone(*r.pools.Load())
	if old, ok := r.capacities[key]; ok {
		left := pools[old.ClassName]
		left.parts--
		left.free -= float64(old.Bytes)
		if left.parts > 0 {
			pools[old.ClassName] = left
		} else {
			delete(pools, old.ClassName)
		}
	}
	edit(pools)
	r.pools.Store(&pools)
}

// Replace makes capacities the whole content, and does not keep the map.
func (r *Room) Replace(capacities map[string]Capacity) {
	r.writers.Lock()
	defer r.writers.Unlock()
	r.capacities = make(map[string]Capacity, len(capacities))
	pools := map[string]pool{}
	for key, capacity := range capacities {
		r.capacities[key] = capacity
		add(pools, capacity)
	}
	r.pools.Store(&pools)
}

func add(pools map[string]pool, capacity Capacity) {
	sum := pools[capacity.ClassName]
	sum.parts++
	sum.free += float64(capacity.Bytes)
	pools[capacity.ClassName] = sum
}

// RoomFor returns the real class that a claim without a volume gets in a cluster,
// and how many bytes new volumes of that class can take there in all. known is
// false where that cluster does not tell.
func (s *Snapshot) RoomFor(class *Class, claim *Claim, cluster string) (realClass string, free float64, known bool) {
	name, err := class.RealClassName(cluster, claim.Choice)
	if err != nil {
		return "", 0, false
	}
	if cluster == keys.Home {
		real, ok := s.HomeClasses.Resolve(name)
		if !ok {
			return "", 0, false
		}
		free, known = s.Room.Free(real.Name)
		return real.Name, free, known
	}
	remote, ok := s.Clusters.Get(cluster)
	if !ok {
		return "", 0, false
	}
	if name == "" {
		name = remote.DefaultClass
	}
	offered, err := virtualclass.Resolve(name, cluster, remote.Offered)
	if err != nil || offered.Free == nil {
		return "", 0, false
	}
	return offered.Name, max(0, offered.Free.AsApproximateFloat64()), true
}
