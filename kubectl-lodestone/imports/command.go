package imports

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/access"
	"github.com/lodestone-storage/lodestone/kubectl-lodestone/outcome"
	"github.com/lodestone-storage/lodestone/kubectl-lodestone/progress"
	"github.com/lodestone-storage/lodestone/pkg/virtualclass"
)

// Options are the flags of import.
type Options struct {
	Class, As, Cluster              string
	RemoteContext, RemoteKubeconfig string
	Namespace, StorageNamespace     string
	Undo, Yes                       bool
	Timeout                         time.Duration
}

// New returns the command.
func New(flags *genericclioptions.ConfigFlags, streams genericiooptions.IOStreams) *cobra.Command {
	parent := &cobra.Command{
		Use:   "import",
		Short: "Make existing data the volume of a virtual claim, without copying",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_ = cmd.Help()
			return outcome.Misuse("say what to import: kubectl lodestone import pvc NAME, or pv NAME")
		},
	}
	parent.AddCommand(command("pvc", flags, streams), command("pv", flags, streams))
	return parent
}

func command(kind string, flags *genericclioptions.ConfigFlags, streams genericiooptions.IOStreams) *cobra.Command {
	o := &Options{Namespace: "lodestone-system", StorageNamespace: "lodestone-storage", Timeout: 2 * time.Minute}
	text := texts[kind]
	command := &cobra.Command{
		Use: kind + " NAME", Short: text.short, Long: text.long, Example: text.example,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			i, err := o.prepare(flags, streams)
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), o.Timeout)
			defer cancel()
			return i.run(ctx, kind, args[0])
		},
	}
	command.Flags().StringVar(&o.Class, "class", "", "the virtual storage class of the claim to make")
	command.Flags().StringVar(&o.As, "as", "", "name of the claim to make; default: that of the claim that has the data")
	command.Flags().StringVar(&o.Cluster, "cluster", "", "the remote cluster that has the claim; without it: home")
	command.Flags().StringVar(&o.RemoteContext, "remote-context", "", "kubeconfig context of that remote cluster")
	command.Flags().StringVar(&o.RemoteKubeconfig, "remote-kubeconfig", "", "kubeconfig file of the remote cluster; default: the one that kubectl uses")
	command.Flags().StringVar(&o.Namespace, "lodestone-namespace", o.Namespace, "namespace of home in which Lodestone runs")
	command.Flags().StringVar(&o.StorageNamespace, "storage-namespace", o.StorageNamespace, "namespace of home in which the twins are")
	command.Flags().BoolVar(&o.Undo, "undo", false, "leave everything as it was before, while that can be")
	command.Flags().BoolVar(&o.Yes, "yes", false, "do not ask")
	command.Flags().DurationVar(&o.Timeout, "timeout", o.Timeout, "how long to wait in all; the same command goes on where it stopped")
	if kind == "pv" {
		_ = command.Flags().MarkHidden("cluster") // the volume says it
	}
	return command
}

// importing is one run of the command.
type importing struct {
	Options
	progress.Reporter
	streams      genericiooptions.IOStreams
	home, remote *access.Cluster
	namespace    string
	// chosen says that the namespace was given on the command line.
	chosen bool
	homeID string
	class  virtualclass.Class
}

func (o *Options) prepare(flags *genericclioptions.ConfigFlags, streams genericiooptions.IOStreams) (*importing, error) {
	if o.Class == "" && !o.Undo {
		return nil, outcome.Misuse("name the virtual storage class of the claim to make with --class: kubectl get storageclass lists them")
	}
	if o.Cluster != "" && o.As != "" {
		return nil, outcome.Misuse("a claim of a remote cluster keeps its name, for pods there use it by that: leave out --as")
	}
	home, err := access.Home(flags)
	if err != nil {
		return nil, err
	}
	namespace, _, err := flags.ToRawKubeConfigLoader().Namespace()
	if err != nil {
		return nil, outcome.Misuse("the namespace cannot be found: %w; give -n", err)
	}
	i := &importing{Options: *o, Reporter: progress.Reporter{Out: streams.ErrOut}, streams: streams, home: home, namespace: namespace,
		chosen: flags.Namespace != nil && *flags.Namespace != ""}
	if o.RemoteContext != "" || o.RemoteKubeconfig != "" {
		if i.remote, err = access.Remote(flags, o.RemoteKubeconfig, o.RemoteContext); err != nil {
			return nil, err
		}
	}
	return i, nil
}

// readClass reads the virtual class.
func (i *importing) readClass(ctx context.Context) error {
	class, err := i.home.Client.StorageV1().StorageClasses().Get(ctx, i.Class, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return fmt.Errorf("there is no storage class %q: kubectl get storageclass lists them", i.Class)
	case err != nil:
		return i.home.Explain("get storage class "+i.Class, err)
	case !virtualclass.Is(class):
		return outcome.Refuse("storage class %q is not virtual: name one whose provisioner is lodestone.dev", i.Class)
	}
	i.class, err = virtualclass.Parse(class)
	return err
}
