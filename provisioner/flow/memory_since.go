package flow

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// missedSince notes whether the backing claim of a volume is missed, and returns
// since when; zero if it is not.
func (m *memory) missedSince(claim types.UID, missed bool, now time.Time) time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !missed {
		delete(m.missed, claim)
		return time.Time{}
	}
	if _, known := m.missed[claim]; !known {
		m.missed[claim] = now
	}
	return m.missed[claim]
}

// waitsSince notes what a claim waits for, and returns since when; zero if for nothing.
func (m *memory) waitsSince(claim types.UID, what string, now time.Time) time.Time {
	return m.since(m.waits, claim, what, now)
}

// awaySince notes whether the cluster of a claim's volume tells nothing of it, and
// returns since when; zero if it does.
func (m *memory) awaySince(claim types.UID, away bool, now time.Time) time.Time {
	what := ""
	if away {
		what = "away"
	}
	return m.since(m.away, claim, what, now)
}

// wishedSince notes what is to become of a claim's condition, and returns since when;
// zero if nothing is.
func (m *memory) wishedSince(claim types.UID, what string, now time.Time) time.Time {
	return m.since(m.wishes, claim, what, now)
}

// since notes in one of the maps of the memory what there is of a claim, empty for
// nothing, and returns since when.
func (m *memory) since(kept map[types.UID]told, claim types.UID, what string, now time.Time) time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	if what == "" {
		delete(kept, claim)
		return time.Time{}
	}
	if kept[claim].what != what {
		kept[claim] = told{what: what, when: now}
	}
	return kept[claim].when
}
