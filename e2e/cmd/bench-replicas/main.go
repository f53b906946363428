// Command bench-replicas measures what it costs to bring a second copy of a volume up to date, over loopback and encrypted, beside
// rsync over stunnel, restic, rclone, borg and syncthing, in the same run: bytes on the wire, processor time of all processes, and
// time. It prints a table, and one JSON object a measure, and ends with status 1 if a budget is not kept. It needs root, setpriv and
// what needed names.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lodestone-storage/lodestone/e2e/command"
	"github.com/lodestone-storage/lodestone/e2e/measure"
	"github.com/lodestone-storage/lodestone/e2e/mover/samples"
	"github.com/lodestone-storage/lodestone/pkg/moverapi"
)

func main() {
	if len(os.Args) > 2 && os.Args[1] == pipeVerb {
		if err := pipe(os.Args[2], os.Args[3:]); err != nil {
			fmt.Fprintln(os.Stderr, "bench-replicas:", err)
			os.Exit(1)
		}
		return
	}
	b := bench{known: map[string]moverapi.Fingerprints{}}
	flag.StringVar(&b.mover, "mover", "bin/lodestone-mover", "path of the mover's program")
	flag.StringVar(&b.dir, "dir", os.TempDir(), "directory for the volumes, on ext4, XFS or Btrfs")
	flag.IntVar(&b.files, "files", 100_000, "how many files of 4 KiB the one volume has")
	flag.Int64Var(&b.size, "size", 1<<30, "how many bytes the file of the other volume has")
	flag.StringVar(&b.only, "only", "", "only these: lodestone, rsync, restic, rclone, borg or syncthing, separated by commas; empty: all")
	flag.Parse()
	command.Main(func(ctx context.Context) error { return run(ctx, &b) })
}

// bench is what is measured.
type bench struct {
	mover, dir, only string
	files            int
	size             int64
	work             string
	peers            *peers
	// known are the fingerprints after the last point of each folder.
	known map[string]moverapi.Fingerprints
}

// tool brings copies up to date.
type tool struct {
	name string
	// needs are the programs that it runs.
	needs []string
	// copies makes the copy of source that it keeps in a folder of its own, or brings it up to date.
	copies func(ctx context.Context, source, folder string) (cost, error)
}

// cost is what that took.
type cost struct {
	bytes     int64
	processor time.Duration
	took      time.Duration
}

func (b *bench) tools() []tool {
	return []tool{
		{"lodestone", []string{b.mover, "setpriv", "rsync"}, b.ours},
		{"rsync", []string{"rsync", "stunnel4"}, b.rsync},
		{"restic", []string{"restic", "rclone"}, b.restic},
		{"rclone", []string{"rclone"}, b.rclone},
		{"borg", []string{"borg"}, b.borg},
		{"syncthing", []string{"syncthing"}, b.syncthing},
	}
}

// packages are what Debian calls the packages of programs that are named otherwise.
var packages = map[string]string{"borg": "borgbackup", "setpriv": "util-linux"}

// chosen returns the tools that are asked for; an error says what is missing for them.
func (b *bench) chosen() (chosen []tool, err error) {
	all := b.tools()
	wanted := strings.FieldsFunc(b.only, func(r rune) bool { return r == ',' })
	for _, name := range wanted {
		if !slices.ContainsFunc(all, func(t tool) bool { return t.name == name }) {
			return nil, fmt.Errorf("there is no tool %q to measure: choose among lodestone, rsync, restic, rclone, borg and syncthing", name)
		}
	}
	var missing []string
	for _, t := range all {
		if len(wanted) > 0 && !slices.Contains(wanted, t.name) {
			continue
		}
		chosen = append(chosen, t)
		for _, program := range t.needs {
			if _, err := exec.LookPath(program); err != nil && program != b.mover {
				missing = append(missing, packageOf(program))
			} else if err != nil {
				return nil, fmt.Errorf("find the mover's program: %w; run make bench-replicas, which builds it", err)
			}
		}
	}
	if len(missing) > 0 {
		slices.Sort(missing)
		return nil, fmt.Errorf("programs to compare with are missing; install them, on Debian: apt-get install --no-install-recommends %s; "+
			"or leave them out with --only", strings.Join(slices.Compact(missing), " "))
	}
	return chosen, nil
}

func packageOf(program string) string {
	if name, ok := packages[program]; ok {
		return name
	}
	return program
}

// row is one line of the table: what a tool took to bring a copy up to date.
type row struct {
	tool, what string
	cost
}

// The measures, in their order.
const (
	firstFiles  = "first copy of the small files"
	sameFiles   = "small files, nothing changed"
	someFiles   = "small files, 1 % of them changed"
	firstLarge  = "first copy of the large file"
	sameLarge   = "large file, nothing changed"
	someOfLarge = "large file, 1 % of its pages changed"
)

func run(ctx context.Context, b *bench) (err error) {
	if os.Geteuid() != 0 {
		return errors.New("movers keep owners and modes, which takes root: run it as root")
	}
	chosen, err := b.chosen()
	if err != nil {
		return err
	}
	if b.work, err = os.MkdirTemp(b.dir, "bench-replicas-*"); err != nil {
		return fmt.Errorf("make a folder for the volumes: %w", err)
	}
	defer os.RemoveAll(b.work)
	defer b.stop()
	small, large := filepath.Join(b.work, "files"), filepath.Join(b.work, "large")
	if err := errors.Join(samples.Small(ctx, small, b.files), samples.Large(filepath.Join(large, "file"), b.size, 1)); err != nil {
		return err
	}
	var rows []row
	// All tools copy the same, one after another.
	each := func(what, source string) error {
		for _, t := range chosen {
			folder := filepath.Join(b.work, t.name, filepath.Base(source))
			if err := os.MkdirAll(folder, 0o755); err != nil {
				return fmt.Errorf("make a folder for a copy: %w", err)
			}
			// Nobody pays for the disk that another keeps busy.
			unix.Sync()
			took, err := t.copies(ctx, source, folder)
			if err != nil {
				return fmt.Errorf("%s, %s: %w", t.name, what, err)
			}
			rows = append(rows, row{t.name, what, took})
			fmt.Fprintf(os.Stderr, "%s: %s: %.1f MiB, %.1f s of processor, %.1f s\n", what, t.name, float64(took.bytes)/(1<<20),
				took.processor.Seconds(), took.took.Seconds())
		}
		return nil
	}
	var changed int64
	err = inTurn(
		func() error { return each(firstFiles, small) },
		func() error { return each(sameFiles, small) },
		func() error { return samples.ChangeSmall(small, b.files, 1) },
		func() error { return each(someFiles, small) },
		func() error { return each(firstLarge, large) },
		func() error { return each(sameLarge, large) },
		func() (err error) {
			changed, err = samples.ChangeLarge(filepath.Join(large, "file"), b.size, 1)
			return err
		},
		func() error { return each(someOfLarge, large) },
	)
	if err != nil {
		return err
	}
	if err := table(rows); err != nil {
		return err
	}
	return measure.Conclude(os.Stdout, results(rows, changed))
}

// table prints what was measured.
func table(rows []row) error {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "measure\ttool\tsent and received\tprocessor\ttime")
	for _, r := range rows {
		fmt.Fprintf(w, "%s\t%s\t%.1f MiB\t%.1f s\t%.1f s\n", r.what, r.tool, float64(r.bytes)/(1<<20), r.processor.Seconds(), r.took.Seconds())
	}
	return w.Flush() //nolint:wrapcheck // it is to standard output
}

// results are the measures with a budget: changed is how many bytes the pages have that changed.
func results(rows []row, changed int64) (found []measure.Result) {
	of := func(name, what string) (cost, bool) {
		i := slices.IndexFunc(rows, func(r row) bool { return r.tool == name && r.what == what })
		if i < 0 {
			return cost{}, false
		}
		return rows[i].cost, true
	}
	ours, ok := of("lodestone", sameFiles)
	if theirs, beside := of("rsync", sameFiles); ok && beside {
		found = append(found,
			measure.AtMost(sameFiles+": time, to rsync over stunnel", ours.took.Seconds()/theirs.took.Seconds(), 0.4, "x"),
			measure.AtMost(sameFiles+": processor, to rsync over stunnel", ours.processor.Seconds()/theirs.processor.Seconds(), 0.4, "x"),
			measure.AtMost(sameFiles+": bytes, to rsync over stunnel", float64(ours.bytes)/float64(theirs.bytes), 0.4, "x"))
	}
	if ours, ok := of("lodestone", someOfLarge); ok {
		found = append(found, measure.AtMost(someOfLarge+": bytes, to those of the pages", float64(ours.bytes)/float64(changed), 1.3, "x"))
		if theirs, beside := of("rsync", someOfLarge); beside {
			found = append(found, measure.Figure(someOfLarge+": bytes, to rsync over stunnel", float64(ours.bytes)/float64(theirs.bytes), "x"))
		}
	}
	return found
}
