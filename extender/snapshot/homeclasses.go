package snapshot

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	storagev1 "k8s.io/api/storage/v1"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/virtualclass"
)

// HomeClasses are the real storage classes of the home cluster. Readers never
// wait.
type HomeClasses struct {
	writers sync.Mutex
	classes map[string]*storagev1.StorageClass
	offered atomic.Pointer[[]v1alpha1.OfferedClass]
	// names has the names of all classes, virtual ones too.
	names atomic.Pointer[map[string]struct{}]
}

// NewHomeClasses returns no classes.
func NewHomeClasses() *HomeClasses {
	c := &HomeClasses{classes: map[string]*storagev1.StorageClass{}}
	c.change(func(map[string]*storagev1.StorageClass) {})
	return c
}

// Resolve returns the real class of that name, the default class where name is
// empty; false when there is none.
func (c *HomeClasses) Resolve(name string) (v1alpha1.OfferedClass, bool) {
	class, err := virtualclass.Resolve(name, keys.Home, *c.offered.Load())
	return class, err == nil
}

// Has says whether there is a class of that name, be it real or virtual.
func (c *HomeClasses) Has(name string) bool {
	_, ok := (*c.names.Load())[name]
	return ok
}

func (c *HomeClasses) change(edit func(map[string]*storagev1.StorageClass)) {
	c.writers.Lock()
	defer c.writers.Unlock()
	edit(c.classes)
	offered := virtualclass.Offer(slices.Collect(maps.Values(c.classes)))
	names := make(map[string]struct{}, len(c.classes))
	for name := range c.classes {
		names[name] = struct{}{}
	}
	c.names.Store(&names)
	c.offered.Store(&offered)
}

// StorageClasses stores the storage classes of the home cluster by name: virtual
// ones in Snapshot.Classes, the others in Snapshot.HomeClasses. Classes are few,
// and only administrators make them.
type StorageClasses struct {
	virtual *Table[*Class]
	home    *HomeClasses
}

// StorageClasses returns where the storage classes are stored.
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
	// Virtual ones are not offered; a class may become one by being made anew.
	c.home.change(func(classes map[string]*storagev1.StorageClass) { classes[name] = class })
}

// Delete removes a class, if it is there.
func (c StorageClasses) Delete(name string) {
	c.virtual.Delete(name)
	c.home.change(func(classes map[string]*storagev1.StorageClass) { delete(classes, name) })
}

// Replace makes classes the whole content.
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
