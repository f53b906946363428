package testbed

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// writeKubectl writes a command that runs kubectl with all rights on this cluster.
func (c *Cluster) writeKubectl() error {
	script := fmt.Sprintf("#!/bin/sh\nKUBECACHEDIR='%s' exec '%s' kubectl --kubeconfig '%s' \"$@\"\n",
		c.dir.file("kubectl-cache"), c.binary, c.Kubeconfig())
	if err := os.WriteFile(c.KubectlPath(), []byte(script), 0o755); err != nil {
		return fmt.Errorf("write the kubectl command: %w", err)
	}
	return nil
}

// KubectlPath returns the path of a command that runs kubectl with all rights on
// this cluster.
func (c *Cluster) KubectlPath() string { return c.dir.file("kubectl") }

// Kubectl runs kubectl with all rights on this cluster, with stdin as its standard
// input, and returns its standard output. The error holds what it wrote to standard
// error.
func (c *Cluster) Kubectl(ctx context.Context, stdin string, args ...string) (string, error) {
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, c.KubectlPath(), args...)
	cmd.Stdin = strings.NewReader(stdin)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return stdout.String(), fmt.Errorf("kubectl %s in cluster %s: %w: %s",
			strings.Join(args, " "), c.Name(), err, strings.TrimSpace(stderr.String()))
	}
	return stdout.String(), nil
}
