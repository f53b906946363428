// Package store is an object store for tests: restic's own REST server on loopback, with
// TLS and a password, and the restic that movers use with it. Both are built from Go
// modules: that of restic is the one of the mover's image.
package store

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/lodestone-storage/lodestone/e2e/built"
)

// Programs are the two programs.
type Programs struct {
	// Restic is the directory of restic, Server the program rest-server.
	Restic, Server string
}

// Build returns the programs: from the user's cache, or built, which takes a few minutes
// once and is told to out.
func Build(ctx context.Context, out io.Writer) (Programs, error) {
	restic, err := BuildRestic(ctx, out)
	if err != nil {
		return Programs{}, err
	}
	server, err := built.Module{Name: "rest-server", Folder: "e2e/store/server", Target: "tool"}.Build(ctx, out)
	if err != nil {
		return Programs{}, fmt.Errorf("build rest-server: %w", err)
	}
	return Programs{Restic: restic, Server: filepath.Join(server, "rest-server")}, nil
}

// BuildRestic returns the directory of restic, as Build does.
func BuildRestic(ctx context.Context, out io.Writer) (string, error) {
	directory, err := built.Module{Name: "restic", Folder: "mover/restic/program", Target: "tool"}.Build(ctx, out)
	if err != nil {
		return "", fmt.Errorf("build restic: %w", err)
	}
	return directory, nil
}

// First has movers that this process starts find this restic before any other.
func (p Programs) First() error {
	return os.Setenv("PATH", p.Restic+string(os.PathListSeparator)+os.Getenv("PATH"))
}
