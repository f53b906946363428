package discovery

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/cli"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// Clusters is what -o json and -o yaml write.
type Clusters struct {
	Clusters []Cluster `json:"clusters"`
}

// Cluster is a cluster that somebody announces.
type Cluster struct {
	Announcement `json:",inline"`
	// PeeredAs is the RemoteCluster with the UID that is announced; empty if home has none, or is not asked.
	PeeredAs string `json:"peeredAs,omitempty"`
}

// NewDiscover returns the command discover.
func NewDiscover(flags *genericclioptions.ConfigFlags, streams genericiooptions.IOStreams) *cobra.Command {
	var output cli.Output
	var where Where
	command := &cobra.Command{
		Use:   "discover --domain DOMAIN | --mdns",
		Short: "List clusters that announce themselves by DNS-SD",
		Long: `Discover lists the clusters that announce themselves in a DNS domain or, with --mdns, on
the networks of this machine: address, version and hash of the certificate authority of
each, and as which RemoteCluster home is peered with it. Without a kubeconfig it lists the
rest. It changes nothing.

Whoever may write into the domain, or is on the network, can announce anything. Peer with
the hash and the token that the owner of a cluster has handed to you.`,
		Example: `  kubectl lodestone discover --domain fabric.example.com

  # Ask a DNS server of yours
  kubectl lodestone discover --domain fabric.example.com --dns-server 192.0.2.53:53

  # Ask by multicast on the networks of this machine
  kubectl lodestone discover --mdns

  # Peer with one of them
  kubectl lodestone peer --discovered west --domain fabric.example.com \
    --remote-token-file west.token --remote-ca-hash sha256:HASH`,
		Args: cli.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := output.Check(); err != nil {
				return err
			}
			if err := where.Check(); err != nil {
				return err
			}
			var home *cli.Cluster
			if cli.Configured(flags) {
				var err error
				if home, err = cli.ConnectHome(flags); err != nil {
					return err
				}
			}
			found, err := where.Find(cmd.Context())
			if err != nil {
				return err
			}
			if found.LeftOut > 0 {
				fmt.Fprintf(streams.ErrOut, "note: left out %d announcements that could not be read or are of no use\n", found.LeftOut)
			}
			if found.More {
				fmt.Fprintf(streams.ErrOut, "note: there are more announcements than the %d clusters that are read\n", maxNames)
			}
			if len(found.Announcements) == 0 && !output.IsObject() {
				fmt.Fprintf(streams.ErrOut, "no cluster announces itself in %s\n", &where)
				return nil
			}
			all := Clusters{Clusters: []Cluster{}}
			peered := peerings(cmd.Context(), home, streams.ErrOut)
			for _, one := range found.Announcements {
				all.Clusters = append(all.Clusters, Cluster{Announcement: one, PeeredAs: peered[one.UID]})
			}
			return write(streams.Out, output, all)
		},
	}
	where.AddFlags(command.Flags())
	output.Add(command, "names alone, or for programs; default: a table", cli.JSON, cli.YAML, cli.Name)
	return command
}

// peerings returns the names of home's RemoteClusters by the UIDs of their clusters; none where home cannot be asked.
func peerings(ctx context.Context, home *cli.Cluster, notes io.Writer) map[string]string {
	if home == nil {
		return nil
	}
	remotes, err := home.Remotes.List(ctx, metav1.ListOptions{})
	if err != nil {
		fmt.Fprintf(notes, "note: it is not known which of them are peered with: %v\n", home.Explain("list RemoteClusters", err))
		return nil
	}
	names := map[string]string{}
	for _, remote := range remotes.Items {
		for _, uid := range []string{remote.Annotations[keys.ClusterUID], remote.Status.ClusterUID} {
			if uid != "" {
				names[uid] = remote.Name
			}
		}
	}
	return names
}

func write(out io.Writer, output cli.Output, all Clusters) error {
	if output.IsObject() {
		return output.Write(out, all)
	}
	table := &metav1.Table{}
	for _, name := range []string{"Name", "Server", "Version", "Peered as", "CA hash"} {
		table.ColumnDefinitions = append(table.ColumnDefinitions, cli.Column(name, false))
	}
	for _, one := range all.Clusters {
		if output.Format == cli.Name {
			fmt.Fprintln(out, one.Name)
			continue
		}
		table.Rows = append(table.Rows, metav1.TableRow{Cells: []any{one.Name, one.Server, cli.OrNone(one.Version), cli.OrNone(one.PeeredAs),
			one.CAHash}})
	}
	if output.Format == cli.Name {
		return nil
	}
	return cli.PrintTable(out, table, false)
}
