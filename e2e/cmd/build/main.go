// Command build prints the directories that hold the sets of programs that it is given the
// names of. It builds those that the user's cache does not have.
package main

import (
	"context"
	"fmt"
	"os"
	"slices"

	"github.com/lodestone-storage/lodestone/e2e/built"
	"github.com/lodestone-storage/lodestone/e2e/command"
)

func main() {
	command.Main(func(ctx context.Context) error { return run(ctx, os.Args[1:]) })
}

func run(ctx context.Context, names []string) error {
	sets := built.Sets()
	for _, name := range names {
		i := slices.IndexFunc(sets, func(s built.Set) bool { return s.Name == name })
		if i < 0 {
			return fmt.Errorf("there is no set of programs %q", name)
		}
		chosen := []built.Set{sets[i]}
		if name == built.ControlPlane.Name || name == built.Node.Name {
			var err error
			if chosen, err = ofKubernetes(sets[i]); err != nil {
				return err
			}
		}
		for _, set := range chosen {
			directory, err := set.Build(ctx, os.Stderr)
			if err != nil {
				return err
			}
			fmt.Println(directory)
		}
	}
	return nil
}

// ofKubernetes returns a set of the Kubernetes of home, and that of remote clusters if it is another one.
func ofKubernetes(set built.Set) ([]built.Set, error) {
	home, err := built.Chosen(set, false)
	if err != nil {
		return nil, err
	}
	remote, err := built.Chosen(set, true)
	if err != nil || remote.Version == home.Version {
		return []built.Set{home}, err
	}
	return []built.Set{home, remote}, nil
}
