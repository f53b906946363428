package testbed

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/lodestone-storage/lodestone/e2e/built"
)

// Binary returns the path of the program that is etcd, the control plane and kubectl
// in one of all clusters that are not remote: see binaryOf.
func Binary(ctx context.Context, out io.Writer) (string, error) { return binaryOf(ctx, out, "home") }

// binaryOf returns the path of the program of a cluster: $LODESTONE_CONTROLPLANE if that is set, otherwise that of
// built.Chosen, which takes several minutes to build once, and reports progress to out. A cluster is remote if
// it is called as tests call their remote clusters, west or east.
func binaryOf(ctx context.Context, out io.Writer, cluster string) (string, error) {
	if path := os.Getenv("LODESTONE_CONTROLPLANE"); path != "" {
		info, err := os.Stat(path)
		if err != nil || !info.Mode().IsRegular() || info.Mode().Perm()&0o111 == 0 {
			return "", fmt.Errorf("LODESTONE_CONTROLPLANE names %s, which is not a program: unset it or correct it", path)
		}
		return path, nil
	}
	set, err := built.Chosen(built.ControlPlane, cluster == "west" || cluster == "east")
	if err != nil {
		return "", err
	}
	directory, err := set.Build(ctx, out)
	if err != nil {
		return "", fmt.Errorf("%w; or set LODESTONE_CONTROLPLANE", err)
	}
	return filepath.Join(directory, "controlplane"), nil
}
