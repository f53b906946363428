package story

import (
	"context"
	"fmt"
	"strings"

	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
)

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

// runPrograms runs Lodestone's programs.
func (s *story) runPrograms() step {
	return step{
		title: "Run Lodestone with its own rights",
		words: "The Deployments are scaled to 0, since there is no kubelet to run their containers. The same programs run as processes: " +
			"one extender, which home's kube-scheduler calls, two provisioners, of which one leads, the virtual node program, and in west the remote agent. " +
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
