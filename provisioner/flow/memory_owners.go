package flow

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"
)

// maxOwners bounds what is kept of one claim: backing claims in a remote cluster
// can be forged, each with a name of its own.
const maxOwners = 16

// addOwner keeps namespace and name of the virtual claim of a backing claim,
// which alone is left when the virtual claim is gone. There may be several, of
// which all but one were forged.
func (m *memory) addOwner(claim types.UID, owner types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if have := m.owners[claim]; !slices.Contains(have, owner) && len(have) < maxOwners {
		m.owners[claim] = append(slices.Clip(have), owner)
	}
}

func (m *memory) ownersOf(claim types.UID) []types.NamespacedName {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.owners[claim]
}

// addMoved keeps the name of a backing claim that a move made; see addOwner.
func (m *memory) addMoved(claim types.UID, name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if have := m.moved[claim]; !slices.Contains(have, name) && len(have) < maxOwners {
		m.moved[claim] = append(slices.Clip(have), name)
	}
}

func (m *memory) movedOf(claim types.UID) []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.moved[claim]
}
