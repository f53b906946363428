package crash

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Part is what of a sweep is done in one world.
type Part struct {
	Options
	// Start starts the world; say is told how the work goes on.
	Start func(ctx context.Context, say func(format string, args ...any)) (*World, error)
}

// Split returns the parts of a sweep, or the one of a case. Without flows all are swept that
// move volumes, or all others. The flows of the remote agent need a world of their own, and
// so do those that move volumes, and among these those between remote clusters.
func Split(o Options, one string, moves bool) ([]Part, error) {
	names := o.Flows
	if one != "" {
		name, _, _ := strings.Cut(one, ",")
		names = []string{name}
	}
	flows, err := flowsOf(names)
	if err != nil {
		return nil, err
	}
	if len(flows) == 0 {
		flows = slices.DeleteFunc(allFlows(), func(f Flow) bool { return f.Moves != moves })
	}
	claims, agents, moving, wide := Part{o, NewWorld}, Part{o, NewAgentWorld}, Part{o, NewMovesWorld}, Part{o, NewWideWorld}
	parts := []*Part{&claims, &agents, &moving, &wide}
	for _, part := range parts {
		part.Flows = nil
	}
	for _, f := range flows {
		part := &claims
		switch {
		case f.Moves != moves:
			return nil, fmt.Errorf("flow %s is one of make %s", f.Name, target(f.Name))
		case f.Wide:
			part = &wide
		case f.Moves:
			part = &moving
		case f.Of == Agent:
			part = &agents
		}
		part.Flows = append(part.Flows, f.Name)
	}
	var some []Part
	for _, part := range parts {
		if len(part.Flows) > 0 {
			some = append(some, *part)
		}
	}
	return some, nil
}

// flowsOf returns the flows of some names.
func flowsOf(names []string) (flows []Flow, err error) {
	for _, name := range names {
		f, wrong := FlowOf(name)
		if err = errors.Join(err, wrong); wrong == nil {
			flows = append(flows, *f)
		}
	}
	return flows, err
}
