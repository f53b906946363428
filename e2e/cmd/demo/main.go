// Command demo tells what Lodestone does, step by step, on two real control
// planes on loopback, and checks what it tells.
package main

import (
	"context"
	"errors"
	"flag"
	"os"
	"os/signal"
	"syscall"

	"github.com/lodestone-storage/lodestone/e2e/story"
)

func main() {
	os.Exit(run())
}

func run() int {
	check := flag.Bool("check", false, "show nothing but titles and checks")
	keep := flag.Bool("keep", os.Getenv("KEEP") != "" && os.Getenv("KEEP") != "0",
		"leave everything running at the end, until Ctrl-C (default: whether KEEP is set)")
	flag.Parse()
	// A closed pipe ends the story like an interrupt: everything is to be stopped.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGPIPE)
	defer stop()
	err := story.Run(ctx, story.Options{Out: os.Stdout, Terse: *check, Keep: *keep})
	switch {
	case errors.Is(err, context.Canceled):
		return 130
	case err != nil:
		return 1
	}
	return 0
}
