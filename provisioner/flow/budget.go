package flow

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/provisioner/decide"
)

// reflections is how often what a remote cluster says of a volume may be written at
// home in a row; after that once in reflectPause. An expansion takes few writes; a
// cluster that says something new at every moment gets no more.
const (
	reflections  = 6
	reflectPause = 15 * time.Second
)

// budget is how many writes are left at some time.
type budget struct {
	left int
	at   time.Time
}

// refilled is the budget at a later time.
func (b budget) refilled(now time.Time) budget {
	if n := int(now.Sub(b.at) / reflectPause); n > 0 {
		b.left, b.at = min(reflections, b.left+n), b.at.Add(time.Duration(n)*reflectPause)
	}
	return b
}

// spend notes that what a remote cluster says of a claim's volume is written.
func (m *memory) spend(claim types.UID, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	b, ok := m.budgets[claim]
	if !ok {
		b = budget{left: reflections, at: now}
	}
	b = b.refilled(now)
	if b.left == reflections {
		b.at = now // A full budget saves nothing up.
	}
	b.left = max(0, b.left-1)
	m.budgets[claim] = b
}

// quietUntil returns until when nothing of that is to be written; zero for now.
func (m *memory) quietUntil(claim types.UID, now time.Time) time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	b, ok := m.budgets[claim]
	if !ok {
		return time.Time{}
	}
	switch b = b.refilled(now); {
	case b.left == reflections:
		delete(m.budgets, claim) // as if nothing had been written
		return time.Time{}
	case b.left > 0:
		return time.Time{}
	}
	return b.at.Add(reflectPause)
}

// setUngiven keeps attributes that were refused; nil drops them.
func (m *memory) setUngiven(claim types.UID, refused *decide.Ungiven) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if refused == nil {
		delete(m.ungiven, claim)
		return
	}
	m.ungiven[claim] = refused
}

// ungivenTo returns the attributes that were refused lately.
func (m *memory) ungivenTo(claim types.UID, now time.Time) *decide.Ungiven {
	m.mu.Lock()
	defer m.mu.Unlock()
	if refused := m.ungiven[claim]; refused != nil && now.Before(refused.Until) {
		return refused
	}
	return nil
}
