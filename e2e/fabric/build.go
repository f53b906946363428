package fabric

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
)

// BuildProvisioner builds the provisioner for RunProvisioner and returns its
// path. The file goes with the clusters.
func (f *Fabric) BuildProvisioner(ctx context.Context) (string, error) {
	path := filepath.Join(filepath.Dir(f.Home.LogDirectory()), "lodestone-provisioner")
	build := exec.CommandContext(ctx, "go", "build", "-o", path, "./provisioner")
	build.Dir = Root()
	if output, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the provisioner: %w\n%s", err, output)
	}
	return path, nil
}
