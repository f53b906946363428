package discovery

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/cli"
)

// zoneTTL is for how many seconds DNS servers keep the records that are printed.
const zoneTTL = 3600

// NewAnnounce returns the command announce.
func NewAnnounce(flags *genericclioptions.ConfigFlags, streams genericiooptions.IOStreams) *cobra.Command {
	var name, domain, address string
	var mdns bool
	command := &cobra.Command{
		Use:   "announce --domain DOMAIN | --mdns",
		Short: "Announce this cluster by DNS-SD, so that others find its address",
		Long: `Announce is for the owner of a cluster (kubectl's current context, or --context) that
others may peer with. It prints records for the zone of a DNS domain, which say the
address of the API server, the hash of its certificate authority, its version and its
storage classes; with --mdns it answers questions on the networks of this machine until
Ctrl-C instead. The cluster is only read.

The records give nobody a right. Others find them with discover, and peer with a token
and the hash of the authority, which announce writes to standard error: hand both out on
another way than DNS.`,
		Example: `  # Records for the zone of fabric.example.com
  kubectl lodestone announce --context west --name west --domain fabric.example.com

  # On the networks of this machine, until Ctrl-C
  kubectl lodestone announce --context west --mdns`,
		Args: cli.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if mdns == (domain != "") {
				return cli.Misuse("say where the cluster is to be announced: give --domain, or --mdns for the networks of this machine, and not both")
			}
			if err := checkDomain(domain); err != nil {
				return err
			}
			if name != "" && !validName(name) {
				return cli.Misuse("--name %q cannot be used: give up to 63 lower-case letters, digits and '-', other than \"home\"", name)
			}
			if address != "" && server(address) == "" {
				return cli.Misuse("--address %q is not an address of an API server: give https://<host>:<port>", address)
			}
			cluster, err := cli.ConnectHome(flags)
			if err != nil {
				return err
			}
			if name == "" {
				name = cluster.Context
			}
			one, err := describe(cmd.Context(), cluster, streams, name, address)
			if err != nil {
				return err
			}
			if !mdns {
				for _, record := range one.records(domain, zoneTTL) {
					fmt.Fprintln(streams.Out, record)
				}
				return nil
			}
			r, err := listen(one)
			if err != nil {
				return err
			}
			fmt.Fprintf(streams.ErrOut, "announcing %q on the networks of this machine; Ctrl-C ends that\n", name)
			return r.serve(cmd.Context())
		},
	}
	command.Flags().StringVar(&name, "name", "", "what the cluster is called; default: the name of the context")
	command.Flags().StringVar(&domain, "domain", "", "domain for whose DNS zone records are printed, such as fabric.example.com")
	command.Flags().BoolVar(&mdns, "mdns", false, "answer questions by multicast on the networks of this machine (mDNS, over IPv4) instead")
	command.Flags().StringVar(&address, "address", "", "address, https://<host>:<port>, at which others reach the API server; default: that "+
		"of the context")
	return command
}

// describe reads what is announced of a cluster, and tells its owner what to hand out.
func describe(ctx context.Context, cluster *cli.Cluster, streams genericiooptions.IOStreams, name, address string) (Announcement, error) {
	var err error
	a := Announcement{Name: name, Server: server(cluster.Config.Host)}
	if address != "" {
		a.Server = server(address)
	}
	switch {
	case !validName(name):
		return a, cli.Misuse("the cluster cannot be called %q, as its context is: give --name with up to 63 lower-case letters, digits and "+
			"'-'", name)
	case a.Server == "":
		return a, cli.Misuse("the address %q of context %q cannot be announced: give --address https://<host>:<port>", cluster.Config.Host,
			cluster.Context)
	}
	if a.UID, err = cluster.UID(ctx); err != nil {
		return a, err
	}
	served, err := cluster.Client.Discovery().ServerVersion()
	if err != nil {
		return a, cluster.Explain("ask for its version", err)
	}
	a.Version = served.GitVersion
	classes, err := cluster.Client.StorageV1().StorageClasses().List(ctx, metav1.ListOptions{})
	switch {
	case apierrors.IsForbidden(err):
		fmt.Fprintln(streams.ErrOut, "note: storage classes are not announced: you may not list them")
	case err != nil:
		return a, cluster.Explain("list storageclasses", err)
	default:
		for _, class := range classes.Items {
			a.Classes = append(a.Classes, class.Name)
		}
	}
	authority, err := cluster.Authority(ctx)
	if err != nil {
		return a, err
	}
	a.CAHash = cli.AuthorityHash(authority)
	fmt.Fprintf(streams.ErrOut, "hand out with a token, and not by DNS: --remote-ca-hash %s\n", a.CAHash)
	if _, err := cli.FindAuthority(ctx, cluster.Config.Host, a.CAHash, nil); err != nil {
		fmt.Fprintln(streams.ErrOut, "note: the API server does not show its certificate authority to those without credentials: hand out its "+
			"file, too, for --remote-ca-file")
	}
	if (cli.Server{URL: a.Server}).Loopback() {
		fmt.Fprintf(streams.ErrOut, "note: the address %q leads each machine to itself: give --address for others\n", a.Server)
	}
	return a, nil
}
