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
	flag.IntVar(&b.rounds, "rounds", 3, "how many times the whole move and its yardsticks are measured")
	flag.BoolVar(&b.only, "whole", false, "measure only that")
	flag.Parse()
	if err := run(&b); err != nil {
		fmt.Fprintln(os.Stderr, "bench-move:", err)
		os.Exit(1)
	}
}

func run(b *bench) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := b.begin(ctx); err != nil {
		return err
	}
	defer b.end()
	results, err := b.whole(ctx)
	if err != nil {
		return err
	}
	if b.only {
		return measure.Conclude(os.Stdout, results)
	}
	through, err := b.through(ctx)
	if err != nil {
		return err
	}
	down, err := b.down(ctx)
	if err != nil {
		return err
	}
	return measure.Conclude(os.Stdout, slices.Concat(results, through, down))
}
