package status

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/yaml"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/access"
	"github.com/lodestone-storage/lodestone/kubectl-lodestone/outcome"
)

// readTimeout bounds all that is read.
const readTimeout = time.Minute

// New returns the command.
func New(flags *genericclioptions.ConfigFlags, streams genericiooptions.IOStreams) *cobra.Command {
	var output, lodestone string
	command := &cobra.Command{
		Use:   "status",
		Short: "Show the remote clusters, and why pods and claims wait",
		Long: `Status shows each remote cluster: whether it is Ready and why not, its version,
what its virtual nodes offer, how many volumes and pods of home it holds, and its
storage classes. Then it says in one sentence each why pods and claims that have to
do with remote clusters wait; with -n, those of one namespace. What you may not
read is left out.`,
		Example: `  kubectl lodestone status
  # With credentials, heartbeats and sentences
  kubectl lodestone status -o wide
  # For programs
  kubectl lodestone status -o json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch output {
			case "", "wide", "json", "yaml", "name":
			default:
				return outcome.Misuse("--output %q is not known: give wide, json, yaml or name", output)
			}
			home, err := access.Home(flags)
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), readTimeout)
			defer cancel()
			r := &reading{home: home, lodestone: lodestone}
			status, err := r.status(ctx, *flags.Namespace)
			if err != nil {
				return err
			}
			if len(r.unread) > 0 {
				fmt.Fprintf(streams.ErrOut, "note: left out what you may not read: %s\n", strings.Join(r.unread, ", "))
			}
			return write(streams, output, status)
		},
	}
	command.Flags().StringVarP(&output, "output", "o", "", "wide, json, yaml or name; default: a table")
	command.Flags().StringVar(&lodestone, "lodestone-namespace", "lodestone-system", "namespace of home in which Lodestone runs")
	_ = command.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{"wide", "json", "yaml", "name"}, cobra.ShellCompDirectiveNoFileComp))
	return command
}

func (r *reading) status(ctx context.Context, namespace string) (Status, error) {
	served, err := r.home.Serves("lodestone.dev/v1alpha1", "remoteclusters")
	if err != nil {
		return Status{}, err
	}
	if !served {
		return Status{}, fmt.Errorf("Lodestone is not installed in the cluster of context %q: install it there (deploy/overlays), or choose another --context", r.home.Context)
	}
	f, err := r.read(ctx)
	if err != nil {
		return Status{}, err
	}
	status := Status{APIVersion: "cli.lodestone.dev/v1alpha1", Kind: "Status", Clusters: f.clusters()}
	// Whoever may not get kube-system sees no ID.
	status.HomeID, _ = r.home.HomeID(ctx, r.lodestone)
	status.Waiting, status.Omitted, err = r.waiting(ctx, f, namespace)
	return status, err
}

func write(streams genericiooptions.IOStreams, output string, status Status) error {
	var content []byte
	var err error
	switch output {
	case "json":
		content, err = json.MarshalIndent(status, "", "  ")
		content = append(content, '\n')
	case "yaml":
		content, err = yaml.Marshal(status)
	case "name":
		for _, c := range status.Clusters {
			content = append(content, "remotecluster.lodestone.dev/"+c.Name+"\n"...)
		}
	default:
		return tables(streams.Out, status, output == "wide", time.Now())
	}
	if err != nil {
		return fmt.Errorf("write the status: %w", err)
	}
	_, err = streams.Out.Write(content)
	return err
}
