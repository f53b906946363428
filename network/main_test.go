package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/lodestone-storage/lodestone/e2e/netlab"
)

// beside is how many tests run beside each other. Each has a lab of its own, whose programs wait for most of the time: a lab has a
// processor busy for a fifth of it.
const beside = 4

// patience is how long tests wait for what has to come. On a busy machine that may be long.
const patience = time.Minute

// program is what all labs run. It is built by the first that needs it, and is gone with the tests.
var program = sync.OnceValues(func() (string, error) { return netlab.Build(context.Background(), programDir) })

// programDir is for program; TestMain makes it.
var programDir string

func TestMain(m *testing.M) {
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M) (code int, err error) {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given {
		if err := flag.Set("test.parallel", fmt.Sprint(beside)); err != nil {
			return 0, err
		}
	}
	if programDir, err = os.MkdirTemp("", "lodestone-network-*"); err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(programDir)) }()
	if err := os.Chmod(programDir, 0o755); err != nil { // agents have a user of their own
		return 0, err
	}
	return m.Run(), nil
}
