package homeepoch

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// world is one remote cluster and the copies of one home cluster. Time goes in steps of a second.
type world struct {
	*rand.Rand
	now     time.Duration
	mark    Mark
	version int
	homes   []*copied
	// late are writes to the remote cluster that are still under way.
	late []write
	n    int
}

type write struct {
	mark    Mark
	version int
	at      time.Duration
}

// copied is a home cluster: its record, and what its present process knows.
type copied struct {
	name      string
	record    *Record
	confirmed string
	cut, down bool

	seen     Mark
	since    time.Duration
	known    bool
	holding  bool
	open     time.Duration
	acted    bool
	lastLook time.Duration
}

const walkPeriod = 4 * time.Second

func (w *world) nonce() string { w.n++; return fmt.Sprint("n", w.n) }

func (c *copied) restart() {
	c.known, c.holding, c.open, c.since = false, false, 0, 0
}

func (w *world) acts(c *copied) bool { return !c.down && w.now < c.open }

// look is one probe of a home cluster; with faults, it may be killed or lose its answer anywhere.
func (w *world) look(c *copied, faults bool) {
	if c.down || c.cut {
		return
	}
	fault := func(oneIn int) bool { return faults && w.IntN(oneIn) == 0 }
	record := c.record
	mark, version, sent := w.mark, w.version, w.now
	arrived := record != nil && c.known && c.seen == record.Next
	if !c.known || c.seen != mark {
		c.known, c.seen, c.since = true, mark, w.now
	}
	d := Decide(Observation{Record: record, Mark: mark, RemoteCluster: "west", Peering: "p", Watched: w.now - c.since, Quiet: w.now - c.since,
		Holding: c.holding, Arrived: arrived, Confirmed: c.confirmed, Period: walkPeriod, Nonce: w.nonce()})
	if fault(40) {
		c.restart()
		return
	}
	switch d.Do {
	case Wait, Unkept:
		return
	case Suspect, Stay:
		c.open, c.holding = 0, false
		if d.Do == Suspect {
			stored := d.Record
			c.record = &stored
		}
		return
	case Write:
	}
	stored := d.Record
	c.record = &stored
	if fault(40) {
		c.restart()
		return
	}
	if fault(20) {
		// The request is long under way, and its sender is told that it failed.
		w.late = append(w.late, write{mark: d.Record.Next, version: version, at: w.now + time.Duration(w.IntN(20))*time.Second})
		return
	}
	if !w.put(write{mark: d.Record.Next, version: version}) || fault(20) {
		return
	}
	c.seen, c.since = d.Record.Next, w.now
	if d.Acts {
		c.holding, c.acted = true, true
		c.open = max(c.open, sent+Validity(walkPeriod))
	}
}

func (w *world) put(request write) bool {
	if request.version != w.version {
		return false
	}
	w.mark, w.version = request.mark, w.version+1
	return true
}

func (w *world) tick() {
	w.now += time.Second
	var late []write
	for _, request := range w.late {
		if request.at > w.now {
			late = append(late, request)
		} else {
			w.put(request)
		}
	}
	w.late = late
	for _, c := range w.homes {
		if w.now-c.lastLook >= walkPeriod || w.IntN(5) == 0 {
			c.lastLook = w.now
			w.look(c, true)
		}
	}
}

// settle lets the first home come to act, without faults.
func (w *world) settle(c *copied) bool {
	for range 100 {
		w.now += time.Second
		w.look(c, false)
		if w.acts(c) {
			return true
		}
	}
	return false
}

// copy returns a copy of a home cluster as a backup has it, after which the original renewed its mark:
// one that was taken while the original could not is the exception that the package names.
func (w *world) copy(c *copied, name string) *copied {
	if c.down || c.cut || !w.settle(c) {
		return nil
	}
	record := *c.record
	before := w.mark
	for range 20 {
		w.now += time.Second
		if w.look(c, false); w.mark != before {
			return &copied{name: name, record: &record, confirmed: c.confirmed}
		}
	}
	return nil
}

func (w *world) mishap(confirms, remoteRestores bool, history *[]Mark) {
	c := w.homes[w.IntN(len(w.homes))]
	switch w.IntN(12) {
	case 0:
		c.cut = !c.cut
	case 1:
		c.down = !c.down
		c.restart()
	case 2:
		c.restart()
	case 3:
		if len(w.homes) < 4 {
			if clone := w.copy(c, fmt.Sprint("copy", len(w.homes))); clone != nil {
				w.homes = append(w.homes, clone)
			}
		}
	case 4:
		if w.acts(c) && !c.cut {
			if next, ok := Release(*c.record, w.mark, w.nonce()); ok {
				c.record = &next
				if w.IntN(3) > 0 {
					w.put(write{mark: next.Next, version: w.version})
				}
			}
			c.restart()
		}
	case 5:
		if confirms && c.record != nil && c.record.Doubt != nil {
			c.confirmed = c.record.Doubt.ID
		}
	case 6:
		if remoteRestores && len(*history) > 0 {
			// Etcd counts on from the restored version, which the writes that are under way do not know.
			w.mark, w.version = (*history)[w.IntN(len(*history))], w.version+1000
		}
	default:
	}
}

func walk(t *testing.T, seed uint64, confirms, remoteRestores bool, check func(w *world)) *world {
	t.Helper()
	w := &world{Rand: rand.New(rand.NewPCG(seed, 1))}
	w.homes = []*copied{{name: "original"}}
	require.True(t, w.settle(w.homes[0]))
	var history []Mark
	for range 600 {
		w.tick()
		if w.IntN(6) == 0 {
			w.mishap(confirms, remoteRestores, &history)
		}
		if w.IntN(50) == 0 {
			history = append(history, w.mark)
		}
		check(w)
	}
	return w
}

func TestOfCopiesOfOneHomeNeverTwoActAtATime(t *testing.T) {
	confirmed := 0
	for seed := range uint64(800) {
		w := walk(t, seed, true, seed%2 == 0, func(w *world) {
			var acting []string
			for _, c := range w.homes {
				if w.acts(c) {
					acting = append(acting, c.name)
				}
			}
			require.LessOrEqual(t, len(acting), 1, "seed %d, after %v: %v act", seed, w.now, acting)
		})
		for _, c := range w.homes[1:] {
			if c.acted {
				confirmed++
			}
		}
	}
	require.Positive(t, confirmed, "copies that were confirmed act")
}

func TestWithoutAnAdministratorOnlyTheOriginalActsAndNobodyStopsIt(t *testing.T) {
	copies := 0
	for seed := range uint64(800) {
		w := walk(t, seed, false, false, func(w *world) {
			for _, c := range w.homes[1:] {
				require.False(t, c.acted, "seed %d, after %v: %s acts", seed, w.now, c.name)
			}
		})
		original := w.homes[0]
		copies += len(w.homes) - 1
		original.cut, original.down = false, false
		w.late = nil
		require.True(t, w.settle(original), "seed %d: the original does not act in the end: %+v", seed, original.record)
	}
	require.Positive(t, copies)
}

// beside has a copy look each second, beside its original, which renews its mark in time.
func (w *world) beside(t *testing.T, seed uint64, original, clone *copied, confirms bool) {
	t.Helper()
	for range 300 {
		w.now += time.Second
		if confirms && clone.record.Doubt != nil && w.IntN(3) == 0 {
			clone.confirmed = clone.record.Doubt.ID
		}
		w.look(clone, false)
		if w.now-original.lastLook >= walkPeriod {
			original.lastLook = w.now
			w.look(original, false)
		}
		require.True(t, w.acts(original), "seed %d, after %v: the original does not act", seed, w.now)
		require.False(t, clone.acted, "seed %d, after %v: the copy acts", seed, w.now)
	}
}

func TestAHomeThatRenewsItsMarkIsStoppedByNoCopy(t *testing.T) {
	for seed := range uint64(100) {
		w := &world{Rand: rand.New(rand.NewPCG(seed, 1))}
		original := &copied{name: "original"}
		require.True(t, w.settle(original))
		// The copy starts before the original renews its mark again.
		record := *original.record
		original.lastLook = w.now - time.Duration(seed)*time.Second%walkPeriod
		w.beside(t, seed, original, &copied{name: "copy", record: &record}, seed%2 == 0)
	}
}
