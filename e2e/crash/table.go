package crash

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
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

// Print writes the table flow × fault: how many cases were tried and survived, one
// number where all did.
func Print(out io.Writer, outcomes []Outcome) error {
	cells := map[string]map[Fault]*cell{}
	var order []string
	var sum cell
	for _, o := range outcomes {
		if cells[o.Flow] == nil {
			cells[o.Flow] = map[Fault]*cell{}
			order = append(order, o.Flow)
		}
		if cells[o.Flow][o.Fault] == nil {
			cells[o.Flow][o.Fault] = &cell{}
		}
		cells[o.Flow][o.Fault].add(o)
		sum.add(o)
	}
	slices.SortFunc(order, func(a, b string) int { return position(a) - position(b) })
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	heads := []string{"flow"}
	for _, fault := range Faults() {
		heads = append(heads, string(fault))
	}
	fmt.Fprintln(table, strings.Join(heads, "\t"))
	for _, flow := range order {
		row := []string{flow}
		for _, fault := range Faults() {
			if found := cells[flow][fault]; found != nil {
				row = append(row, found.String())
			} else {
				row = append(row, "-")
			}
		}
		fmt.Fprintln(table, strings.Join(row, "\t"))
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

// position is where a flow is in the list of all.
func position(flow string) int {
	return slices.IndexFunc(Flows(), func(f Flow) bool { return f.Name == flow })
}
