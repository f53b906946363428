package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/lodestone-storage/lodestone/mover/cases"
)

// table prints results as they come, and the reasons at the end.
type table struct {
	out     io.Writer
	engines []cases.Engine
	reasons []string
}

// letter stands for an engine in the table.
func (t *table) letter(i int) rune { return rune('A' + i) }

// fill runs every case with every engine.
func (t *table) fill(ctx context.Context, selected []cases.Case, dir string) error {
	heads := []string{"case", "what it must survive", "demand"}
	for i := range t.engines {
		heads = append(heads, string(t.letter(i)))
	}
	fmt.Fprintf(t.out, "\n| %s |\n|%s\n", strings.Join(heads, " | "), strings.Repeat(" --- |", len(heads)))
	met := make([]int, len(t.engines))
	lost := make([]int, len(t.engines))
	for _, c := range selected {
		cells := []string{c.Number, c.Name, string(c.Must)}
		for i, engine := range t.engines {
			result, err := cases.Run(ctx, c, engine, dir)
			if err != nil {
				return fmt.Errorf("case %s with %s: %w", c.Number, engine.Name(), err)
			}
			cells = append(cells, t.cell(c, i, result))
			if result.Meets {
				met[i]++
			}
			if result.Outcome == cases.OutcomeLost {
				lost[i]++
			}
		}
		fmt.Fprintf(t.out, "| %s |\n", strings.Join(cells, " | "))
	}
	fmt.Fprintln(t.out)
	for i := range t.engines {
		fmt.Fprintf(t.out, "%c: %d of %d as demanded, %d lost without an error\n", t.letter(i), met[i], len(selected), lost[i])
	}
	if len(t.reasons) > 0 {
		fmt.Fprintf(t.out, "\nReasons:\n%s\n", strings.Join(t.reasons, "\n"))
	}
	return nil
}

// cell is the word for a result; a demand that is not met is marked.
func (t *table) cell(c cases.Case, engine int, result cases.Result) string {
	if result.Reason != "" {
		t.reasons = append(t.reasons, fmt.Sprintf("- %s%c: %s", c.Number, t.letter(engine), shorten(result.Reason)))
	}
	if result.Meets {
		return string(result.Outcome)
	}
	return "**" + string(result.Outcome) + "**"
}

// shorten keeps both ends of a long reason: very long paths are among them.
func shorten(reason string) string {
	const end = 120
	if len(reason) <= 2*end+5 {
		return reason
	}
	return reason[:end] + " ... " + reason[len(reason)-end:]
}
