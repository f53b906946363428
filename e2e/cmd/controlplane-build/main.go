// Command controlplane-build prints the path of the program that test beds run
// control planes from. It builds the program first if the cache does not have it.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/lodestone-storage/lodestone/e2e/testbed"
)

func main() {
	os.Exit(run())
}

func run() int {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	path, err := testbed.Binary(ctx, os.Stderr)
	if err != nil {
		fmt.Fprintln(os.Stderr, "controlplane-build:", err)
		return 1
	}
	fmt.Println(path)
	return 0
}
