package crash

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
)

// Failed returns the cases that did not survive.
func Failed(outcomes []Outcome) []Outcome {
	return slices.DeleteFunc(slices.Clone(outcomes), func(o Outcome) bool { return o.Err == nil })
}

// cell is the count of one flow and one fault.
type cell struct{ tried, survived, unmet int }

func (c *cell) add(o Outcome) {
	switch {
	case o.Err != nil:
		c.tried++
	case o.Met:
		c.tried++
		c.survived++
	default:
		c.unmet++
	}
}

func (c cell) String() string {
	if c.tried == 0 {
		return "-"
	}
	if c.tried == c.survived {
		return fmt.Sprint(c.tried)
	}
	return fmt.Sprintf("%d of %d", c.survived, c.tried)
}

// Print writes the table flow × fault, with the phases of moves: how many cases were tried and survived, one
// number where all did.
func Print(out io.Writer, outcomes []Outcome) error {
	cells := map[row]map[Fault]*cell{}
	var order []row
	var sum cell
	met := map[Fault]bool{}
	for _, o := range outcomes {
		at := row{o.Flow, o.Phase}
		if cells[at] == nil {
			cells[at] = map[Fault]*cell{}
			order = append(order, at)
		}
		if cells[at][o.Fault] == nil {
			cells[at][o.Fault] = &cell{}
		}
		cells[at][o.Fault].add(o)
		sum.add(o)
		met[o.Fault] = true
	}
	columns := choose(func(f faultInfo) bool { return met[f.fault] })
	slices.SortFunc(order, row.compare)
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	heads := []string{"flow"}
	for _, fault := range columns {
		heads = append(heads, string(fault))
	}
	fmt.Fprintln(table, strings.Join(heads, "\t"))
	for _, at := range order {
		line := []string{strings.TrimSpace(at.flow + " " + at.phase)}
		for _, fault := range columns {
			if found := cells[at][fault]; found != nil {
				line = append(line, found.String())
			} else {
				line = append(line, "-")
			}
		}
		fmt.Fprintln(table, strings.Join(line, "\t"))
	}
	if err := table.Flush(); err != nil {
		return fmt.Errorf("print the table: %w", err)
	}
	_, err := fmt.Fprintf(out, "\n%d cases tried, %d survived", sum.tried, sum.survived)
	if sum.unmet > 0 && err == nil {
		_, err = fmt.Fprintf(out, "; %d more ended well without their call being made, in each of %d attempts", sum.unmet, attempts)
	}
	if err == nil {
		_, err = fmt.Fprintln(out)
	}
	return err
}

// row is one of the table: a flow, and of one that moves something the phase in which
// the fault happened.
type row struct{ flow, phase string }

func (r row) compare(other row) int {
	return cmp.Or(cmp.Compare(position(r.flow), position(other.flow)), cmp.Compare(phaseOf(r.phase), phaseOf(other.phase)))
}

func phaseOf(name string) int { return slices.Index(record.Order, v1alpha1.MovePhase(name)) }

// position is where a flow is in the list of all.
func position(flow string) int {
	return slices.IndexFunc(allFlows(), func(f Flow) bool { return f.Name == flow })
}
