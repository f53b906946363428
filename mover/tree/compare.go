package tree

import "fmt"

// Difference says in what an entry of a copy differs from the original.
type Difference struct {
	// Path is as a message shows it.
	Path string `json:"path"`
	What string `json:"what"`
}

// String is the difference in words.
func (d Difference) String() string { return d.Path + ": " + d.What }

// Differences are those of a copy from the original.
type Differences struct {
	// Count is how many entries differ; First are the first of them.
	Count uint64       `json:"count"`
	First []Difference `json:"first,omitempty"`
}

// Compare tells how a copy differs from the original, with at most so many examples.
// Equal roots have no differences, and other roots have some: an error otherwise.
func Compare(original, copied *Manifest, examples int) (Differences, error) {
	var d Differences
	for change, err := range Changes(original, copied) {
		if err != nil {
			return Differences{}, fmt.Errorf("compare two manifests: %w", err)
		}
		d.Count++
		if len(d.First) < examples {
			d.First = append(d.First, change.Difference())
		}
	}
	if equal := original.summary.Root == copied.summary.Root; equal != (d.Count == 0) {
		return Differences{}, fmt.Errorf("compare two manifests: their roots say equal=%t, their entries have %d differences",
			equal, d.Count)
	}
	return d, nil
}

// Difference is the change in words, the old side being the original.
func (c *Change) Difference() Difference {
	return Difference{Path: printable(c.Path()), What: c.words()}
}

// words says what differs, with the values of both sides where they are short.
func (c *Change) words() string {
	switch {
	case c.New == nil:
		return "the " + c.Old.Type.String() + " is missing in the copy"
	case c.Old == nil:
		return "the " + c.New.Type.String() + " is only in the copy"
	}
	old, now := c.Old, c.New
	text := ""
	say := func(aspect Aspect, format string, values ...any) {
		if c.Differs&aspect == 0 {
			return
		}
		if text != "" {
			text += "; "
		}
		text += fmt.Sprintf(format, values...)
	}
	say(AspectType, "a %s became a %s", old.Type, now.Type)
	say(AspectSize, "%d bytes became %d", old.Size, now.Size)
	say(AspectContent, "other content")
	say(AspectTarget, "it points to %q instead of %q", now.Target, old.Target)
	say(AspectDevice, "device %d:%d became %d:%d", old.Major, old.Minor, now.Major, now.Minor)
	say(AspectMode, "mode %04o became %04o", old.Mode, now.Mode)
	say(AspectOwner, "owner %d:%d became %d:%d", old.UID, old.GID, now.UID, now.GID)
	say(AspectMtime, "modification time %s became %s", old.Mtime, now.Mtime)
	say(AspectXattrs, "extended attributes differ: %s", xattrsDiffer(old.Xattrs, now.Xattrs))
	say(AspectLink, "it is a hard link of another file than in the original")
	return text
}

// xattrsDiffer names the attributes that are missing, other or more.
func xattrsDiffer(old, now []Xattr) string {
	text := ""
	say := func(name, what string) {
		if text != "" {
			text += ", "
		}
		text += printable(name) + " " + what
	}
	for len(old) > 0 || len(now) > 0 {
		switch {
		case len(now) == 0 || len(old) > 0 && old[0].Name < now[0].Name:
			say(old[0].Name, "is missing")
			old = old[1:]
		case len(old) == 0 || now[0].Name < old[0].Name:
			say(now[0].Name, "is only in the copy")
			now = now[1:]
		default:
			if old[0] != now[0] {
				say(old[0].Name, "has another value")
			}
			old, now = old[1:], now[1:]
		}
	}
	return text
}
