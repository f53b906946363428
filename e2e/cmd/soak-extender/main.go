// Command soak-extender drives the extender's program with as many requests as a
// cluster makes in a day, as fast as it can, while objects change, connections are
// lost and some requests are malformed. It watches the program's memory, goroutines
// and files, prints one JSON object a measure, and ends with status 1 if one grew or
// if a request got another answer than it should.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

// day is how many requests a cluster makes in one: it starts 5 pods in a second, and
// kube-scheduler filters and prioritizes for each of them.
const day = 24 * 60 * 60 * 5 * 2

func main() {
	var s soak
	flag.IntVar(&s.requests, "requests", day, "how many requests to make; the default is that of a day with 5 new pods in a second")
	flag.IntVar(&s.names, "names", 100, "how many nodes each request names")
	flag.IntVar(&s.claims, "claims", 10_000, "how many claims the cluster has")
	flag.IntVar(&s.workers, "workers", 4, "how many requests are made at once")
	flag.Parse()
	if err := run(&s); err != nil {
		fmt.Fprintln(os.Stderr, "soak-extender:", err)
		os.Exit(1)
	}
}

func run(s *soak) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	directory, err := os.MkdirTemp("", "soak-extender-")
	if err != nil {
		return fmt.Errorf("make a directory: %w", err)
	}
	defer os.RemoveAll(directory)
	extender, err := startExtender(ctx, directory, s.claims)
	if err != nil {
		return err
	}
	defer extender.stop()
	return s.run(ctx, extender)
}

func say(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }
