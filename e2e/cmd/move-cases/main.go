// Command move-cases takes every case of mover/cases through programs that copy
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
	"os/signal"
	"strings"
	"syscall"

	"github.com/lodestone-storage/lodestone/mover/cases"
	"github.com/lodestone-storage/lodestone/mover/harness"
	"github.com/lodestone-storage/lodestone/mover/peers"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "move-cases:", err)
		os.Exit(1)
	}
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
