package tree

import "strings"

// Ability is something that a tree may need of the file system at the target and of
// the program that writes there.
type Ability string

// The abilities.
const (
	HardLinks      Ability = "HardLinks"
	Symlinks       Ability = "Symlinks"
	Fifos          Ability = "Fifos"
	Sockets        Ability = "Sockets"
	Devices        Ability = "Devices"
	Owners         Ability = "Owners"
	SpecialBits    Ability = "SpecialBits"
	UserXattrs     Ability = "UserXattrs"
	TrustedXattrs  Ability = "TrustedXattrs"
	Capabilities   Ability = "Capabilities"
	ACLs           Ability = "ACLs"
	NonUTF8Names   Ability = "NonUTF8Names"
	UnusualNames   Ability = "UnusualNames"
	LongNames      Ability = "LongNames"
	CaseSensitive  Ability = "CaseSensitiveNames"
	Nanoseconds    Ability = "Nanoseconds"
	TimeBefore1970 Ability = "TimeBefore1970"
	TimeAfter2038  Ability = "TimeAfter2038"
	// Holes are needed by nothing: without them files only take more room.
	Holes Ability = "Holes"
)

// Need is an ability that some entries need.
type Need struct {
	Ability Ability `json:"ability"`
	Count   uint64  `json:"count"`
	// Path is the first that needs it.
	Path string `json:"path"`
}

// need takes note of what an entry needs. It is called by one goroutine, in order.
func (f *findings) need(e *Entry) {
	at := func(a Ability) { note(&f.needs, a, e.Path) }
	if e.Links > 1 && e.Type != Directory {
		at(HardLinks)
	}
	switch e.Type {
	case Symlink:
		at(Symlinks)
	case Fifo:
		at(Fifos)
	case Socket:
		at(Sockets)
	case CharDevice, BlockDevice:
		at(Devices)
	case Directory, File:
	}
	if e.UID != 0 || e.GID != 0 {
		at(Owners)
	}
	if e.Mode&0o7000 != 0 {
		at(SpecialBits)
	}
	if e.Mtime.Nsec != 0 {
		at(Nanoseconds)
	}
	if e.Mtime.Sec < 0 {
		at(TimeBefore1970)
	}
	if e.Mtime.Sec > 1<<31-1 {
		at(TimeAfter2038)
	}
	for _, x := range e.Xattrs {
		switch {
		case strings.HasPrefix(x.Name, userPrefix):
			at(UserXattrs)
		case strings.HasPrefix(x.Name, trustedPrefix):
			at(TrustedXattrs)
		case x.Name == capabilityXattr:
			at(Capabilities)
		default:
			at(ACLs)
		}
	}
	f.needName(e)
}
