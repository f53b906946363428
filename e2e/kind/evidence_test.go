package kind

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// evidence is what is kept of a failed test, a file each; the first argument is the
// name of the file.
var evidence = [][]string{
	{"objects.txt", "get", "nodes,pods,pvc,pv,statefulsets,services,endpointslices,namespaces", "-A", "-o", "wide"},
	{"objects.yaml", "get", "nodes,pods,pvc,pv,namespaces", "-A", "-o", "yaml"},
	{"events.txt", "get", "events", "-A", "--sort-by=.lastTimestamp"},
	{"volumemoves.yaml", "get", "volumemoves,volumereplicas", "-A", "-o", "yaml"},
	{"movers.log", "logs", "-n", storage, "-l", keys.MoveOf, "--tail=-1", "--prefix"},
	{"remoteclusters.yaml", "get", "remoteclusters", "-o", "yaml"},
	{"shadowpods.yaml", "get", "homeclusters,namespacerequests,shadowpods", "-A", "-o", "yaml"},
	{"provisioner.log", "logs", "-n", system, "-l", "app.kubernetes.io/component=provisioner", "--tail=-1", "--prefix"},
	{"extender.log", "logs", "-n", system, "-l", "app.kubernetes.io/component=extender", "--tail=-1", "--prefix"},
	{"virtualnode.log", "logs", "-n", system, "-l", "app.kubernetes.io/component=virtualnode", "--tail=-1", "--prefix"},
	{"agent.log", "logs", "-n", "lodestone-remote", "-l", "app.kubernetes.io/component=remote-agent", "--tail=-1", "--prefix"},
	{"scheduler.log", "logs", "-n", "kube-system", "-l", "component=kube-scheduler", "--tail=-1"},
}

var unsuitable = regexp.MustCompile(`[^A-Za-z0-9_.-]+`)

// keepEvidence writes the state of the clusters to bin/results/e2e-logs.
func keepEvidence(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	// A cluster that is still paused would answer nothing.
	_ = west.container(ctx, "unpause")
	for _, c := range every() {
		directory := filepath.Join("..", "..", "bin", "results", "e2e-logs", unsuitable.ReplaceAllString(t.Name(), "-"), c.name)
		if err := os.MkdirAll(directory, 0o755); err != nil {
			t.Logf("The state of %s cannot be kept: %v", c.name, err)
			continue
		}
		for _, args := range evidence {
			// Not every cluster has every kind: then there is nothing to keep.
			if output, err := c.try(ctx, "", args[1:]...); err == nil && output != "" {
				_ = os.WriteFile(filepath.Join(directory, args[0]), []byte(output), 0o644)
			}
		}
		if output, err := c.inNode(ctx, "journalctl", "-u", "kubelet", "--no-pager", "-n", "3000"); err == nil {
			_ = os.WriteFile(filepath.Join(directory, "kubelet.log"), []byte(output), 0o644)
		}
		t.Logf("The state of %s is in %s.", c.name, directory)
	}
}
