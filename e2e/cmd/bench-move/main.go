// Command bench-move measures whole moves of a volume between two directories, over
// TLS on loopback, beside rsync to a daemon without TLS and restic's backup and
// restore, in the same run. It prints one JSON object a measure and ends with status
// 1 if a budget is not kept. It needs root, rsync, restic and setpriv.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/lodestone-storage/lodestone/e2e/measure"
)

func main() {
	var b bench
	flag.StringVar(&b.mover, "mover", "bin/lodestone-mover", "path of the mover's program")
	flag.StringVar(&b.dir, "dir", os.TempDir(), "directory for the volumes, on ext4, XFS or btrfs; on tmpfs each scan reads everything")
	flag.IntVar(&b.files, "files", 100_000, "how many small files the volume has")
	flag.IntVar(&b.large, "large", 4, "how many large files the volume has")
	flag.Int64Var(&b.size, "size", 1<<30, "how many bytes a large file has")
	flag.IntVar(&b.rounds, "rounds", 3, "how many times each measure is taken, but for the way through an object store")
	only := flag.String("only", "", "take only some measures: whole, store or down, separated by commas; empty: all")
	flag.Parse()
	if err := run(&b, *only); err != nil {
		fmt.Fprintln(os.Stderr, "bench-move:", err)
		os.Exit(1)
	}
}

func run(b *bench, only string) error {
	parts, err := b.parts(only)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	defer b.end()
	if err := b.begin(ctx); err != nil {
		return err
	}
	var results []measure.Result
	for _, part := range parts {
		some, err := part(ctx)
		if err != nil {
			return err
		}
		results = append(results, some...)
	}
	return measure.Conclude(os.Stdout, results)
}

// part takes some measures.
type part func(ctx context.Context) ([]measure.Result, error)

// parts returns the parts of the benchmark that are asked for, in their order.
func (b *bench) parts(only string) (parts []part, err error) {
	known := []string{"whole", "store", "down"}
	wanted := known
	if only != "" {
		wanted = strings.Split(only, ",")
	}
	for i, take := range []part{b.whole, b.through, b.down} {
		if slices.Contains(wanted, known[i]) {
			parts = append(parts, take)
		}
	}
	for _, name := range wanted {
		if !slices.Contains(known, name) {
			return nil, fmt.Errorf("there is no part %q: choose among %v", name, known)
		}
	}
	return parts, nil
}
