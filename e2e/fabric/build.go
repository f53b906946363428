package fabric

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// BuildProvisioner builds the provisioner for RunProvisioner and returns its
// path. The file goes with the clusters.
func (f *Fabric) BuildProvisioner(ctx context.Context) (string, error) {
	path := filepath.Join(filepath.Dir(f.Home.LogDirectory()), "lodestone-provisioner")
	return path, build(ctx, path, "provisioner")
}

// BuildAgent builds the remote agent for RunAgent and returns its path. The file goes
// with the clusters.
func (f *Fabric) BuildAgent(ctx context.Context) (string, error) {
	path := filepath.Join(filepath.Dir(f.Home.LogDirectory()), "lodestone-remote-agent")
	return path, build(ctx, path, "remoteagent")
}

// BuildPlugin builds kubectl-lodestone and returns its path. The file goes with the
// clusters.
func (f *Fabric) BuildPlugin(ctx context.Context) (string, error) {
	path := filepath.Join(filepath.Dir(f.Home.LogDirectory()), "kubectl-lodestone")
	return path, build(ctx, path, "kubectl-lodestone")
}

// BuildMover builds the mover for Options.Programs, where its image is called
// lodestone-mover, and returns its path. The file goes with ctx.
func BuildMover(ctx context.Context) (string, error) {
	folder, err := os.MkdirTemp("", "lodestone-mover-")
	if err != nil {
		return "", fmt.Errorf("make folder of the mover: %w", err)
	}
	context.AfterFunc(ctx, func() { _ = os.RemoveAll(folder) })
	path := filepath.Join(folder, "lodestone-mover")
	return path, build(ctx, path, "mover")
}

func build(ctx context.Context, path, program string) error {
	command := exec.CommandContext(ctx, "go", "build", "-ldflags", "-s -w", "-o", path, "./"+program) // linked in half the time
	command.Dir = Root()
	if output, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("build the %s: %w\n%s", program, err, output)
	}
	return nil
}
