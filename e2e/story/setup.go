package story

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
)

// build makes the programs that the story runs.
func (s *story) build() step {
	return step{
		title: "Build the programs",
		words: "Lodestone's programs and its kubectl plugin, and one program that is etcd, the Kubernetes control plane and kubectl. What is built already is not built again.",
		acts: func() []act {
			return []act{
				s.goBuild("lodestone-provisioner", "provisioner"), s.goBuild("lodestone-extender", "extender"),
				s.goBuild("lodestone-virtualnode", "virtualnode"), s.goBuild("lodestone-remote-agent", "remoteagent"),
				s.goBuild("kubectl-lodestone", "kubectl-lodestone"),
				func(ctx context.Context) error {
					path, err := testbed.Binary(ctx, s.options.Out)
					if err == nil {
						s.console.note("etcd, the control plane and kubectl " + testbed.KubernetesVersion + ": " + path)
					}
					return err
				},
			}
		},
	}
}

func program(name string) string { return filepath.Join(fabric.Root(), "bin", name) }

// goBuild builds one of Lodestone's programs from its folder, and says from time
// to time that it still does.
func (s *story) goBuild(name, folder string) act {
	return func(ctx context.Context) error {
		started := time.Now()
		cmd := exec.CommandContext(ctx, "go", "build", "-o", program(name), "./"+folder)
		cmd.Dir = fabric.Root()
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		// The compilers that go starts are stopped with it.
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
		done := make(chan struct{})
		go func() {
			for {
				select {
				case <-done:
					return
				case <-time.After(10 * time.Second):
					s.console.line("    building %s, %v so far", name, time.Since(started).Round(time.Second))
				}
			}
		}()
		output, err := cmd.CombinedOutput()
		close(done)
		if err != nil {
			return fmt.Errorf("build %s: %w\n%s", name, err, strings.TrimSpace(string(output)))
		}
		s.console.note(fmt.Sprintf("bin/%s is ready%s", name, duration(time.Since(started))))
		return nil
	}
}

// start starts the two clusters and installs Lodestone in them.
func (s *story) start() step {
	return step{
		title: "Start two Kubernetes clusters, home and west, and install Lodestone",
		words: "Real etcd, kube-apiserver, kube-controller-manager and kube-scheduler for each, as processes on 127.0.0.1. " +
			"There is no kubelet: the nodes of both clusters and what runs on them are SIMULATED. A small program plays the nodes; it lets a pod run only if a kubelet could mount its volumes there. " +
			"The real storage classes are simulated as well.",
		acts: func() []act {
			return []act{
				func(ctx context.Context) error {
					started := time.Now()
					var err error
					if s.fabric, err = fabric.Start(ctx, fabric.Options{Zones: true, Agent: true, VirtualNode: true}); err != nil {
						return err
					}
					s.console.tell("")
					s.console.note(fmt.Sprintf("Both are up after %.1f s. Installed with `kubectl apply -k e2e/fabric/manifests/virtual-node` (deploy/base with the component virtual-node) in home and `kubectl apply -k deploy/remote` in west.", time.Since(started).Seconds()))
					return s.ledger.start(ctx, s.fabric.Home.Client())
				},
				s.kubectl(home, "get", "nodes", "-L", "lodestone.dev/cluster,topology.kubernetes.io/zone"),
				s.kubectl(west, "get", "nodes"),
				s.kubectl(home, "get", "storageclasses"),
			}
		},
	}
}
