package story

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/e2e/built"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// build makes the programs that the story runs.
func (s *story) build() step {
	return step{
		title: "Build the programs",
		words: "Lodestone's programs and its kubectl plugin, and one program that is etcd, the Kubernetes control plane and kubectl. What is " +
			"built already is not built again.",
		acts: func() []act {
			return []act{
				s.goBuild("lodestone-provisioner", "provisioner"), s.goBuild("lodestone-extender", "extender"),
				s.goBuild("lodestone-virtualnode", "virtualnode"), s.goBuild("lodestone-remote-agent", "remoteagent"),
				s.goBuild("kubectl-lodestone", "kubectl-lodestone"),
				func(ctx context.Context) error {
					path, err := testbed.Binary(ctx, s.options.Out)
					if err != nil {
						return err
					}
					home, err := built.Chosen(built.ControlPlane, false)
					if err != nil {
						return err
					}
					west, err := built.Chosen(built.ControlPlane, true)
					if err != nil {
						return err
					}
					s.console.note("etcd, the control plane and kubectl " + home.Version + ": " + path)
					if west.Version != home.Version {
						s.console.note("that of west is " + west.Version)
					}
					return nil
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
			"There is no kubelet: the nodes of both clusters and what runs on them are SIMULATED. A small program plays the nodes; it lets a pod " +
			"run only if a kubelet could mount its volumes there. " +
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
					with := "virtual-node` (deploy/base with the component virtual-node)"
					if s.fabric.Webhook != nil {
						with = "virtual-node-webhook` (deploy/base with the components virtual-node, mtls and webhook)"
					}
					s.console.note(fmt.Sprintf("Both are up after %.1f s. Installed with `kubectl apply -k e2e/fabric/manifests/%s in home and "+
						"`kubectl apply -k deploy/remote` in west.", time.Since(started).Seconds(), with))
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
	virtualNode  *testbed.Program
	agent        *testbed.Program
}

func (s *story) runPrograms() step {
	return step{
		title: "Run Lodestone with its own rights",
		words: "The Deployments are scaled to 0, since there is no kubelet to run their containers. The same programs run as processes: " +
			"one extender, which home's kube-scheduler calls, two provisioners, of which one leads, the virtual node program, and in west the " +
			"remote agent. " +
			"Each has a token of its own ServiceAccount and no other rights.",
		acts: func() []act {
			return []act{
				s.kubectl(home, "scale", "deployment", "--all", "-n", fabric.System, "--replicas=0"),
				s.kubectl(west, "scale", "deployment", "--all", "-n", "lodestone-remote", "--replicas=0"),
				func(ctx context.Context) (err error) {
					s.extender, err = s.fabric.RunExtender(ctx, "extender", program("lodestone-extender"))
					return err
				},
				s.addProvisioner("provisioner-a"),
				s.addProvisioner("provisioner-b"),
				func(ctx context.Context) (err error) {
					s.virtualNode, err = s.fabric.RunVirtualNode(ctx, "virtualnode", program("lodestone-virtualnode"))
					return err
				},
				s.runAgent("remote-agent-a"),
				s.until("one of the two provisioners leads, the other is ready to take over", func(context.Context) error {
					leader, err := s.leader()
					if err == nil {
						s.console.note(fmt.Sprintf("%s leads (process %d).", leader.Name(), leader.Pid()))
					}
					return err
				}),
				s.kubectl(home, "get", "lease", "lodestone-provisioner", "-n", fabric.System, "-o",
					"custom-columns=LEASE:.metadata.name,HOLDER:.spec.holderIdentity"),
				s.may(home, "the provisioner makes real claims in its own namespace", "yes", "create", fabric.Storage, provisionerAccount),
				s.may(home, "and in no other", "no", "create", "shop", provisionerAccount),
				s.may(home, "the extender changes no claim", "no", "patch", "shop", extenderAccount),
			}
		},
	}
}

func (s *story) addProvisioner(name string) act {
	return func(ctx context.Context) error {
		p, err := s.fabric.RunProvisioner(ctx, name, program("lodestone-provisioner"))
		if err == nil {
			s.provisioners = append(s.provisioners, p)
		}
		return err
	}
}

func (s *story) runAgent(name string) act {
	return func(ctx context.Context) (err error) {
		s.agent, err = s.fabric.RunAgent(ctx, name, program("lodestone-remote-agent"))
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

// running are the programs that were not killed by the story itself.
func (s *story) running() []*testbed.Program {
	return append([]*testbed.Program{s.extender, s.virtualNode, s.agent}, s.provisioners...)
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

const (
	bold  = "1"
	green = "32"
	red   = "31"
	cyan  = "36"
	faint = "2"
)

// console writes the story, in colours only on a terminal. It may be used
// concurrently.
type console struct {
	mu      sync.Mutex
	out     io.Writer
	colours bool
	terse   bool
}

func newConsole(out io.Writer, terse bool) *console {
	return &console{out: out, colours: isTerminal(out), terse: terse}
}

func isTerminal(out io.Writer) bool {
	file, ok := out.(*os.File)
	if !ok || os.Getenv("NO_COLOR") != "" || os.Getenv("TERM") == "dumb" {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

func (c *console) paint(colour, text string) string {
	if !c.colours {
		return text
	}
	return "\x1b[" + colour + "m" + text + "\x1b[0m"
}

// line writes one line, whatever the mode.
func (c *console) line(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	fmt.Fprintf(c.out, format+"\n", args...)
}

// tell writes a line that the terse mode leaves out.
func (c *console) tell(format string, args ...any) {
	if !c.terse {
		c.line(format, args...)
	}
}

func (c *console) title(number int, title, words string) {
	c.tell("")
	c.line("%s", c.paint(bold, fmt.Sprintf("%2d. %s", number, title)))
	for _, line := range wrap(words, 96) {
		c.tell("    %s", line)
	}
}

func (c *console) note(text string) {
	for _, line := range wrap(text, 96) {
		c.tell("    %s", line)
	}
}

func (c *console) command(cluster, command string) {
	c.tell("")
	c.tell("    %s %s", c.paint(cyan, cluster+"$"), command)
}

func (c *console) output(text string) {
	text = strings.TrimRight(text, "\n")
	if text == "" {
		return
	}
	for line := range strings.SplitSeq(text, "\n") {
		c.tell("    %s", strings.TrimRight(line, " "))
	}
}

func (c *console) ok(text string, took time.Duration) {
	c.line("    %s %s%s", c.paint(green, "ok:"), text, c.paint(faint, duration(took)))
}

func (c *console) failed(text string, err error) {
	c.line("    %s %s", c.paint(red, "FAILED:"), text)
	for line := range strings.SplitSeq(err.Error(), "\n") {
		c.line("            %s", line)
	}
}

func (c *console) waiting(text string) {
	c.line("    %s", c.paint(faint, "waiting until: "+text))
}

// duration is shown for what took long enough to be of interest.
func duration(took time.Duration) string {
	if took < 100*time.Millisecond {
		return ""
	}
	return fmt.Sprintf(" (%.1f s)", took.Seconds())
}

// wrap breaks text, whatever its line breaks, into lines of at most width.
func wrap(text string, width int) []string {
	var lines []string
	line := ""
	for _, word := range strings.Fields(text) {
		if line != "" && len(line)+1+len(word) > width {
			lines = append(lines, line)
			line = ""
		}
		line = strings.TrimPrefix(line+" "+word, " ")
	}
	if line != "" {
		lines = append(lines, line)
	}
	return lines
}

// peer makes west known to home.
func (s *story) peer() step {
	return step{
		title: "Make west known to home",
		words: "One command, with the rights of somebody who administers both clusters. In west it says what home may do there (a " +
			"HomeCluster); at home it makes " +
			"the Secret with home's identity in west, and the RemoteCluster. A virtual node then stands for west, and a namespace that is open to " +
			"other clusters is made there.",
		acts: func() []act {
			return []act{
				func(context.Context) (err error) {
					s.contexts, err = s.fabric.Contexts()
					return err
				},
				s.plugin("peer", "--remote-context", "west", "--namespaces", "*"),
				s.apply(manifest("namespaces")),
				s.until("RemoteCluster west is Ready", s.ready(metav1.ConditionTrue)),
				s.until("the virtual node west is Ready", s.nodeReady(corev1.ConditionTrue)),
				s.until("namespace shop, which is open to other clusters, is made in west", s.namespaceIn("shop")),
				s.kubectl(west, "get", "homeclusters,namespacerequests", "-A"),
				func(ctx context.Context) error {
					id, err := s.fabric.HomeID(ctx)
					if err != nil {
						return err
					}
					identity := keys.TenantPrefix + id + ":" + keys.HomeAccount
					if err := s.until("home may make claims in namespace shop of west", s.allowed("shop", identity))(ctx); err != nil {
						return err
					}
					return s.may(west, "and in no other", "no", "create", "default", identity)(ctx)
				},
				s.plugin("status"),
				s.kubectl(home, "get", "nodes", "-L", "lodestone.dev/cluster,topology.kubernetes.io/zone"),
			}
		},
	}
}

// plugin runs a command of the kubectl plugin with both clusters' contexts, and
// shows it as a user would type it, with its output.
func (s *story) plugin(args ...string) act {
	return func(ctx context.Context) error {
		s.console.command(string(home), s.typed(append([]string{"lodestone"}, args...)))
		cmd := exec.CommandContext(ctx, program("kubectl-lodestone"), args...)
		cmd.Env = append(os.Environ(), "KUBECONFIG="+s.contexts, "KUBECACHEDIR="+filepath.Join(filepath.Dir(s.contexts), "cache"))
		output, err := cmd.CombinedOutput()
		s.console.output(string(output))
		if err != nil {
			return fmt.Errorf("kubectl lodestone %s: %w\n%s", strings.Join(args, " "), err, output)
		}
		return nil
	}
}

// allowed checks that an identity may make claims in a namespace of west.
func (s *story) allowed(namespace, account string) probe {
	return func(ctx context.Context) error {
		_, err := s.fabric.West.Kubectl(ctx, "", "auth", "can-i", "create", "persistentvolumeclaims", "-n", namespace,
			"--as=system:serviceaccount:"+account)
		return err
	}
}

// namespaceIn checks that a namespace of west was made for home.
func (s *story) namespaceIn(name string) probe {
	return func(ctx context.Context) error {
		namespace, err := s.fabric.West.Client().CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
		if err == nil && namespace.Labels[keys.HomeID] == "" {
			err = fmt.Errorf("namespace %s of west is not home's", name)
		}
		return err
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

// nodeReady checks the condition Ready of the virtual node west.
func (s *story) nodeReady(want corev1.ConditionStatus) probe {
	return func(ctx context.Context) error {
		node, err := s.fabric.Home.Client().CoreV1().Nodes().Get(ctx, string(west), metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, condition := range node.Status.Conditions {
			if condition.Type == corev1.NodeReady && condition.Status == want {
				return nil
			}
		}
		return fmt.Errorf("its condition Ready is not %s", want)
	}
}

// settle looks back on the whole story.
func (s *story) settle() step {
	return step{
		title: "What must be true at the end",
		words: "The played kubelets noted every pod that was ever put on a node where its volume cannot be mounted.",
		acts: func() []act {
			acts := []act{
				s.now("no pod was ever put where its volume is not", func(context.Context) error {
					found := append(s.fabric.HomeNodes.Violations(), s.fabric.WestNodes.Violations()...)
					if len(found) > 0 {
						return fmt.Errorf("%d were, the first: %v", len(found), found[0])
					}
					return nil
				}),
				s.until("home has one backing claim and one real volume for each virtual volume, and no more", s.balanced(home)),
				s.until("so has west", s.balanced(west)),
				s.now("no program of Lodestone ended by itself", func(context.Context) error {
					for _, p := range s.running() {
						if !p.Running() {
							return fmt.Errorf("%s did", p.Name())
						}
					}
					return nil
				}),
			}
			if s.options.Keep {
				return acts
			}
			return append(acts, s.now("each ends within 10 s of SIGTERM, with exit code 0", func(context.Context) error {
				for _, p := range s.running() {
					if err := p.Stop(10 * time.Second); err != nil {
						return err
					}
				}
				return nil
			}))
		},
	}
}
