package decide_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/backing"
	"github.com/lodestone-storage/lodestone/provisioner/decide"
)

// TestHistories walks through many lives of a claim: provisioned, used, expanded
// and deleted, while clusters are away for up to ten minutes, caches lag, answers
// are lost, the program is killed, clocks differ by up to an hour and clusters are
// restored from backups. Whatever happens, nothing that a pod wrote is lost and no
// step does harm; and when all is well again, there is one backing claim and the
// claim is bound, or nothing is left of it.
func TestHistories(t *testing.T) {
	t.Parallel()
	const histories = 1200
	ends := map[string]int{}
	for seed := range uint64(histories) {
		w := newWorld(seed)
		w.live(t, seed)
		ends[w.end(t, seed)]++
	}
	t.Logf("%d histories: %v", histories, ends)
	for _, end := range []string{"bound at home", "bound in west", "bound in east", "deleted", "kept", "restored, with all data"} {
		require.Greater(t, ends[end], 10, "too few histories end %s to say anything", end)
	}
}

// live lets anything happen for a while.
func (w *world) live(t *testing.T, seed uint64) {
	t.Helper()
	for range 60 + w.IntN(120) {
		w.now = w.now.Add(time.Duration(w.IntN(3000)) * time.Millisecond)
		switch w.IntN(16) {
		case 0:
			w.partition()
		case 1:
			w.kill()
		case 2:
			w.user()
		case 3:
			w.restore()
		case 4, 5, 6:
			w.refresh()
		case 7, 8, 9, 10:
			w.others()
		case 11:
			w.store()
		default:
			w.work(t, seed)
		}
	}
}

// work is one step of the provisioner.
func (w *world) work(t *testing.T, seed uint64) {
	t.Helper()
	o := w.observe()
	step := decide.Next(o)
	w.trace = append(w.trace, fmt.Sprintf("%s %s %s", w.now.Format(time.TimeOnly), step.Verb, step.Cluster))
	if broken := harm(o, step); broken != "" {
		require.Fail(t, broken, "history %d: step %+v\n%v", seed, step, w.trace)
	}
	if step.Tell != nil {
		w.told = step.Tell.Reason
	}
	data, had := w.data(), w.claims()
	if err := w.act(o, step); err == nil && w.chance(70) {
		w.refresh()
	}
	w.lost(t, seed, data)
	if now := w.claims(); now > had && now > 1 && !w.restored {
		require.Fail(t, "a second backing claim that may hold data", "history %d\n%v", seed, w.trace)
	}
}

// claims returns how many backing claims there are that nobody removes. A second
// one that was never published may be there for a while, made by a request whose
// answer was lost.
func (w *world) claims() int {
	n := 0
	for _, s := range w.sites {
		if s.backing != nil && s.backing.DeletionTimestamp == nil && !backing.Unpublished(s.backing) {
			n++
		}
	}
	return n
}

// data returns the real volumes that a pod wrote to.
func (w *world) data() map[string]bool {
	found := map[string]bool{}
	for id, s := range w.sites {
		if s.real != nil && s.real.Annotations["data"] != "" && s.backing != nil && s.backing.DeletionTimestamp == nil {
			found[id] = true
		}
	}
	return found
}

// lost fails where a step began to delete what a pod wrote and nobody wanted gone.
func (w *world) lost(t *testing.T, seed uint64, before map[string]bool) {
	t.Helper()
	now := w.data()
	for id := range before {
		if !now[id] && (!w.deleted || w.retained) {
			require.Fail(t, "data was lost", "history %d, in %s\n%v", seed, id, w.trace)
		}
	}
}

// end lets all be well again and says how the history ended.
func (w *world) end(t *testing.T, seed uint64) string {
	t.Helper()
	const calm = 30
	w.faulty = false
	w.trace = append(w.trace, "all is well again")
	for _, s := range w.sites {
		s.away, s.noticed = false, false
	}
	// Refusals end after a minute, so what rests for longer rests for good.
	for range 600 {
		if len(w.trace) > calm && !slices.ContainsFunc(w.trace[len(w.trace)-calm:], func(s string) bool { return !strings.Contains(s, string(decide.Idle)) }) {
			break
		}
		w.now = w.now.Add(5 * time.Second)
		for range 4 {
			w.others()
		}
		w.refresh()
		w.work(t, seed)
		w.store()
		w.refresh()
	}
	home, have := w.sites[keys.Home], []string{}
	for id, s := range w.sites {
		if s.backing != nil {
			have = append(have, id)
		}
	}
	about := fmt.Sprintf("history %d: told %s, backing claims in %v, restored %v\n%v", seed, w.told, have, w.restored, w.trace)
	switch {
	case w.restored:
		// What it was put back to may contradict what home has; data stays all the same,
		// and a claim that has to wait says for what.
		require.True(t, home.claim == nil || home.claim.Spec.VolumeName != "" || w.told != "", about)
		return "restored, with all data"
	case home.claim == nil && w.retained && home.volume != nil:
		require.Equal(t, corev1.VolumeReleased, home.volume.Status.Phase, about)
		require.Len(t, have, 1, about)
		return "kept"
	case home.claim == nil:
		require.Nil(t, home.volume, about)
		for _, id := range have {
			require.False(t, backing.Unpublished(w.sites[id].backing), "a leak: %s", about)
			require.True(t, w.retained, "a leak: %s", about)
		}
		return "deleted"
	}
	if w.retained && home.volume == nil && w.told == "BackingHasData" {
		// It was about to be published, and then sent elsewhere by others: the user is told.
		require.Len(t, have, 1, about)
		return "waits for its user"
	}
	require.NotNil(t, home.volume, about)
	require.Equal(t, home.volume.Name, home.claim.Spec.VolumeName, about)
	ref := refOf(home.volume)
	require.Equal(t, []string{ref.Cluster}, have, about)
	b := w.sites[ref.Cluster].backing
	require.Equal(t, ref.UID, b.UID, about)
	require.False(t, backing.Unpublished(b), about)
	require.Nil(t, b.DeletionTimestamp, about)
	if ref.Cluster == keys.Home {
		return "bound at home"
	}
	return "bound in " + ref.Cluster
}
