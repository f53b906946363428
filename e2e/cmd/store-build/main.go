// Command store-build prints the directories that hold restic, as in the image of the
// mover, and the object store for tests. It builds them first if the user's cache does not
// have them.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/lodestone-storage/lodestone/e2e/store"
)

func main() {
	os.Exit(run())
}

func run() int {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	programs, err := store.Build(ctx, os.Stderr)
	if err != nil {
		fmt.Fprintln(os.Stderr, "store-build:", err)
		return 1
	}
	fmt.Printf("%s\n%s\n", programs.Restic, filepath.Dir(programs.Server))
	return 0
}
