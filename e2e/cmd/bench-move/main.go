// Command bench-move measures whole moves of a volume between two directories, over
// TLS on loopback, beside rsync to a daemon without TLS and restic's backup and
// restore, in the same run. It prints one JSON object a measure and ends with status
// 1 if a budget is not kept. It needs root, rsync, restic and setpriv.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/lodestone-storage/lodestone/e2e/command"
	"github.com/lodestone-storage/lodestone/e2e/measure"
	"github.com/lodestone-storage/lodestone/e2e/mover/samples"
	"github.com/lodestone-storage/lodestone/e2e/store"
)

func main() {
	var b bench
	flag.StringVar(&b.mover, "mover", "bin/lodestone-mover", "path of the mover's program")
	flag.StringVar(&b.dir, "dir", os.TempDir(), "directory for the volumes, on ext4, XFS or btrfs; on tmpfs each scan reads everything")
	flag.IntVar(&b.files, "files", 100_000, "how many small files the volume has")
	flag.IntVar(&b.large, "large", 4, "how many large files the volume has")
	flag.Int64Var(&b.size, "size", 1<<30, "how many bytes a large file has")
	flag.IntVar(&b.rounds, "rounds", 3, "how many times each measure is taken, but for the way through an object store")
	only := flag.String("only", "", "take only some measures: whole, store, down or back, separated by commas; empty: all")
	flag.Parse()
	command.Main(func(ctx context.Context) error { return run(ctx, &b, *only) })
}

func run(ctx context.Context, b *bench, only string) error {
	parts, err := b.parts(only)
	if err != nil {
		return err
	}
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
	known := []string{"whole", "store", "down", "back"}
	wanted := known
	if only != "" {
		wanted = strings.Split(only, ",")
	}
	for i, take := range []part{b.whole, b.through, b.down, b.back} {
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

// bench is what is measured, and with what.
type bench struct {
	mover, dir   string
	files, large int
	size         int64
	rounds       int
	programs     store.Programs
	// yardstick is the restic that is installed here, not the mover's.
	yardstick string
	work      string
	aside     int
	// made: the volume of many files is there.
	made bool
}

// begin builds what is measured beside ours.
func (b *bench) begin(ctx context.Context) (err error) {
	if b.yardstick, err = exec.LookPath("restic"); err != nil {
		return fmt.Errorf("find the restic to compare with: %w; install it, on Debian: apt-get install restic", err)
	}
	if b.programs, err = store.Build(ctx, os.Stderr); err != nil {
		return err
	}
	b.work, err = os.MkdirTemp(b.dir, "bench-move-*")
	return err
}

// volume makes the volume of many files, once.
func (b *bench) volume(ctx context.Context) error {
	if b.made {
		return nil
	}
	b.made = true
	if err := samples.Small(ctx, b.path("source"), b.files); err != nil {
		return err
	}
	for i := range b.large {
		if err := samples.Large(b.path("source", "large", fmt.Sprint(i)), b.size, uint64(i)); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) end() {
	if b.work != "" {
		_ = os.RemoveAll(b.work)
	}
}

func (b *bench) path(parts ...string) string {
	return filepath.Join(append([]string{b.work}, parts...)...)
}

// fresh makes an empty directory of a name. What had that name is put aside until the end
// without the content of its large files: for minutes after many files were deleted ext4 is
// slow to make new ones, since it passes by their inodes, and who came second would pay.
func (b *bench) fresh(name string) (string, error) {
	path := b.path(name)
	b.aside++
	old := b.path(fmt.Sprintf("aside-%d", b.aside))
	if err := os.Rename(path, old); err == nil {
		if err := filepath.WalkDir(old, emptied); err != nil {
			return "", err
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	if err := os.MkdirAll(path, 0o755); err != nil {
		return "", err
	}
	// Nor does anybody pay for the disk that another keeps busy.
	unix.Sync()
	return path, nil
}

// emptied makes a large file empty.
func emptied(path string, entry fs.DirEntry, err error) error {
	if err != nil || !entry.Type().IsRegular() {
		return err
	}
	if info, err := entry.Info(); err != nil || info.Size() < 1<<20 {
		return err
	}
	return os.Truncate(path, 0)
}
