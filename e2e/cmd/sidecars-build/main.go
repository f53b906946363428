// Command sidecars-build builds the CSI driver for tests and the CSI sidecars into
// the user's cache, if they are not there.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/lodestone-storage/lodestone/e2e/sidecars"
)

func main() {
	os.Exit(run())
}

func run() int {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	if _, err := sidecars.Build(ctx, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "sidecars-build:", err)
		return 1
	}
	return 0
}
