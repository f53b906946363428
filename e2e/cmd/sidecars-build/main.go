// Command sidecars-build prints the directories that hold the CSI driver for tests
// and the CSI sidecars. It builds them first if the user's cache does not have them.
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
	programs, err := sidecars.Build(ctx, os.Stderr)
	if err != nil {
		fmt.Fprintln(os.Stderr, "sidecars-build:", err)
		return 1
	}
	for _, directory := range programs.Directories() {
		fmt.Println(directory)
	}
	return 0
}
