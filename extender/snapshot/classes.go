package snapshot

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	storagev1 "k8s.io/api/storage/v1"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/locality"
	"github.com/lodestone-storage/lodestone/pkg/virtualclass"
)

// HomeClasses are the real storage classes of the home cluster. Readers never wait.
type HomeClasses struct {
	writers sync.Mutex
	classes map[string]*storagev1.StorageClass
	offered atomic.Pointer[[]v1alpha1.OfferedClass]
	// marks has the locality.Mark of each class by name, of virtual ones too.
	marks atomic.Pointer[map[string]string]
}

// NewHomeClasses returns no classes.
func NewHomeClasses() *HomeClasses {
	c := &HomeClasses{classes: map[string]*storagev1.StorageClass{}}
	c.change(func(map[string]*storagev1.StorageClass) {})
	return c
}

// Resolve returns the real class of that name, the default class if name is empty; false if there
// is none.
func (c *HomeClasses) Resolve(name string) (v1alpha1.OfferedClass, bool) {
	class, err := virtualclass.Resolve(name, keys.Home, *c.offered.Load())
	return class, err == nil
}

// Has reports whether there is a class of that name, real or virtual.
func (c *HomeClasses) Has(name string) bool {
	_, ok := (*c.marks.Load())[name]
	return ok
}

// Mark returns in which remote clusters claims of a class can be used; see locality.Mark.
func (c *HomeClasses) Mark(name string) string {
	return (*c.marks.Load())[name]
}

func (c *HomeClasses) change(edit func(map[string]*storagev1.StorageClass)) {
	c.writers.Lock()
	defer c.writers.Unlock()
	edit(c.classes)
	offered := virtualclass.Offer(slices.Collect(maps.Values(c.classes)))
	marks := make(map[string]string, len(c.classes))
	for name, class := range c.classes {
		marks[name] = locality.Mark(class.Annotations)
	}
	c.marks.Store(&marks)
	c.offered.Store(&offered)
}

// StorageClasses stores the storage classes of the home cluster by name: virtual ones in
// Snapshot.Classes, the others in Snapshot.HomeClasses. There are few classes, and only
// administrators make them.
type StorageClasses struct {
	virtual *Table[*Class]
	home    *HomeClasses
}

// StorageClasses returns the writer of the storage classes.
func (s *Snapshot) StorageClasses() StorageClasses {
	return StorageClasses{virtual: s.Classes, home: s.HomeClasses}
}

// Set stores a class.
func (c StorageClasses) Set(name string, class *storagev1.StorageClass) {
	if virtual, ok := FromStorageClass(class); ok {
		c.virtual.Set(name, virtual)
	} else {
		c.virtual.Delete(name)
	}
	// Virtual classes are not offered; a class may become virtual when it is deleted and created
	// again.
	c.home.change(func(classes map[string]*storagev1.StorageClass) { classes[name] = class })
}

// Delete removes a class, if it is there.
func (c StorageClasses) Delete(name string) {
	c.virtual.Delete(name)
	c.home.change(func(classes map[string]*storagev1.StorageClass) { delete(classes, name) })
}

// Replace replaces the whole content by classes.
func (c StorageClasses) Replace(classes map[string]*storagev1.StorageClass) {
	virtual := map[string]*Class{}
	for name, class := range classes {
		if entry, ok := FromStorageClass(class); ok {
			virtual[name] = entry
		}
	}
	c.virtual.Replace(virtual)
	c.home.change(func(have map[string]*storagev1.StorageClass) {
		clear(have)
		maps.Copy(have, classes)
	})
}

// Len returns the number of classes.
func (c StorageClasses) Len() int {
	c.home.writers.Lock()
	defer c.home.writers.Unlock()
	return len(c.home.classes)
}

// FromStorageClass returns the entry of a storage class; false if it is not virtual.
func FromStorageClass(class *storagev1.StorageClass) (*Class, bool) {
	if !virtualclass.Is(class) {
		return nil, false
	}
	parsed, err := virtualclass.Parse(class)
	return &Class{Class: parsed, Invalid: err != nil}, true
}

// Capacity is a CSIStorageCapacity of the home cluster: the room for new volumes of a real class in
// one topology segment.
type Capacity struct {
	ClassName string
	Bytes     int64
}

// Room is the room for new volumes in the home cluster, by real class. Readers never wait: they
// read a sum that writers maintain.
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

// NewRoom returns a Room without any class.
func NewRoom() *Room {
	room := &Room{capacities: map[string]Capacity{}}
	room.pools.Store(&map[string]pool{})
	return room
}

// Free returns how many bytes new volumes of a real class can have in all, and whether that is
// known.
func (r *Room) Free(className string) (float64, bool) {
	pool, known := (*r.pools.Load())[className]
	return pool.free, known
}

// Len returns the number of capacities.
func (r *Room) Len() int {
	r.writers.Lock()
	defer r.writers.Unlock()
	return len(r.capacities)
}

// Set stores a capacity.
func (r *Room) Set(key string, capacity Capacity) {
	r.change(key, func(pools map[string]pool) {
		r.capacities[key] = capacity
		add(pools, capacity)
	})
}

// Delete removes a capacity, if it is there.
func (r *Room) Delete(key string) {
	r.change(key, func(map[string]pool) { delete(r.capacities, key) })
}

// change subtracts the old capacity of a key from the sums, then calls edit with them. There are
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

// Replace replaces the whole content by capacities, and does not keep the map.
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

// RoomFor returns the real class that a claim without a volume gets in a cluster, and how many
// bytes new volumes of that class can have there in all. known is false if that cluster does not
// report it.
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
