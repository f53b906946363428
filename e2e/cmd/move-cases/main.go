// Command move-cases takes every case of e2e/mover/cases through programs that copy
// volumes, and prints a table of what each of them kept, refused, or lost. It ends with
// status 1 if something else becomes of a case with the mover than is documented.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/lodestone-storage/lodestone/e2e/command"
	"github.com/lodestone-storage/lodestone/e2e/mover/cases"
	"github.com/lodestone-storage/lodestone/e2e/mover/harness"
	"github.com/lodestone-storage/lodestone/e2e/mover/peers"
)

func main() {
	command.Main(func(ctx context.Context) error { return run(ctx, os.Args[1:], os.Stdout) })
}

// candidates are the engines to try, if they are installed.
func candidates(mover string) []cases.Engine {
	engines := []cases.Engine{peers.Plain, peers.Exact, peers.Restic{}}
	if mover != "" {
		engines = append(engines, harness.Engine{Program: mover})
	}
	return engines
}

func run(ctx context.Context, arguments []string, out io.Writer) error {
	flags := flag.NewFlagSet("move-cases", flag.ContinueOnError)
	whole := flags.Bool("whole", false, "use a file of 10 GiB and a million small files")
	only := flags.String("only", "", "run only the cases with these numbers, separated by commas")
	mover := flags.String("mover", "", "path of lodestone-mover; empty: only the other programs")
	dir := flags.String("dir", os.TempDir(), "directory on a file system with attributes, ACLs and devices, such as ext4")
	if err := flags.Parse(arguments); err != nil {
		return err
	}
	scale := cases.Quick
	if *whole {
		scale = cases.Whole
	}
	selected := choose(cases.All(scale), *only)
	if len(selected) == 0 {
		return fmt.Errorf("no case has a number of %q", *only)
	}
	t := &table{out: out}
	for _, engine := range candidates(*mover) {
		version, err := engine.Version(ctx)
		if err != nil {
			fmt.Fprintf(out, "%s is left out: %v\n", engine.Name(), err)
			continue
		}
		t.add(engine, version)
	}
	if len(t.engines) == 0 {
		return errors.New("no engine is installed; install rsync")
	}
	return t.fill(ctx, selected, *dir)
}

// choose gives the cases with these numbers, or all.
func choose(all []cases.Case, only string) (selected []cases.Case) {
	for _, c := range all {
		if only == "" || strings.Contains(","+only+",", ","+c.Number+",") {
			selected = append(selected, c)
		}
	}
	return selected
}

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
