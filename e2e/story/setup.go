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

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
)

// build makes the programs that the story runs.
func (s *story) build() step {
	return step{
		title: "Build the programs",
		words: "Lodestone's two programs, and one program that is etcd, the Kubernetes control plane and kubectl. What is built already is not built again.",
		acts: func() []act {
			return []act{
				s.goBuild("provisioner"), s.goBuild("extender"),
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

func program(name string) string { return filepath.Join(fabric.Root(), "bin", "lodestone-"+name) }

// goBuild builds one of Lodestone's programs, and says from time to time that it
// still does.
func (s *story) goBuild(name string) act {
	return func(ctx context.Context) error {
		started := time.Now()
		cmd := exec.CommandContext(ctx, "go", "build", "-o", program(name), "./"+name)
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
					s.console.line("    building lodestone-%s, %v so far", name, time.Since(started).Round(time.Second))
				}
			}
		}()
		output, err := cmd.CombinedOutput()
		close(done)
		if err != nil {
			return fmt.Errorf("build lodestone-%s: %w\n%s", name, err, strings.TrimSpace(string(output)))
		}
		s.console.note(fmt.Sprintf("bin/lodestone-%s is ready%s", name, duration(time.Since(started))))
		return nil
	}
}

// start starts the two clusters and installs Lodestone in them.
func (s *story) start() step {
	return step{
		title: "Start two Kubernetes clusters, home and west, and install Lodestone",
		words: "Real etcd, kube-apiserver, kube-controller-manager and kube-scheduler for each, as processes on 127.0.0.1. " +
			"There is no kubelet: nodes and pods are SIMULATED. A small program plays the nodes; it lets a pod run only if a kubelet could mount its volumes there. " +
			"In home it also plays the virtual node that stands for west, and copies that node's pods to west. The real storage classes are simulated as well.",
		acts: func() []act {
			return []act{
				func(ctx context.Context) error {
					started := time.Now()
					var err error
					if s.fabric, err = fabric.Start(ctx, fabric.Options{Zones: true}); err != nil {
						return err
					}
					s.console.tell("")
					s.console.note(fmt.Sprintf("Both are up after %.1f s. Installed with `kubectl apply -k deploy/base` in home and `kubectl apply -k deploy/remote-volumes` in west.", time.Since(started).Seconds()))
					return s.ledger.start(ctx, s.fabric.Home.Client())
				},
				s.kubectl(home, "get", "nodes", "-L", "lodestone.dev/cluster,topology.kubernetes.io/zone"),
				s.kubectl(west, "get", "nodes"),
				s.kubectl(home, "get", "storageclasses"),
			}
		},
	}
}

// The identities of the programs, as deploy/base makes them.
const (
	provisionerAccount = fabric.System + ":lodestone-provisioner"
	extenderAccount    = fabric.System + ":lodestone-extender"
)

// programs are Lodestone's own, running.
type programs struct {
	extender     *testbed.Program
	provisioners []*testbed.Program
}

// runPrograms runs Lodestone's programs.
func (s *story) runPrograms() step {
	return step{
		title: "Run Lodestone with its own rights",
		words: "The Deployments are scaled to 0, since there is no kubelet to run their containers. The same programs run as processes: " +
			"one extender, which home's kube-scheduler calls, and two provisioners, of which one leads. Each has a token of its own ServiceAccount and no other rights.",
		acts: func() []act {
			return []act{
				s.kubectl(home, "scale", "deployment", "--all", "-n", fabric.System, "--replicas=0"),
				func(ctx context.Context) (err error) {
					s.extender, err = s.fabric.RunExtender(ctx, "extender", program("extender"))
					return err
				},
				s.addProvisioner("provisioner-a"),
				s.addProvisioner("provisioner-b"),
				s.until("one of the two provisioners leads, the other is ready to take over", func(context.Context) error {
					leader, err := s.leader()
					if err == nil {
						s.console.note(fmt.Sprintf("%s leads (process %d).", leader.Name(), leader.Pid()))
					}
					return err
				}),
				s.kubectl(home, "get", "lease", "lodestone-provisioner", "-n", fabric.System, "-o", "custom-columns=LEASE:.metadata.name,HOLDER:.spec.holderIdentity"),
				s.may(home, "the provisioner makes real claims in its own namespace", "yes", "create", fabric.Storage, provisionerAccount),
				s.may(home, "and in no other", "no", "create", "shop", provisionerAccount),
				s.may(home, "the extender changes no claim", "no", "patch", "shop", extenderAccount),
			}
		},
	}
}

func (s *story) addProvisioner(name string) act {
	return func(ctx context.Context) error {
		p, err := s.fabric.RunProvisioner(ctx, name, program("provisioner"))
		if err == nil {
			s.provisioners = append(s.provisioners, p)
		}
		return err
	}
}

// leader returns the one provisioner that leads among those that run.
func (s *story) leader() (*testbed.Program, error) {
	var leaders []*testbed.Program
	for _, p := range s.provisioners {
		leads, err := fabric.Leads(p)
		if err != nil {
			return nil, err
		}
		if p.Running() && leads {
			leaders = append(leaders, p)
		}
	}
	if err := counted("leaders", len(leaders), 1); err != nil {
		return nil, err
	}
	return leaders[0], nil
}

// may checks what a ServiceAccount, namespace:name, may do to claims in a namespace.
func (s *story) may(in where, text, want, verb, namespace, account string) act {
	return func(ctx context.Context) error {
		args := []string{"auth", "can-i", verb, "persistentvolumeclaims", "-n", namespace, "--as=system:serviceaccount:" + account}
		s.console.command(string(in), s.typed(args))
		// The answer no is an exit code too.
		output, err := s.cluster(in).Kubectl(ctx, "", args...)
		s.console.output(output)
		return s.now(text, func(context.Context) error {
			if strings.TrimSpace(output) != want {
				return fmt.Errorf("the answer is %q instead of %q: %w", strings.TrimSpace(output), want, err)
			}
			return nil
		})(ctx)
	}
}

// Home's identity in west, as deploy/remote-volumes makes it.
const remoteNamespace, remoteAccount = "lodestone-remote", "lodestone-home"

// peer makes west known to home.
func (s *story) peer() step {
	return step{
		title: "Make west known to home",
		words: "A Secret with a kubeconfig that west's administrator gave away, and a RemoteCluster. In west, home may use the namespace shop and no other.",
		acts: func() []act {
			return []act{
				func(ctx context.Context) error {
					content, err := s.fabric.West.ServiceAccountKubeconfig(ctx, remoteNamespace, remoteAccount)
					if err != nil {
						return err
					}
					path, err := s.fabric.Home.WriteFile("west.kubeconfig", content)
					if err != nil {
						return err
					}
					return s.kubectl(home, "create", "secret", "generic", "west", "-n", fabric.System, "--from-file=kubeconfig="+path)(ctx)
				},
				s.apply(home, "deploy/examples/remote-cluster.yaml"),
				s.apply(west, "deploy/examples/remote-namespace.yaml"),
				s.apply(home, manifest("namespaces")),
				s.may(west, "home may make claims in namespace shop of west", "yes", "create", "shop", remoteNamespace+":"+remoteAccount),
				s.may(west, "and in no other", "no", "create", "default", remoteNamespace+":"+remoteAccount),
				s.until("RemoteCluster west is Ready", s.ready(metav1.ConditionTrue)),
				s.kubectl(home, "get", "remoteclusters"),
			}
		},
	}
}

func manifest(name string) string { return "e2e/story/manifests/" + name + ".yaml" }

// ready checks the condition Ready of RemoteCluster west.
func (s *story) ready(want metav1.ConditionStatus) probe {
	return func(ctx context.Context) error {
		remote, err := s.fabric.Remotes.Get(ctx, string(west), metav1.GetOptions{})
		if err != nil {
			return err
		}
		have := meta.FindStatusCondition(remote.Status.Conditions, v1alpha1.Ready)
		if have == nil || have.Status != want {
			return fmt.Errorf("its condition Ready is %+v", have)
		}
		return nil
	}
}
