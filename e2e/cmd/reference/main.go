// Command reference writes the pages docs/api.md and docs/flags.md: the first from the custom resource definitions,
// which controller-gen makes from the types in pkg/api, the second from the programs' flags.
package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: reference ROOT\nwrites docs/api.md and docs/flags.md in the tree at ROOT")
		os.Exit(2)
	}
	if err := write(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func write(root string) error {
	kinds, err := definitions(root)
	if err != nil {
		return err
	}
	for page, content := range map[string]func() (string, error){
		"docs/api.md":   func() (string, error) { return apiPage(kinds) },
		"docs/flags.md": flagsPage,
	} {
		text, err := content()
		if err != nil {
			return fmt.Errorf("write %s: %w", page, err)
		}
		path := filepath.Join(root, page)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return fmt.Errorf("make the folder of %s: %w", page, err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			return fmt.Errorf("write %s: %w", page, err)
		}
	}
	return nil
}

func sorted[V any](all map[string]V) []string { return slices.Sorted(maps.Keys(all)) }
