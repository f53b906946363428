package explain

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/yaml"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/cli"
	"github.com/lodestone-storage/lodestone/kubectl-lodestone/why"
)

// readTimeout limits all reads for one answer together.
const readTimeout = 30 * time.Second

// asking has what the commands share.
type asking struct {
	flags     *genericclioptions.ConfigFlags
	streams   genericiooptions.IOStreams
	lodestone string
	output    string
}

// New returns the command why.
func New(flags *genericclioptions.ConfigFlags, streams genericiooptions.IOStreams) *cobra.Command {
	a := &asking{flags: flags, streams: streams}
	parent := &cobra.Command{
		Use:   "why",
		Short: "Say in one sentence why a pod or a claim waits",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_ = cmd.Help()
			return cli.Misuse("say what to look at: kubectl lodestone why pod NAME, or kubectl lodestone why pvc NAME")
		},
	}
	pod := &cobra.Command{
		Use: "pod NAME", Aliases: []string{"pods", "po"},
		Short: "Say in one sentence why a pod waits",
		Long: `Why pod says first why a pod waits, then the facts: its conditions and events,
those of its claims, what the remote cluster says, and what Lodestone's extender
told the scheduler. What you may not read is left out.`,
		Example: `  # Why does web-1 of namespace shop not run?
  kubectl lodestone why pod web-1 -n shop`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.names(podNames),
		RunE:              a.run(aPod),
	}
	claim := &cobra.Command{
		Use: "pvc NAME", Aliases: []string{"persistentvolumeclaim", "persistentvolumeclaims", "claim", "pvcs"},
		Short: "Say in one sentence why a claim waits",
		Long: `Why pvc says first why a claim waits, then the facts: its events, who refused it
until when, the remote cluster's state, and the pods that use it. What you may not
read is left out.`,
		Example: `  # Why is claim data-web-1 of namespace shop pending?
  kubectl lodestone why pvc data-web-1 -n shop`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.names(claimsNamed),
		RunE:              a.run(aClaim),
	}
	parent.AddCommand(pod, claim)
	for _, command := range parent.Commands() {
		command.Flags().StringVarP(&a.output, "output", "o", "", "json or yaml; default: text")
		command.Flags().StringVar(&a.lodestone, "lodestone-namespace", "lodestone-system", "namespace of home in which Lodestone runs")
	}
	return parent
}

func aPod(ctx context.Context, g *Gatherer, s why.Setting, namespace, name string) (why.Answer, error) {
	facts, err := g.Pod(ctx, namespace, name)
	if err != nil {
		return why.Answer{}, err
	}
	return facts.Of(s), nil
}

func aClaim(ctx context.Context, g *Gatherer, s why.Setting, namespace, name string) (why.Answer, error) {
	facts, err := g.Claim(ctx, namespace, name)
	if err != nil {
		return why.Answer{}, err
	}
	if facts.Claim == nil {
		return why.Answer{}, fmt.Errorf("there is no claim %q in namespace %q: kubectl get pvc -n %s lists them", name, namespace, namespace)
	}
	if facts.Pods, err = g.Users(ctx, namespace, name); err != nil {
		return why.Answer{}, err
	}
	return facts.Of(s), nil
}

type asker func(ctx context.Context, g *Gatherer, s why.Setting, namespace, name string) (why.Answer, error)

func (a *asking) run(ask asker) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		switch a.output {
		case "", "json", "yaml":
		default:
			return cli.Misuse("--output %q is not known: give json or yaml", a.output)
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), readTimeout)
		defer cancel()
		home, namespace, err := a.home()
		if err != nil {
			return err
		}
		g := &Gatherer{Home: home, Lodestone: a.lodestone}
		setting, err := g.Setting(ctx, namespace)
		if err != nil {
			return err
		}
		answer, err := ask(ctx, g, setting, namespace, args[0])
		if err != nil {
			return err
		}
		return write(a.streams.Out, a.output, answer)
	}
}

func (a *asking) home() (*cli.Cluster, string, error) {
	home, err := cli.ConnectHome(a.flags)
	if err != nil {
		return nil, "", err
	}
	namespace, _, err := a.flags.ToRawKubeConfigLoader().Namespace()
	if err != nil {
		return nil, "", cli.Misuse("the namespace cannot be found: %w; give -n", err)
	}
	return home, namespace, nil
}

func write(out io.Writer, format string, answer why.Answer) error {
	var content []byte
	var err error
	switch format {
	case "json":
		content, err = json.MarshalIndent(answer, "", "  ")
		content = append(content, '\n')
	case "yaml":
		content, err = yaml.Marshal(answer)
	default:
		content = []byte(answer.Sentence + "\n")
		for _, fact := range answer.Facts {
			content = append(content, "  "+fact+"\n"...)
		}
	}
	if err != nil {
		return fmt.Errorf("write the answer: %w", err)
	}
	_, err = out.Write(content)
	return err
}

// names completes the name of an object of the namespace.
func (a *asking) names(list func(context.Context, *cli.Cluster, string) ([]string, error)) func(*cobra.Command, []string, string) ([]string,
	cobra.ShellCompDirective) {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		home, namespace, err := a.home()
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		names, err := list(cmd.Context(), home, namespace)
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}

func podNames(ctx context.Context, home *cli.Cluster, namespace string) ([]string, error) {
	list, err := home.Client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	var names []string
	for _, item := range list.Items {
		names = append(names, item.Name)
	}
	return names, nil
}

func claimsNamed(ctx context.Context, home *cli.Cluster, namespace string) ([]string, error) {
	list, err := home.Client.CoreV1().PersistentVolumeClaims(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	var names []string
	for _, item := range list.Items {
		names = append(names, item.Name)
	}
	return names, nil
}
