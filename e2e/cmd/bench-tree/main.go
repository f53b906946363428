// Command bench-tree measures how long the mover's scan of a volume takes and how
// much memory, beside rsync on the same trees: many small files, large files, one
// directory with very many names. Each measurement is a process of its own. It
// prints a table.
package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/lodestone-storage/lodestone/e2e/command"
	"github.com/lodestone-storage/lodestone/mover/tree"
)

func main() {
	command.Main(func(ctx context.Context) error { return run(ctx, os.Args[1:]) })
}

func run(ctx context.Context, arguments []string) error {
	if len(arguments) == 4 && arguments[0] == "scan" {
		return scan(ctx, arguments[1], arguments[2], arguments[3])
	}
	flags := flag.NewFlagSet("bench-tree", flag.ContinueOnError)
	dir := flags.String("dir", os.TempDir(), "directory for the trees; it needs about 9 GiB")
	small := flags.Int("small", 100000, "number of small files of 4,000 bytes, 1,000 in each directory")
	large := flags.Int("large", 4, "number of files of 1 GiB")
	names := flags.Int("names", 1000000, "number of names in one directory, two for each empty file")
	if err := flags.Parse(arguments); err != nil {
		return err
	}
	work, err := os.MkdirTemp(*dir, "bench-tree-*")
	if err != nil {
		return fmt.Errorf("make a directory for the trees: %w", err)
	}
	defer os.RemoveAll(work)
	fmt.Println("| tree | what | time | peak memory | read |\n| --- | --- | --- | --- | --- |")
	for _, t := range []sample{
		{fmt.Sprintf("%d small files", *small), *small, smallFiles},
		{fmt.Sprintf("%d × 1 GiB", *large), *large, largeFiles},
		{fmt.Sprintf("%d names of half as many files in one directory", *names), *names, manyNames},
	} {
		if t.n == 0 {
			continue
		}
		if err := t.measure(ctx, work); err != nil {
			return fmt.Errorf("%s: %w", t.name, err)
		}
	}
	return nil
}

// sample is a tree to measure.
type sample struct {
	name string
	n    int
	fill func(dir string, n int) error
}

// measure scans a tree twice and copies it with rsync twice.
func (s sample) measure(ctx context.Context, work string) error {
	dir, err := os.MkdirTemp(work, "tree-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	source, target, scratch := filepath.Join(dir, "source"), filepath.Join(dir, "target"), filepath.Join(dir, "scratch")
	for _, dir := range []string{source, target, scratch} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			return err
		}
	}
	if err := s.fill(source, s.n); err != nil {
		return fmt.Errorf("make the tree: %w", err)
	}
	// What changed just now counts as unsettled: a rescan would read it again.
	time.Sleep(3 * time.Second)
	self, err := os.Executable()
	if err != nil {
		return err
	}
	manifest := filepath.Join(scratch, "manifest")
	copying := []string{"rsync", "-aHAXS", "--numeric-ids", "--modify-window=-1", source + "/", target + "/"}
	for _, m := range []struct {
		what    string
		command []string
	}{
		{"scan, everything read", []string{self, "scan", source, manifest, ""}},
		{"scan again, nothing changed", []string{self, "scan", source, manifest, manifest}},
		{"rsync -aHAXS, a copy", copying},
		{"rsync -aHAXS, nothing changed", copying},
	} {
		if err := s.one(ctx, m.what, m.command); err != nil {
			return err
		}
	}
	return nil
}

// one runs one command and prints a line of the table.
func (s sample) one(ctx context.Context, what string, command []string) error {
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	var complaints bytes.Buffer
	cmd.Stderr = &complaints
	start := time.Now()
	output, err := cmd.Output()
	took := time.Since(start)
	if err != nil {
		return fmt.Errorf("%s: %w: %.300s", filepath.Base(command[0]), err, complaints.String())
	}
	memory, read := "", ""
	if len(output) > 0 {
		var d done
		if err := json.Unmarshal(output, &d); err != nil {
			return fmt.Errorf("read what a scan says: %w", err)
		}
		memory = d.Peak
		read = fmt.Sprintf("%d MiB of %d files", d.Summary.ReadBytes>>20, d.Summary.ReadFiles)
	}
	fmt.Printf("| %s | %s | %.2f s | %s | %s |\n", s.name, what, took.Seconds(), memory, read)
	return nil
}

// done is what a scan's process says at its end. It tells its memory itself: what the
// kernel tells its parent includes the parent's own.
type done struct {
	Summary tree.Summary
	Peak    string
}

// scan is what a process of its own does.
func scan(ctx context.Context, root, manifest, previous string) error {
	summary, err := tree.Scan(ctx, tree.Options{
		Root: root, Manifest: manifest, Previous: previous, Scratch: filepath.Dir(manifest),
	})
	if err != nil {
		return err
	}
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return fmt.Errorf("ask for the memory that was used: %w", err)
	}
	_, rest, _ := strings.Cut(string(status), "VmHWM:")
	peak, _, _ := strings.Cut(strings.TrimSpace(rest), "\n")
	return json.NewEncoder(os.Stdout).Encode(done{Summary: summary, Peak: peak})
}

// noise is content that does not compress and differs from file to file.
func noise(seed int) io.Reader {
	var key [32]byte
	binary.LittleEndian.PutUint64(key[:], uint64(seed))
	return rand.NewChaCha8(key)
}

func write(path string, seed int, size int64) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	if _, err := io.Copy(f, bufio.NewReaderSize(io.LimitReader(noise(seed), size), 1<<20)); err != nil {
		f.Close()
		return err
	}
	return f.Close()
}

// smallFiles makes files of 4,000 bytes, a thousand in each directory.
func smallFiles(dir string, n int) error {
	for i := range n {
		in := filepath.Join(dir, fmt.Sprintf("d%04d", i/1000))
		if i%1000 == 0 {
			if err := os.Mkdir(in, 0o755); err != nil {
				return err
			}
		}
		if err := write(filepath.Join(in, fmt.Sprintf("file-%07d", i)), i, 4000); err != nil {
			return err
		}
	}
	return nil
}

func largeFiles(dir string, n int) error {
	for i := range n {
		if err := write(filepath.Join(dir, fmt.Sprintf("file-%d", i)), i, 1<<30); err != nil {
			return err
		}
	}
	return nil
}

// manyNames makes empty files in one directory, each with a second name: the most
// that names and hard links can ask of memory.
func manyNames(dir string, n int) error {
	for i := range n / 2 {
		first := filepath.Join(dir, fmt.Sprintf("a-name-of-usual-length-%08d", i))
		if err := os.WriteFile(first, nil, 0o644); err != nil {
			return err
		}
		if err := os.Link(first, filepath.Join(dir, fmt.Sprintf("the-second-name-of-it-%08d", n-i))); err != nil {
			return err
		}
	}
	return nil
}
