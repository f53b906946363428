package instant

import (
	"cmp"
	"slices"
	"sync"
)

// Volume is one volume that exists in the storage behind the provisioner, whatever
// Kubernetes objects say.
type Volume struct {
	Handle           string // the volumeHandle of its PersistentVolume
	Name             string // the name of the PersistentVolume it was made for
	Namespace, Claim string // the claim it was made for
	Class            string
	Node             string // the selected node, empty if its class binds at once
	Source           string // the handle of the volume it is a copy of
	Bytes            int64
}

// storage is the account of volumes.
type storage struct {
	mu      sync.Mutex
	volumes map[string]Volume // by handle
	made    int
}

// make adds a volume unless it exists: provisioning is idempotent by handle.
func (s *storage) make(volume Volume) Volume {
	s.mu.Lock()
	defer s.mu.Unlock()
	if existing, ok := s.volumes[volume.Handle]; ok {
		return existing
	}
	s.volumes[volume.Handle] = volume
	s.made++
	return volume
}

// grow makes a volume larger; it never makes one smaller.
func (s *storage) grow(handle string, bytes int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if volume, ok := s.volumes[handle]; ok && volume.Bytes < bytes {
		volume.Bytes = bytes
		s.volumes[handle] = volume
	}
}

func (s *storage) remove(handle string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.volumes, handle)
}

// Volumes returns the volumes that exist, ordered by handle.
func (p *Provisioner) Volumes() []Volume {
	p.storage.mu.Lock()
	defer p.storage.mu.Unlock()
	var all []Volume
	for _, volume := range p.storage.volumes {
		all = append(all, volume)
	}
	slices.SortFunc(all, func(a, b Volume) int { return cmp.Compare(a.Handle, b.Handle) })
	return all
}

// VolumesOf returns the volumes that exist and were made for claims of a namespace.
func (p *Provisioner) VolumesOf(namespace string) []Volume {
	return slices.DeleteFunc(p.Volumes(), func(v Volume) bool { return v.Namespace != namespace })
}

// Exists reports whether the volume with this handle exists.
func (p *Provisioner) Exists(handle string) bool {
	p.storage.mu.Lock()
	defer p.storage.mu.Unlock()
	_, ok := p.storage.volumes[handle]
	return ok
}

// Made returns how many volumes were ever made.
func (p *Provisioner) Made() int {
	p.storage.mu.Lock()
	defer p.storage.mu.Unlock()
	return p.storage.made
}
