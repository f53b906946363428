package main

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// usage is how much processor time each program has used, by name.
type usage map[string]time.Duration

// usageNow returns the usage of this process, which plays the real storage, and of
// the programs that it has started. It is empty where the system does not tell.
func usageNow() usage {
	used := usage{}
	self := strconv.Itoa(os.Getpid())
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range stats {
		content, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		directory := filepath.Dir(path)
		// The name, in parentheses, may hold anything; state and parent follow it.
		fields := strings.Fields(string(content[bytes.LastIndexByte(content, ')')+1:]))
		switch {
		case filepath.Base(directory) == self:
			used["benchmark and real storage"] += threadTime(directory)
		case len(fields) > 1 && fields[1] == self:
			used[nameOf(directory)] += threadTime(directory)
		}
	}
	return used
}

// threadTime sums up what the threads of a process have used.
func threadTime(directory string) time.Duration {
	var sum time.Duration
	threads, _ := filepath.Glob(directory + "/task/*/schedstat")
	for _, path := range threads {
		var used time.Duration
		if content, err := os.ReadFile(path); err == nil {
			_, _ = fmt.Sscan(string(content), &used)
		}
		sum += used
	}
	return sum
}

// nameOf returns the name of a program: of the one that a multi-call program was
// started as, where it is one.
func nameOf(directory string) string {
	content, err := os.ReadFile(directory + "/cmdline")
	if err != nil {
		return "ended"
	}
	args := strings.Split(string(content), "\x00")
	if len(args) > 1 && args[1] != "" && !strings.HasPrefix(args[1], "-") {
		return args[1]
	}
	return filepath.Base(args[0])
}

// since returns what was used after an earlier usage.
func (u usage) since(earlier usage) usage {
	used := usage{}
	for name, at := range u {
		used[name] = at - earlier[name]
	}
	return used
}

func (u usage) total() time.Duration {
	var sum time.Duration
	for _, used := range u {
		sum += used
	}
	return sum
}

// perPod lists the programs that used the most for each of n pods.
func (u usage) perPod(n int) string {
	names := slices.SortedFunc(maps.Keys(u), func(a, b string) int { return int(u[b] - u[a]) })
	var parts []string
	for _, name := range names[:min(8, len(names))] {
		parts = append(parts, fmt.Sprintf("%s %.2f", name, float64((u[name]/time.Duration(n)).Microseconds())/1000))
	}
	return strings.Join(parts, ", ") + " ms"
}
