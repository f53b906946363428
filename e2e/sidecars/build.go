package sidecars

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/lodestone-storage/lodestone/e2e/built"
)

// Programs are the directories that hold the built programs.
type Programs struct {
	disk, volumes, snapshots string
}

// Directories returns them: that of the driver, and those of the sidecars. One has
// the folder crd, with the custom resources of snapshots.
func (p Programs) Directories() []string { return []string{p.disk, p.volumes, p.snapshots} }

// Build returns the programs: from the user's cache, or built, which takes a few
// minutes once and is told to out. Callers in several processes do no harm to each
// other: one builds, the others wait.
func Build(ctx context.Context, out io.Writer) (Programs, error) {
	var p Programs
	for _, m := range []struct {
		built.Module
		into *string
	}{
		{built.Module{Name: "csi-disk", Folder: "e2e/disk", Target: "."}, &p.disk},
		{built.Module{Name: "csi-volumes", Folder: "e2e/sidecars/volumes", Target: "tool"}, &p.volumes},
		{built.Module{Name: "csi-snapshots", Folder: "e2e/sidecars/snapshots", Target: "tool", Extra: copyDefinitions}, &p.snapshots},
	} {
		path, err := m.Build(ctx, out)
		if err != nil {
			return p, fmt.Errorf("build the programs of %s: %w", m.Folder, err)
		}
		*m.into = path
	}
	return p, nil
}

// copyDefinitions copies the custom resource definitions of snapshots out of the
// module that has them.
func copyDefinitions(ctx context.Context, sources, into string) error {
	from, err := built.Go(ctx, sources, "list", "-m", "-f", "{{.Dir}}", "github.com/kubernetes-csi/external-snapshotter/client/v8")
	if err != nil {
		return err
	}
	if err := os.CopyFS(filepath.Join(into, definitions), os.DirFS(filepath.Join(from, "config", "crd"))); err != nil {
		return fmt.Errorf("copy the custom resource definitions: %w", err)
	}
	return nil
}

// definitions is the folder of the custom resource definitions.
const definitions = "crd"
