package imports

import (
	"context"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/cli"
	"github.com/lodestone-storage/lodestone/pkg/keys"
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

// takes are the kinds of what can be imported.
var takes = []cli.Kind{cli.Claim, cli.Volume}

func virtualClasses(ctx context.Context, home *cli.Cluster, _ string) ([]string, error) {
	classes, err := home.Client.StorageV1().StorageClasses().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	var names []string
	for i := range classes.Items {
		if virtualclass.Is(&classes.Items[i]) {
			names = append(names, classes.Items[i].Name)
		}
	}
	return names, nil
}

// New returns the command.
func New(flags *genericclioptions.ConfigFlags, streams genericiooptions.IOStreams) *cobra.Command {
	o := &Options{Namespace: "lodestone-system", StorageNamespace: "lodestone-storage", Timeout: 2 * time.Minute}
	command := &cobra.Command{
		Use:               "import pvc/NAME --class CLASS | pv/NAME --class CLASS",
		Short:             "Make existing data the volume of a virtual claim, without copying",
		Long:              long,
		Example:           example,
		Args:              cli.TakesOne(takes...),
		ValidArgsFunction: cli.CompleteReferences(flags, true, nil, takes...),
		RunE: func(cmd *cobra.Command, args []string) error {
			named, err := cli.OneReference(cmd, args, takes...)
			if err != nil {
				return err
			}
			if named.Kind == cli.Volume && o.Cluster != "" {
				return cli.Misuse("--cluster is for claims: a volume says itself in which cluster its data is, so leave --cluster out")
			}
			switch {
			case o.Cluster == keys.Home:
				return cli.Misuse("--cluster is for claims of remote clusters: leave it out for one at home")
			case o.As != "" && len(validation.IsDNS1123Subdomain(o.As)) > 0:
				return cli.Misuse("--as %q cannot be a name: names have lower-case letters, digits, '-' and '.'", o.As)
			case o.Cluster == "" && named.Kind == cli.Claim && (o.RemoteContext != "" || o.RemoteKubeconfig != ""):
				return cli.Misuse("--remote-context is for a claim of a remote cluster: say with --cluster what home calls that, or leave it out")
			}
			if o.Timeout <= 0 {
				return cli.Misuse("--timeout must be more than 0: give a time such as 2m")
			}
			i, err := o.prepare(flags, streams)
			if err != nil {
				return err
			}
			ctx, cancel := cli.Within(cmd.Context(), o.Timeout)
			defer cancel()
			if o.Cluster != "" {
				if err := i.home.RequireCluster(ctx, o.Cluster); err != nil {
					return err
				}
			}
			return i.run(ctx, string(named.Kind), named.Name)
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
	command.Flags().BoolVar(&o.Undo, "undo", false, "take the import back, as long as that is possible")
	command.Flags().BoolVar(&o.Yes, "yes", false, "do not ask")
	command.Flags().DurationVar(&o.Timeout, "timeout", o.Timeout, "how long to wait in all; the same command goes on where it stopped")
	cli.CompleteFlag(command, flags, "cluster", cli.NamesOf(cli.RemoteCluster))
	cli.CompleteFlag(command, flags, "class", virtualClasses)
	cli.CompleteFlag(command, flags, "lodestone-namespace", cli.NamesOf(cli.Namespace))
	cli.CompleteFlag(command, flags, "storage-namespace", cli.NamesOf(cli.Namespace))
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
		return nil, cli.Misuse("name the virtual storage class of the claim to make with --class: one whose provisioner is lodestone.dev, as " +
			"kubectl get storageclass shows it")
	}
	if o.Cluster != "" && o.As != "" {
		return nil, cli.Misuse("a claim of a remote cluster keeps its name, since pods there use that: leave out --as")
	}
	home, namespace, err := cli.Connect(flags)
	if err != nil {
		return nil, err
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

const long = `Import makes data that exists the volume of a new virtual claim. Nothing is copied.

Of a claim (pvc) at home, the real claim goes, and a virtual claim of the same name, or
of that given with --as, takes its place: with the same size, modes, labels and
annotations. The real volume is bound to a twin in lodestone-storage; its reclaim policy
stays as it is. Until the real claim, or the virtual volume of before, is deleted, --undo
takes all back.

With --cluster, a real claim of a remote cluster, in the namespace there that belongs
to the namespace at home, stays under its name and becomes the shadow of a virtual
claim of that name. Until there is a virtual volume, --undo takes all back. A claim
that home kept there before can be imported again, which cannot be undone.

Of a volume (pv): a virtual volume that policy Retain kept after its claim was deleted
gets a claim again, wherever its data is. The new claim has the name of the old one, or
that of --as, and a new volume in place of that one, with the same data. A real volume of
home, bound, released or never used, can be imported too. Data of another namespace than
the current one is imported only if -n names one.

It is refused (exit code 3) while a pod uses the data, and for what does not fit;
nothing is changed then. It may be stopped and run again at any time, and goes on where
it stopped: all that it needs is recorded on the volume and the new claim. It needs your
own rights to change volumes, so that no user can import what is not theirs.`

const example = `  # The data of claim data, in namespace shop, goes on as a virtual claim of that name
  kubectl lodestone import pvc/data -n shop --class lodestone

  # A claim in cluster west
  kubectl lodestone import pvc/data -n shop --class lodestone --cluster west --remote-context west

  # What policy Retain kept of a claim gets a claim again, in its namespace
  kubectl lodestone import pv/pvc-4445da0c-5130-49fc-9193-1d95fcb875c1 -n shop --class lodestone

  # The same, and its data is in cluster west
  kubectl lodestone import pv/pvc-4445da0c-5130-49fc-9193-1d95fcb875c1 -n shop --class lodestone --remote-context west`
