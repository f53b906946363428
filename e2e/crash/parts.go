package crash

import (
	"context"
	"strings"
)

// Part is what of a sweep is done in one world.
type Part struct {
	Options
	// Start starts the world; say is told how the work goes on.
	Start func(ctx context.Context, say func(format string, args ...any)) (*World, error)
}

// Split returns the parts of a sweep, or the one of a case: the flows of the remote agent
// need a world of their own, and so do those that move volumes, which are swept only if
// that is asked for.
func Split(o Options, one string, moves bool) ([]Part, error) {
	if moves {
		return []Part{{o, NewMovesWorld}}, nil
	}
	names := o.Flows
	if one != "" {
		name, _, _ := strings.Cut(one, ",")
		names = []string{name}
	}
	if len(names) == 0 {
		return []Part{{o, NewWorld}, {o, NewAgentWorld}}, nil
	}
	claims, agents := Part{o, NewWorld}, Part{o, NewAgentWorld}
	claims.Flows, agents.Flows = nil, nil
	for _, name := range names {
		f, err := FlowOf(name)
		if err != nil {
			return nil, err
		}
		if f.Of == Agent {
			agents.Flows = append(agents.Flows, name)
		} else {
			claims.Flows = append(claims.Flows, name)
		}
	}
	var parts []Part
	for _, part := range []Part{claims, agents} {
		if len(part.Flows) > 0 {
			parts = append(parts, part)
		}
	}
	return parts, nil
}
