package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/lodestone-storage/lodestone/mover/cases"
	"github.com/lodestone-storage/lodestone/mover/harness"
)

// table prints results as they come, and the reasons at the end.
type table struct {
	out     io.Writer
	engines []cases.Engine
	tallies []tally
	reasons []string
	// wrong is what became of a case otherwise than is documented.
	wrong []error
}

// tally counts the results of one engine.
type tally struct{ tried, met, lost int }

// letter stands for an engine in the table.
func (t *table) letter(i int) rune { return rune('A' + i) }

// add adds an engine's column.
func (t *table) add(engine cases.Engine, version string) {
	fmt.Fprintf(t.out, "%c = %s (%s)\n", t.letter(len(t.engines)), engine.Name(), version)
	t.engines, t.tallies = append(t.engines, engine), append(t.tallies, tally{})
}

// fill runs every case with every engine. The error says what became of cases with the
// mover, if that is not what is documented.
func (t *table) fill(ctx context.Context, selected []cases.Case, dir string) error {
	heads := []string{"case", "what it must survive", "demand"}
	for i := range t.engines {
		heads = append(heads, string(t.letter(i)))
	}
	fmt.Fprintf(t.out, "\n| %s |\n|%s\n", strings.Join(heads, " | "), strings.Repeat(" --- |", len(heads)))
	for _, c := range selected {
		cells := []string{c.Number, c.Name, string(c.Must)}
		for i, engine := range t.engines {
			result, err := cases.Run(ctx, c, engine, dir)
			if err != nil {
				return fmt.Errorf("case %s with %s: %w", c.Number, engine.Name(), err)
			}
			t.note(c, i, result)
			cells = append(cells, cell(result))
		}
		fmt.Fprintf(t.out, "| %s |\n", strings.Join(cells, " | "))
	}
	fmt.Fprintln(t.out)
	for i, n := range t.tallies {
		fmt.Fprintf(t.out, "%c: %d of %d as demanded, %d lost\n", t.letter(i), n.met, n.tried, n.lost)
	}
	if len(t.reasons) > 0 {
		fmt.Fprintf(t.out, "\nReasons:\n\n%s\n", strings.Join(t.reasons, "\n"))
	}
	return errors.Join(t.wrong...)
}

// note counts a result, keeps its reason, and compares that of the mover with what is
// documented.
func (t *table) note(c cases.Case, engine int, result cases.Result) {
	if result.Reason != "" {
		t.reasons = append(t.reasons, fmt.Sprintf("- %s%c: %s", c.Number, t.letter(engine), shorten(result.Reason)))
	}
	n := &t.tallies[engine]
	if result.Outcome != cases.OutcomeNone {
		n.tried++
	}
	if result.Meets {
		n.met++
	}
	if result.Outcome == cases.OutcomeLost {
		n.lost++
	}
	if _, ours := t.engines[engine].(harness.Engine); ours {
		if err := harness.Check(c, result); err != nil {
			t.wrong = append(t.wrong, err)
		}
	}
}

// cell is the word for a result; a demand that is not met is marked.
func cell(result cases.Result) string {
	switch {
	case result.Outcome == cases.OutcomeNone:
		return "–"
	case !result.Meets:
		return "**" + string(result.Outcome) + "**"
	case result.Outcome == cases.OutcomeFailed:
		return "noticed"
	}
	return string(result.Outcome)
}

// shorten keeps both ends of a long reason: very long paths are among them.
func shorten(reason string) string {
	const end = 120
	if len(reason) <= 2*end+5 {
		return reason
	}
	return reason[:end] + " ... " + reason[len(reason)-end:]
}
