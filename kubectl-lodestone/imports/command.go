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

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/cli"
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
			return cli.Misuse("say what to import: kubectl lodestone import pvc NAME, or pv NAME")
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
	command.Flags().StringVar(&o.RemoteKubeconfig, "remote-kubeconfig", "",
		"kubeconfig file of the remote cluster; default: the one that kubectl uses")
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
	cli.Reporter
	streams      genericiooptions.IOStreams
	home, remote *cli.Cluster
	namespace    string
	// namespaceGiven says that the namespace was given on the command line.
	namespaceGiven bool
	homeID         string
	class          virtualclass.Class
}

func (o *Options) prepare(flags *genericclioptions.ConfigFlags, streams genericiooptions.IOStreams) (*importing, error) {
	if o.Class == "" && !o.Undo {
		return nil, cli.Misuse("name the virtual storage class of the claim to make with --class: kubectl get storageclass lists them")
	}
	if o.Cluster != "" && o.As != "" {
		return nil, cli.Misuse("a claim of a remote cluster keeps its name, for pods there use it by that: leave out --as")
	}
	home, err := cli.ConnectHome(flags)
	if err != nil {
		return nil, err
	}
	namespace, _, err := flags.ToRawKubeConfigLoader().Namespace()
	if err != nil {
		return nil, cli.Misuse("the namespace cannot be found: %w; give -n", err)
	}
	i := &importing{Options: *o, Reporter: cli.Reporter{Out: streams.ErrOut}, streams: streams, home: home, namespace: namespace,
		namespaceGiven: flags.Namespace != nil && *flags.Namespace != ""}
	if o.RemoteContext != "" || o.RemoteKubeconfig != "" {
		if i.remote, err = cli.ConnectRemote(flags, o.RemoteKubeconfig, o.RemoteContext); err != nil {
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
		return cli.Refuse("storage class %q is not virtual: name one whose provisioner is lodestone.dev", i.Class)
	}
	i.class, err = virtualclass.Parse(class)
	return err
}

// text is the help of one command.
type text struct{ short, long, example string }

const common = `
Nothing is copied. It is refused (exit code 3) while a pod uses the data, and for
what does not fit; nothing is changed then. It may be stopped and run again at any
time, and goes on where it stopped: all that it needs is recorded on the volume and
the new claim. It needs your own rights to change volumes, so that no user can import
what is not theirs.`

var texts = map[string]text{
	"pvc": {
		short: "Make the volume of a real claim that of a virtual claim, without copying",
		long: `Import makes the volume of a real claim the volume of a new virtual claim.

At home the real claim goes, and a virtual claim of the same name, or of that given
with --as, takes its place: with the same size, modes, labels and annotations. The
real volume is bound to a twin in lodestone-storage; its reclaim policy stays as it
is. Until the real claim, or the virtual volume of before, is deleted, --undo takes
all back.

With --cluster, a real claim of a remote cluster, in the namespace there that belongs
to the namespace at home, stays under its name and becomes the shadow of a virtual
claim of that name. Until there is a virtual volume, --undo takes all back. A claim
that home kept there before can be imported again, which cannot be undone.
` + common,
		example: `  # The data of claim data, in namespace shop, goes on as a virtual claim of that name
  kubectl lodestone import pvc data -n shop --class lodestone

  # A claim in cluster west
  kubectl lodestone import pvc data -n shop --class lodestone --cluster west --remote-context west`,
	},
	"pv": {
		short: "Make a volume that was kept, or a real one, that of a virtual claim",
		long: `Import makes a volume of home the volume of a new virtual claim: a virtual volume that
policy Retain kept after its claim was deleted, wherever its data is, or a real volume
of home, bound, released or never used.

A virtual volume that is Released goes, and the new claim has one of its own. Its
claim has the name of the one before, unless --as gives another. Data of another
namespace than the current one is imported only if -n names one.
` + common,
		example: `  # What policy Retain kept of a claim gets a claim again, in its namespace
  kubectl lodestone import pv pvc-4445da0c-5130-49fc-9193-1d95fcb875c1 -n shop --class lodestone

  # The data is in cluster west
  kubectl lodestone import pv pvc-4445da0c-5130-49fc-9193-1d95fcb875c1 -n shop --class lodestone --remote-context west`,
	},
}
