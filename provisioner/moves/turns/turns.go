// Package turns decides which moves may begin, so that neither moves as such nor those of one
// tenant take more than their share of API servers and networks: only so many are under way at
// once, and the others wait in an order that is fair to all namespaces. The package is pure.
// Next says which ones begin, Places where the others stand.
package turns

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Limits are how many moves may be under way at once: in all, and of one namespace.
type Limits struct{ Total, PerNamespace int }

// Move is a move that has not begun.
type Move struct {
	UID             types.UID
	Namespace, Name string
	Created         time.Time
}

// State is what the turns depend on.
type State struct {
	// Waiting are the moves that have not begun, in any order.
	Waiting []Move
	// Active has, by namespace, how many moves are under way.
	Active map[string]int
	// Served has, by namespace, the number of its last turn. Turns are counted over all
	// namespaces, from 1 on.
	Served map[string]int64
}

// Next returns the moves that may begin now, in their order. Each of them is a turn of its
// namespace. The next turn is that of the namespace whose last one is longest ago, of those that
// have a waiting move and not as many under way as they may have; its oldest move begins.
func Next(limits Limits, s State) []Move {
	active, total := maps.Clone(s.Active), 0
	if active == nil {
		active = map[string]int{}
	}
	for _, n := range active {
		total += n
	}
	var begin []Move
	inTurn(s, func(move Move) verdict {
		switch {
		case total >= limits.Total:
			return end
		case active[move.Namespace] >= limits.PerNamespace:
			return skipNamespace
		}
		active[move.Namespace]++
		total++
		begin = append(begin, move)
		return proceed
	})
	return begin
}

// verdict says how to go on after a move.
type verdict int

const (
	proceed verdict = iota
	skipNamespace
	end
)

// inTurn calls visit for the waiting moves in the order of their turns.
func inTurn(s State, visit func(Move) verdict) {
	byNamespace := map[string][]Move{}
	for _, move := range s.Waiting {
		byNamespace[move.Namespace] = append(byNamespace[move.Namespace], move)
	}
	for _, moves := range byNamespace {
		slices.SortFunc(moves, older)
	}
	namespaces := slices.SortedFunc(maps.Keys(byNamespace), func(a, b string) int {
		return cmp.Or(cmp.Compare(s.Served[a], s.Served[b]), older(byNamespace[a][0], byNamespace[b][0]))
	})
	for len(namespaces) > 0 {
		// All had a turn, in this order, so the next round has the same.
		left := namespaces[:0]
		for _, namespace := range namespaces {
			moves := byNamespace[namespace]
			switch visit(moves[0]) {
			case end:
				return
			case skipNamespace:
				continue
			case proceed:
			}
			if byNamespace[namespace] = moves[1:]; len(moves) > 1 {
				left = append(left, namespace)
			}
		}
		namespaces = left
	}
}

// older orders moves by age. Those of the same second are ordered by namespace and name.
func older(a, b Move) int {
	return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
}

// Place is where a waiting move stands. Its numbers are coarse, so that few places change when
// one move begins: up to 10 they are exact, up to 100 they are rounded up to tens, beyond to
// hundreds, and so on.
type Place struct {
	Move Move
	// Position is 1 for the next turn.
	Position int
	// Full says that its namespace has as many moves under way as it may have. Before is how
	// many waiting moves are before it: of its namespace if that is full, else of all.
	Full   bool
	Before int
}

// Places returns where the waiting moves stand, in the order of their turns.
func Places(limits Limits, s State) []Place {
	places, own := make([]Place, 0, len(s.Waiting)), map[string]int{}
	inTurn(s, func(move Move) verdict {
		place := Place{Move: move, Position: coarse(len(places) + 1), Full: s.Active[move.Namespace] >= limits.PerNamespace,
			Before: coarse(len(places))}
		if place.Full {
			place.Before = coarse(own[move.Namespace])
		}
		own[move.Namespace]++
		places = append(places, place)
		return proceed
	})
	return places
}

// coarse rounds a number up to one digit, and leaves those up to 10 as they are.
func coarse(n int) int {
	unit := 1
	for n > 10*unit {
		unit *= 10
	}
	return (n + unit - 1) / unit * unit
}

// Say says in one sentence what a move waits for.
func (p Place) Say(limits Limits) string {
	of, each, most, flag := "", "", limits.Total, "--max-moves"
	if p.Full {
		of, each, most, flag = " of its namespace", " of a namespace", limits.PerNamespace, "--max-moves-per-namespace"
	}
	verb := "moves" + each + " are"
	if most == 1 {
		verb = "move" + each + " is"
	}
	before := fmt.Sprintf("%d moves%s before it", p.Before, of)
	switch {
	case p.Before == 0:
		before = "no other one" + of + " before it"
	case p.Before == 1:
		before = "1 move" + of + " before it"
	case p.Before > 10:
		before = "up to " + before
	}
	return fmt.Sprintf("waiting for its turn, with %s: at most %d %s under way at once (%s)", before, most, verb, flag)
}
