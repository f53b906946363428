package tree

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Names of attributes that are kept besides user.* and trusted.*. Others belong to
// the machine (security.selinux, security.ima) or to the file system
// (system.nfs4_acl, btrfs.*) and are not part of what a copy must keep.
const (
	capabilityXattr = "security.capability"
	accessACL       = "system.posix_acl_access"
	defaultACL      = "system.posix_acl_default"
	trustedPrefix   = "trusted."
	userPrefix      = "user."
)

// KeptXattrs are the attributes that a copy must keep, but for ACLs: names, and prefixes,
// which end with a dot. Whatever copies attributes takes these and leaves all others at
// both ends as they are.
func KeptXattrs() []string { return []string{userPrefix, trustedPrefix, capabilityXattr} }

// kept says whether a copy must keep an attribute of this name.
func kept(name string) bool {
	return name == accessACL || name == defaultACL || slices.ContainsFunc(KeptXattrs(), func(kept string) bool {
		return name == kept || strings.HasSuffix(kept, ".") && strings.HasPrefix(name, kept)
	})
}

// holder is something with extended attributes: its calls are those of Linux.
type holder struct {
	list func(to []byte) (int, error)
	get  func(name string, to []byte) (int, error)
}

// opened is a file or directory that is open for reading.
func opened(fd int) holder {
	return holder{
		list: func(to []byte) (int, error) { return unix.Flistxattr(fd, to) },
		get:  func(name string, to []byte) (int, error) { return unix.Fgetxattr(fd, name, to) },
	}
}

// named is a name in an open directory. The path goes through /proc/self/fd, the
// only way to ask about a name without opening it; its last part is not followed.
func named(dir int, name string) holder {
	path := "/proc/self/fd/" + strconv.Itoa(dir) + "/" + name
	return holder{
		list: func(to []byte) (int, error) { return unix.Llistxattr(path, to) },
		get:  func(name string, to []byte) (int, error) { return unix.Lgetxattr(path, name, to) },
	}
}

// xattrs reads the attributes that a copy must keep, sorted by name.
func xattrs(of holder, buffer *[]byte) ([]Xattr, error) {
	names, err := grow(buffer, of.list)
	if errors.Is(err, unix.EOPNOTSUPP) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list extended attributes: %w", err)
	}
	if len(names) == 0 {
		return nil, nil
	}
	var found []Xattr
	for attribute := range strings.SplitSeq(strings.TrimSuffix(string(names), "\x00"), "\x00") {
		if !kept(attribute) {
			continue
		}
		value, err := grow(buffer, func(b []byte) (int, error) { return of.get(attribute, b) })
		if errors.Is(err, unix.ENODATA) || errors.Is(err, unix.EOPNOTSUPP) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read extended attribute %s: %w", attribute, err)
		}
		found = append(found, Xattr{Name: attribute, Length: uint64(len(value)), Hash: plain(value)})
	}
	slices.SortFunc(found, func(a, b Xattr) int { return strings.Compare(a.Name, b.Name) })
	return found, nil
}

// xattrAtMost is the longest value or list that Linux gives.
const xattrAtMost = 64 << 10

// grow calls with a buffer that is enlarged until the answer fits.
func grow(buffer *[]byte, call func([]byte) (int, error)) ([]byte, error) {
	if len(*buffer) == 0 {
		// With an empty buffer Linux tells the length and gives nothing.
		*buffer = make([]byte, 1<<10)
	}
	for {
		var n int
		err := retry(func() (err error) {
			n, err = call(*buffer)
			return err
		})
		switch {
		case err == nil:
			return (*buffer)[:n], nil
		case errors.Is(err, unix.ERANGE) && len(*buffer) < xattrAtMost:
			*buffer = make([]byte, xattrAtMost)
		default:
			return nil, err
		}
	}
}
