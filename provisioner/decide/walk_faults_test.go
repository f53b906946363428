package decide_test

import (
	"slices"
	"time"

	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/backing"
)

// partition has a remote cluster go away or come back; home notices later.
func (w *world) partition() {
	s := w.sites[[]string{"west", "east"}[w.IntN(2)]]
	switch {
	case s.away != s.noticed:
		s.noticed, s.since = s.away, w.now
	case s.away:
		w.now = w.now.Add(time.Duration(w.IntN(600)) * time.Second)
		s.away = false
	default:
		s.away = true
	}
}

// kill ends the program; what follows sees what is so.
func (w *world) kill() {
	w.unsent, w.gone, w.handedOut = false, false, false
	w.refresh()
}

// user deletes the claim, or asks for more.
func (w *world) user() {
	home := w.sites[keys.Home]
	c := home.claim
	switch {
	case c == nil:
	case w.chance(8):
		home.claim, w.deleted = nil, true
	case c.Spec.VolumeName != "":
		c.Spec.Resources.Requests = storage("2Gi")
		w.touch(c)
	}
}

// restore makes a backup of a cluster, or has it go back to its backup.
// Its volumes outlive that as they are, for a backup holds only objects.
func (w *world) restore() {
	s := w.sites[[]string{keys.Home, "west", "east"}[w.IntN(3)]]
	if s.backup == nil {
		backup := s.copied()
		if s.id == keys.Home && w.chance(30) {
			// One from before the claim was made.
			backup = state{}
		}
		s.backup = &backup
		return
	}
	if !w.chance(5) || s.id == keys.Home && slices.ContainsFunc([]string{"west", "east"}, w.unmarked) {
		// Not covered: a backup of home that is put back in the moment between the
		// first write of a pod and the mark on its backing claim.
		return
	}
	wrote := s.real != nil && s.real.Annotations["data"] != ""
	before := s.real
	s.state = s.backup.copied()
	if s.id == keys.Home {
		w.deleted = false
	}
	if s.real != nil && before != nil && before.UID == s.real.UID && wrote {
		s.real.Annotations["data"] = "yes"
	}
	w.restored = true
}

// unmarked says whether a pod wrote to a volume whose backing claim does not say yet
// that it was published.
func (w *world) unmarked(id string) bool {
	s := w.sites[id]
	return s.real != nil && s.real.Annotations["data"] != "" && s.backing != nil && backing.Unpublished(s.backing)
}
