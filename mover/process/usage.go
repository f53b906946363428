package process

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"time"
)

// Usage is what a process has done so far, with all its threads, without its children.
type Usage struct {
	// Moved is how many bytes it has read and written, in files, connections and pipes.
	Moved int64
	// CPU is how long it has computed, in hundredths of a second.
	CPU time.Duration
}

// tick is in what the kernel counts for programs, on every machine that Go knows.
const tick = time.Second / 100

// UsageOf reads what a process has done. It fails where the kernel does not tell, and once
// the process has ended.
func UsageOf(pid int) (Usage, error) {
	counts, err := os.ReadFile(fmt.Sprintf("/proc/%d/io", pid))
	if err != nil {
		return Usage{}, fmt.Errorf("read what a program has moved: %w", err)
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return Usage{}, fmt.Errorf("read how long a program has computed: %w", err)
	}
	return usage(counts, stat)
}

// usage understands the files io and stat of a process.
func usage(counts, stat []byte) (Usage, error) {
	var used Usage
	found := 0
	for line := range bytes.Lines(counts) {
		name, value, _ := bytes.Cut(line, []byte(": "))
		if string(name) != "rchar" && string(name) != "wchar" {
			continue
		}
		n, err := strconv.ParseInt(string(bytes.TrimSpace(value)), 10, 64)
		if err != nil {
			return Usage{}, fmt.Errorf("read what a program has moved: %w", err)
		}
		used.Moved += n
		found++
	}
	// The name of a program, in parentheses, may have spaces and parentheses of its own.
	// The fields after it begin with the third; the 14th and 15th are times.
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if found != 2 || len(fields) < 13 {
		return Usage{}, fmt.Errorf("the kernel tells of a program %q and %q", counts, stat)
	}
	for _, field := range fields[11:13] {
		n, err := strconv.ParseInt(string(field), 10, 64)
		if err != nil {
			return Usage{}, fmt.Errorf("read how long a program has computed: %w", err)
		}
		used.CPU += time.Duration(n) * tick
	}
	return used, nil
}
