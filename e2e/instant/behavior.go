package instant

import (
	"context"
	"slices"
	"sync"
	"time"
)

// EveryNode stands for all nodes in Behavior.FullNodes.
const EveryNode = "*"

// Behavior is what goes wrong with the volumes of a class or a claim. The zero value
// is a provisioner that does its work at once.
type Behavior struct {
	// Refuse, if not empty, is the error that every attempt to provision ends with.
	Refuse string

	// Delay is how long provisioning takes.
	Delay time.Duration

	// Never makes provisioning hang until the behaviour changes or the claim is deleted.
	Never bool

	// FullNodes are the nodes that have no room: a claim whose selected node is one of
	// them has that choice dropped, and kube-scheduler chooses again.
	FullNodes []string

	// DeleteDelay is how long the deletion of a volume takes.
	DeleteDelay time.Duration

	// DeleteNever makes every attempt to delete a volume fail.
	DeleteNever bool

	// ExpandRefuse, if not empty, is the error that every attempt to expand ends with.
	ExpandRefuse string

	// ExpandNever lets volumes grow, but not their file systems, as when no pod uses them.
	ExpandNever bool
}

func (b Behavior) full(node string) bool {
	return slices.Contains(b.FullNodes, node) || slices.Contains(b.FullNodes, EveryNode)
}

// behaviors holds what was set. That of a claim goes before that of its class.
type behaviors struct {
	mu      sync.Mutex
	classes map[string]Behavior
	claims  map[string]Behavior
	changed chan struct{} // closed at the next change
}

func newBehaviors() *behaviors {
	return &behaviors{classes: map[string]Behavior{}, claims: map[string]Behavior{}, changed: make(chan struct{})}
}

func (b *behaviors) set(in map[string]Behavior, key string, behavior Behavior, present bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if present {
		in[key] = behavior
	} else {
		delete(in, key)
	}
	close(b.changed)
	b.changed = make(chan struct{})
}

// of returns the behaviour for a claim and a channel that is closed when it may have changed.
func (b *behaviors) of(class, claim string) (Behavior, <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if behavior, ok := b.claims[claim]; ok {
		return behavior, b.changed
	}
	return b.classes[class], b.changed
}

// pause waits for the duration, less if ctx ends.
func pause(ctx context.Context, duration time.Duration) error {
	if duration <= 0 {
		return nil
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(duration):
		return nil
	}
}
