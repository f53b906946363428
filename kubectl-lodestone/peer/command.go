// Package peer makes a remote cluster known to home, and home to it.
package peer

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/access"
	"github.com/lodestone-storage/lodestone/kubectl-lodestone/progress"
)

// attempts is how often all is looked at anew when somebody else wrote meanwhile.
const attempts = 4

// New returns the command.
func New(flags *genericclioptions.ConfigFlags, streams genericiooptions.IOStreams) *cobra.Command {
	o := NewOptions()
	command := &cobra.Command{
		Use:   "peer --remote-context <context>",
		Short: "Let pods and volumes of this cluster be in another one",
		Long: `Peer lets pods and volumes of the home cluster (kubectl's current context, or
--context) be in a remote cluster (--remote-context). It works with your own
rights in both clusters and gives home an identity of its own there.

Before it, Lodestone must be installed at home (deploy/overlays) and the remote
agent in the remote cluster (deploy/remote). Peer makes a HomeCluster there, which
says what home may do, and a Secret and a RemoteCluster at home; then it waits
until both sides are ready. It may be stopped and run again at any time: it goes on
where it stopped. Run again with other flags it changes what they say.`,
		Example: `  # Peer with the cluster of context west, by the name west
  kubectl lodestone peer --remote-context west

  # Take at most 4 CPUs and 8 GiB of it, in namespaces that begin with shop-
  kubectl lodestone peer --remote-context west --offer cpu=4,memory=8Gi --namespaces 'shop-*'

  # Home's pods reach its API server at another address than you do
  kubectl lodestone peer --remote-context kind-west --name west --remote-server https://west-control-plane:6443

  # Log in with a client certificate in place of a token
  kubectl lodestone peer --remote-context west --auth certificate

  # New credentials for a peering that exists
  kubectl lodestone peer --remote-context west --renew

  # Only show what would be made there
  kubectl lodestone peer --remote-context west --dry-run=client --for remote -o yaml`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.Complete(); err != nil {
				return err
			}
			home, err := access.Home(flags)
			if err != nil {
				return err
			}
			remote, err := access.Remote(flags, o.RemoteKubeconfig, o.RemoteContext)
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), o.Timeout)
			defer cancel()
			p := &peering{Options: *o, home: home, remote: remote, Reporter: progress.Reporter{Out: streams.ErrOut}, out: streams}
			return p.run(ctx)
		},
	}
	o.AddFlags(command.Flags())
	for name, values := range map[string][]string{
		"auth": {Token, Certificate}, "dry-run": {"none", "client"}, "output": {"yaml", "json"}, "for": {"both", "home", "remote"},
		"pod-security": {"privileged", "baseline", "restricted"}, "pod-network": {"Isolated", "Routed"}, "namespace-strategy": {"SameName", "Suffixed"},
		"virtual-node": {"Enabled", "Disabled"},
	} {
		_ = command.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
	}
	return command
}

// peering is one run of the command.
type peering struct {
	Options
	progress.Reporter
	home, remote *access.Cluster
	homeUID      string
	remoteUID    string
	out          genericiooptions.IOStreams
	said         map[string]bool
}

// run repeats all steps while somebody else writes the same objects: each step
// finds what was done already.
func (p *peering) run(ctx context.Context) error {
	for attempt := 1; ; attempt++ {
		err := p.once(ctx)
		if attempt == attempts || !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) {
			return err
		}
	}
}

func (p *peering) once(ctx context.Context) error {
	situation, err := p.look(ctx)
	if err != nil {
		return err
	}
	plan, err := Decide(p.Options, situation)
	if err != nil {
		return err
	}
	secret, err := p.readSecret(ctx, plan)
	if err != nil {
		return err
	}
	if secret != nil {
		if err := plan.secretIsOurs(secret, p.remoteUID); err != nil {
			return err
		}
	}
	have := plan.found(secret)
	server, err := p.server(have)
	if err != nil {
		return err
	}
	for _, note := range plan.Notes {
		p.sayOnce("note: " + note)
	}
	if p.DryRun == "client" {
		return p.print(plan, server, have)
	}
	if err := p.mayAll(ctx, plan); err != nil {
		return err
	}
	if err := p.carryOut(ctx, plan, holding{secret: secret, found: have}, server); err != nil {
		return err
	}
	_, err = fmt.Fprintf(p.out.Out, "remotecluster.lodestone.dev/%s peered\n", plan.Name)
	return err
}

// carryOut does what is planned. A certificate comes first: once the HomeCluster
// names its user, the remote agent takes a token's rights away. A token comes
// after it, since the remote agent makes the account.
func (p *peering) carryOut(ctx context.Context, plan Plan, have holding, server access.Server) error {
	var err error
	if plan.Auth == Certificate {
		if have, err = p.ensureLogin(ctx, plan, have); err != nil {
			return err
		}
	}
	if err := p.ensureHomeCluster(ctx, plan); err != nil {
		return err
	}
	if err := p.awaitHomeCluster(ctx, plan); err != nil {
		return err
	}
	if plan.Auth != Certificate {
		if have, err = p.ensureLogin(ctx, plan, have); err != nil {
			return err
		}
	}
	if err := p.ensureSecret(ctx, plan, have, server); err != nil {
		return err
	}
	if err := p.ensureRemoteCluster(ctx, plan); err != nil {
		return err
	}
	if err := p.awaitRemoteCluster(ctx, plan); err != nil {
		return err
	}
	return p.awaitNode(ctx, plan)
}

func (p *peering) sayOnce(line string) {
	if p.said == nil {
		p.said = map[string]bool{}
	}
	if !p.said[line] {
		p.said[line] = true
		p.Say("%s", line)
	}
}
