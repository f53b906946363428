// Package dashboard is the command dashboard: a page that shows what status -o json gives, and keeps
// up with it. command.go watches the cluster with the user's own rights, server.go serves the page on
// loopback and says to whom, edition.go what changed since a page was last told (pure). The page itself
// is in static: plain HTML, CSS and one ES module, as browsers read them.
package dashboard

import (
	"context"
	"fmt"
	"net"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/cli"
	"github.com/lodestone-storage/lodestone/kubectl-lodestone/status"
)

// New returns the command.
func New(flags *genericclioptions.ConfigFlags, streams genericiooptions.IOStreams) *cobra.Command {
	var lodestone, address string
	var port int
	var everywhere bool
	command := &cobra.Command{
		Use:   "dashboard",
		Short: "Show clusters, volumes, pods and moves in a browser, live",
		Long: `Dashboard serves a page on this machine and prints its address: home and remote
clusters, each volume where its data is, pods on them, moves and how far they are, and
what waits and why. The page follows what happens, and changes nothing.

It shows what you may read, with your own rights; with -n, what is in that namespace.
What you may not read is left out, and the page says so. The address has a random token
in it: whoever has the address, and can reach this machine's loopback, sees the page.
The command ends with Ctrl-C, and the page with it.`,
		Example: `  kubectl lodestone dashboard
  # The same port each time
  kubectl lodestone dashboard --port 8400`,
		Args: cli.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			at, err := loopback(address, port)
			if err != nil {
				return err
			}
			home, err := cli.ConnectHome(flags)
			if err != nil {
				return err
			}
			scope := cli.Scope{Everywhere: everywhere}
			return run(cmd.Context(), home, streams, lodestone, scope.In(*flags.Namespace), at)
		},
	}
	command.Flags().BoolVarP(&everywhere, "all-namespaces", "A", false, "show all namespaces, as without -n")
	command.Flags().StringVar(&address, "address", "127.0.0.1", "loopback address to serve the page at")
	command.Flags().IntVar(&port, "port", 0, "port to serve the page at; 0: any that is free")
	command.Flags().StringVar(&lodestone, "lodestone-namespace", "lodestone-system", "namespace of home in which Lodestone runs")
	cli.CompleteFlag(command, flags, "lodestone-namespace", cli.NamesOf(cli.Namespace))
	return command
}

func run(ctx context.Context, home *cli.Cluster, streams genericiooptions.IOStreams, lodestone, namespace, at string) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", at)
	if err != nil {
		return fmt.Errorf("the page cannot be served at %s: %w; give another --port", at, err)
	}
	defer listener.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if namespace != "" {
		if err := home.RequireNamespace(ctx, namespace); err != nil {
			return err
		}
	}
	live, err := status.NewLive(ctx, home, lodestone, namespace)
	if err != nil {
		return err
	}
	server := NewServer(home.Context, listener)
	// The address is the result; the rest is for whoever reads the terminal.
	fmt.Fprintln(streams.Out, server.Address())
	fmt.Fprintln(streams.ErrOut, "open this address in a browser on this machine; Ctrl-C ends the dashboard")
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return server.Serve(ctx, listener) })
	group.Go(func() error {
		live.Run(ctx, server.Watched, server.Show)
		return nil
	})
	return group.Wait()
}
