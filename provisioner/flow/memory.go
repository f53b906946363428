package flow

import (
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/provisioner/decide"
)

// memory is what is remembered of claims between steps. All of it may be lost
// at any moment: it only saves work, events and waiting.
type memory struct {
	mu      sync.Mutex
	unsent  map[types.UID]bool
	gone    map[types.UID]bool
	changed map[types.UID]change
	told    map[types.UID]told
	started map[types.UID]time.Time
	owners  map[types.UID][]types.NamespacedName
	orphans map[types.UID]bool
	// moved are the names of backing claims that moves made.
	moved map[types.UID][]string
	// declined are the sizes that were refused lately.
	declined map[types.UID]declined
	carried  map[types.UID]time.Time
	said     map[types.UID]said
	budgets  map[types.UID]budget
	ungiven  map[types.UID]*decide.Ungiven
	missed   map[types.UID]time.Time
	waits    map[types.UID]told
	away     map[types.UID]told
	wishes   map[types.UID]told
}

// change is what a claim has not been told of yet, and from when on it may be.
type change struct {
	what string
	due  time.Time
}

type told struct {
	what string
	when time.Time
}

func newMemory() memory {
	return memory{
		unsent: map[types.UID]bool{}, gone: map[types.UID]bool{}, changed: map[types.UID]change{},
		told: map[types.UID]told{}, started: map[types.UID]time.Time{},
		owners: map[types.UID][]types.NamespacedName{}, orphans: map[types.UID]bool{},
		declined: map[types.UID]declined{}, carried: map[types.UID]time.Time{},
		said: map[types.UID]said{}, budgets: map[types.UID]budget{}, ungiven: map[types.UID]*decide.Ungiven{},
		missed: map[types.UID]time.Time{}, moved: map[types.UID][]string{}, waits: map[types.UID]told{},
		away: map[types.UID]told{}, wishes: map[types.UID]told{},
	}
}

func (m *memory) setUnsent(claim types.UID, unsent bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if unsent {
		m.unsent[claim] = true
	} else {
		delete(m.unsent, claim)
	}
}

func (m *memory) isUnsent(claim types.UID) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.unsent[claim]
}

func (m *memory) setGone(claim types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.gone[claim] = true
}

func (m *memory) isGone(claim types.UID) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.gone[claim]
}

// setCarried notes when labels and annotations are carried to a backing claim.
func (m *memory) setCarried(claim types.UID, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.carried[claim] = now
}

func (m *memory) carriedAt(claim types.UID) time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.carried[claim]
}

// setChanged notes a change for a claim.
func (m *memory) setChanged(claim types.UID, what string, due time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.changed[claim] = change{what: what, due: due}
}

// clearChanged takes away what a claim was to be told of by now.
func (m *memory) clearChanged(claim types.UID, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !now.Before(m.changed[claim].due) {
		delete(m.changed, claim)
	}
}

// dueIn returns in what time a claim is to be told of a change; 0 for now or none.
func (m *memory) dueIn(claim types.UID, now time.Time) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	return max(0, m.changed[claim].due.Sub(now))
}

// changedFor returns the change that a claim is to be told of now; empty for none.
func (m *memory) changedFor(claim types.UID, now time.Time) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if noted := m.changed[claim]; !now.Before(noted.due) {
		return noted.what
	}
	return ""
}

// start returns when a claim with a selected node was first seen.
func (m *memory) start(claim types.UID, now time.Time) time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	if at, ok := m.started[claim]; ok {
		return at
	}
	m.started[claim] = now
	return now
}

// worthTelling says whether something is news for a claim: it was not the last
// thing told, or that was long ago.
func (m *memory) worthTelling(claim types.UID, what string, now time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if last, ok := m.told[claim]; ok && last.what == what && now.Sub(last.when) < tellAgain {
		return false
	}
	m.told[claim] = told{what: what, when: now}
	return true
}

func (m *memory) forget(claim types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.unsent, claim)
	delete(m.gone, claim)
	delete(m.changed, claim)
	delete(m.told, claim)
	delete(m.started, claim)
	delete(m.owners, claim)
	delete(m.orphans, claim)
	delete(m.declined, claim)
	delete(m.carried, claim)
	delete(m.said, claim)
	delete(m.budgets, claim)
	delete(m.ungiven, claim)
	delete(m.missed, claim)
	delete(m.moved, claim)
	delete(m.waits, claim)
	delete(m.away, claim)
	delete(m.wishes, claim)
}

// setOrphan notes a claim of which only a backing claim is left.
func (m *memory) setOrphan(claim types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.orphans[claim] = true
}

// allOrphans returns the claims of which only a backing claim is left.
func (m *memory) allOrphans() []types.UID {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Collect(maps.Keys(m.orphans))
}

// settled drops what matters only until a claim has its volume.
func (m *memory) settled(claim types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.unsent, claim)
	delete(m.started, claim)
}
