package tree

import (
	"fmt"
	"os"
	"slices"

	"golang.org/x/sys/unix"
)

// Writer is who writes a target, where that is not root. It makes files of its own user and groups alone, and of the volume's root
// directory, which belongs to root as a rule, it cannot even set the time: that is left out of manifests then.
type Writer struct {
	User   uint32   `json:"user"`
	Groups []uint32 `json:"groups"`
}

// Self is this process as a writer; nil: it is root.
func Self() (*Writer, error) {
	if os.Geteuid() == 0 {
		return nil, nil
	}
	groups, err := unix.Getgroups()
	if err != nil {
		return nil, fmt.Errorf("find out the groups of the mover: %w", err)
	}
	w := &Writer{User: uint32(os.Geteuid()), Groups: []uint32{uint32(os.Getegid())}}
	for _, group := range groups {
		w.Groups = append(w.Groups, uint32(group))
	}
	slices.Sort(w.Groups)
	w.Groups = slices.Compact(w.Groups)
	return w, nil
}

// String says who it is.
func (w *Writer) String() string { return fmt.Sprintf("user %d, groups %v", w.User, w.Groups) }

// owns says whether files of this writer can be like an entry.
func (w *Writer) owns(uid, gid uint32) bool { return uid == w.User && slices.Contains(w.Groups, gid) }

// Refuse is an error if a source, as it was scanned for this writer, has files that it cannot make.
func (w *Writer) Refuse(source Summary) error {
	for _, need := range source.Needs {
		if w != nil && need.Ability == Owners {
			return fmt.Errorf("%s: %s", need.Path, w.cannotOwn(need))
		}
	}
	return nil
}

func (w *Writer) cannotOwn(need Need) string {
	return fmt.Sprintf("it belongs to another user or group than the mover at the target has (%s), which is not root and can make no such "+
		"file; entries of others: %d", w, need.Count)
}

// Ownership is to whom a directory belongs, and its mode's lower 12 bits.
type Ownership struct {
	UID  uint32 `json:"uid"`
	GID  uint32 `json:"gid"`
	Mode uint32 `json:"mode"`
}

func (o Ownership) String() string { return fmt.Sprintf("%d:%d with mode %04o", o.UID, o.GID, o.Mode) }

// OwnershipOf looks at a volume's root directory.
func OwnershipOf(volume string) (Ownership, error) {
	var s unix.Stat_t
	if err := unix.Lstat(volume, &s); err != nil {
		return Ownership{}, fmt.Errorf("look at the volume at %s: %w", volume, err)
	}
	return Ownership{UID: s.Uid, GID: s.Gid, Mode: s.Mode & 0o7777}, nil
}

// RootRefusals says whether a target's root directory can become like that of the source.
func RootRefusals(source Ownership, target Abilities) []Refusal {
	w := target.Writer
	if target.Unwritable {
		return []Refusal{{Reason: fmt.Sprintf("the mover at the target (%s) may not write to the volume, whose root directory belongs to %s: "+
			"use a storage class there whose volumes belong to the fsGroup of pods", w, target.Root)}}
	}
	if w == nil || source == target.Root || target.Root.UID == w.User && w.owns(source.UID, source.GID) {
		return nil
	}
	return []Refusal{{Reason: fmt.Sprintf("the volume's root directory belongs to %s, and at the target to %s, which the mover there (%s) "+
		"cannot change without root: use a storage class there whose volumes begin alike", source, target.Root, w)}}
}
