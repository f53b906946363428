package network

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/cli"
	networkv1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/network/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/clients"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// readTimeout limits all reads together.
const readTimeout = time.Minute

// silent is after how long an entry of a NetworkLink that was not renewed says nothing: gateways renew theirs every 30 seconds, or seldomer
// by a second for each link, and pods that probe every 20.
const silent = 2 * time.Minute

// Networks is what -o json and -o yaml write.
type Networks struct {
	Clusters []Network `json:"clusters"`
}

// Network is how home is joined with one remote cluster, as home sees it.
type Network struct {
	Name string `json:"name"`
	// PodNetwork is that of the RemoteCluster. The rest but Fabric networks have not.
	PodNetwork v1alpha1.PodNetwork `json:"podNetwork"`
	// Ready, Reason, Message and Since are of the condition NetworkReady.
	Ready   bool         `json:"ready"`
	Reason  string       `json:"reason,omitempty"`
	Message string       `json:"message,omitempty"`
	Since   *metav1.Time `json:"since,omitempty"`
	// PodCIDRs are the ranges by which pods there are reached.
	PodCIDRs []string `json:"podCIDRs,omitempty"`
	// PodTranslations are of pods there, as home reaches them; HomePodTranslations of those at home, as that cluster does.
	PodTranslations     []networkv1alpha1.PodTranslation `json:"podTranslations,omitempty"`
	HomePodTranslations []networkv1alpha1.PodTranslation `json:"homePodTranslations,omitempty"`
	// Transit are the other remote clusters that pods there are to reach, and whether they do.
	Transit []Transit `json:"transit,omitempty"`
	// LanesUp of Lanes carry packets.
	LanesUp int `json:"lanesUp"`
	Lanes   int `json:"lanes"`
	// MTU is the largest packet of pods that all lanes carry in one piece.
	MTU int32 `json:"mtu,omitempty"`
	// RoundTripMicroseconds is the median of the ways from pod to pod that are probed, LossPercent the worst of them.
	RoundTripMicroseconds int64  `json:"roundTripMicroseconds,omitempty"`
	LossPercent           *int32 `json:"lossPercent,omitempty"`
	// SentBytesPerSecond and ReceivedBytesPerSecond are of all lanes together.
	SentBytesPerSecond     int64 `json:"sentBytesPerSecond"`
	ReceivedBytesPerSecond int64 `json:"receivedBytesPerSecond"`
	// Gateways are those of home with their lanes, Probes the pods of home that probe.
	Gateways []Gateway                     `json:"gateways,omitempty"`
	Probes   []networkv1alpha1.ProbeStatus `json:"probes,omitempty"`
}

// Transit is another remote cluster that pods of one are to reach.
type Transit struct {
	// TransitStatus says whether they do through home.
	networkv1alpha1.TransitStatus `json:",inline"`
	// Lanes are those to it from that cluster, as that one says; nil: there are to be none.
	Lanes *networkv1alpha1.DirectLanes `json:"lanes,omitempty"`
}

// up says whether a lane is.
func (t Transit) up() bool { return t.Lanes != nil && t.Lanes.Up > 0 }

// Gateway is a gateway of home.
type Gateway struct {
	networkv1alpha1.GatewayStatus `json:",inline"`
	// Silent: it has said nothing for minutes, so nobody knows of its lanes.
	Silent bool `json:"silent,omitempty"`
}

func statusCommand(flags *genericclioptions.ConfigFlags, streams genericiooptions.IOStreams) *cobra.Command {
	var output cli.Output
	var names []string
	command := &cobra.Command{
		Use:   "status [remotecluster/NAME...]",
		Short: "Show how the networks of remote clusters are joined with home's",
		Long: `Status shows for each remote cluster whether pods reach each other (condition
NetworkReady) and since when, how many lanes are up, the time of a packet from pod to pod
and back, how many get lost, the largest packet that is carried in one piece, and how many
bytes a second are carried. Then it shows which remote clusters are to reach each other,
whether they do, and whether through home or by lanes of their own, and each lane of
home's gateways, and says in one sentence each what is wrong. With -o wide it shows the
ways from pod to pod that are probed, too. Times and rates are measured anew every 30
seconds.`,
		Example: `  kubectl lodestone network status
  # One cluster, with the ways that are probed
  kubectl lodestone network status west -o wide
  # For programs
  kubectl lodestone network status -o json`,
		Args: func(_ *cobra.Command, args []string) (err error) {
			names, err = cli.RemoteClusters(args)
			return err
		},
		ValidArgsFunction: cli.CompleteReferences(flags, false, []cli.Kind{cli.RemoteCluster}, cli.RemoteCluster),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := output.Check(); err != nil {
				return err
			}
			home, err := cli.ConnectHome(flags)
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), readTimeout)
			defer cancel()
			remotes, links, unread, err := read(ctx, home, names)
			if err != nil {
				return err
			}
			if unread {
				fmt.Fprintf(streams.ErrOut, "note: left out what you may not read: networklinks in namespace %s\n", keys.NetworkNamespace)
			}
			now := time.Now()
			networks := networksOf(remotes, links, now)
			if output.IsObject() {
				return output.Write(streams.Out, networks)
			}
			return tables(streams.Out, networks, output.Format == cli.Wide, now)
		},
	}
	output.Add(command, "more columns and the ways that are probed, or all that is known; default: tables", cli.Wide, cli.JSON, cli.YAML)
	return command
}

// read reads the RemoteClusters of these names, or all, and home's NetworkLinks; unread: the user may not read these.
func read(ctx context.Context, home *cli.Cluster, names []string) (
	remotes []v1alpha1.RemoteCluster, links []networkv1alpha1.NetworkLink, unread bool, err error,
) {
	list, err := home.Remotes.List(ctx, metav1.ListOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil, false, home.NotInstalled()
	case err != nil:
		return nil, nil, false, home.Explain("list RemoteClusters", err)
	}
	remotes = list.Items
	for _, name := range names {
		if !slices.ContainsFunc(remotes, func(r v1alpha1.RemoteCluster) bool { return r.Name == name }) {
			return nil, nil, false, home.Missing(ctx, cli.RemoteCluster, "", name)
		}
	}
	remotes = slices.DeleteFunc(remotes, func(r v1alpha1.RemoteCluster) bool { return len(names) > 0 && !slices.Contains(names, r.Name) })
	client, err := clients.NewNetworkLinks(home.Config, keys.NetworkNamespace)
	if err != nil {
		return nil, nil, false, err
	}
	found, err := client.List(ctx, metav1.ListOptions{})
	switch {
	case apierrors.IsNotFound(err): // the component is not installed
		return remotes, nil, false, nil
	case apierrors.IsForbidden(err):
		return remotes, nil, true, nil
	case err != nil:
		return nil, nil, false, home.Explain("list NetworkLinks", err)
	}
	return remotes, found.Items, false, nil
}

// networksOf makes of objects what is shown. It is pure.
func networksOf(remotes []v1alpha1.RemoteCluster, links []networkv1alpha1.NetworkLink, now time.Time) Networks {
	networks := Networks{Clusters: []Network{}}
	tolerated := silent + time.Duration(len(links))*time.Second
	for i := range remotes {
		remote := &remotes[i]
		n := Network{Name: remote.Name, PodNetwork: remote.Spec.PodNetwork, PodTranslations: remote.Spec.PodTranslations,
			HomePodTranslations: remote.Spec.HomePodTranslations}
		if n.PodNetwork == "" {
			n.PodNetwork = v1alpha1.Isolated
		}
		if ready := meta.FindStatusCondition(remote.Status.Conditions, v1alpha1.NetworkReady); ready != nil {
			n.Ready, n.Reason, n.Message = ready.Status == metav1.ConditionTrue, ready.Reason, ready.Message
			n.Since = &ready.LastTransitionTime
		}
		at := slices.IndexFunc(links, func(l networkv1alpha1.NetworkLink) bool { return l.Name == remote.Name })
		if at >= 0 {
			n.add(&links[at], now.Add(-tolerated))
		}
		networks.Clusters = append(networks.Clusters, n)
	}
	return networks
}

// add adds what home's gateways and pods say of the way to a cluster. What they said before oldest says nothing of now.
func (n *Network) add(link *networkv1alpha1.NetworkLink, oldest time.Time) {
	status := link.Status
	n.PodCIDRs = status.PodCIDRs
	for _, t := range status.Transit {
		one := Transit{TransitStatus: t}
		if i := slices.IndexFunc(link.Spec.Transit, func(told networkv1alpha1.Transit) bool { return told.Cluster == t.Cluster }); i >= 0 {
			one.Lanes = link.Spec.Transit[i].Direct
		}
		n.Transit = append(n.Transit, one)
	}
	for _, g := range status.Gateways {
		gateway := Gateway{GatewayStatus: g, Silent: g.RenewTime.Time.Before(oldest)}
		n.Gateways = append(n.Gateways, gateway)
		n.Lanes += len(g.Lanes)
		if gateway.Silent {
			continue
		}
		for _, l := range g.Lanes {
			if l.MTU != 0 && (n.MTU == 0 || l.MTU < n.MTU) {
				n.MTU = l.MTU
			}
			if l.Up {
				n.LanesUp++
				n.SentBytesPerSecond += l.SentBytesPerSecond
				n.ReceivedBytesPerSecond += l.ReceivedBytesPerSecond
			}
		}
	}
	var took []int64
	for _, p := range status.Probes {
		if p.RenewTime.Time.Before(oldest) {
			continue
		}
		n.Probes = append(n.Probes, p)
		for _, path := range p.Paths {
			if path.RoundTripMicroseconds > 0 {
				took = append(took, path.RoundTripMicroseconds)
			}
			if n.LossPercent == nil || path.LossPercent > *n.LossPercent {
				n.LossPercent = &path.LossPercent
			}
		}
	}
	if slices.Sort(took); len(took) > 0 {
		n.RoundTripMicroseconds = took[len(took)/2]
	}
}

// tables prints networks for people.
func tables(out io.Writer, networks Networks, wide bool, now time.Time) error {
	if len(networks.Clusters) == 0 {
		_, err := fmt.Fprintln(out, "There are no remote clusters: kubectl lodestone peer --help says how to get one.")
		return err
	}
	if err := cli.PrintTable(out, clusterTable(networks, now), wide); err != nil {
		return err
	}
	shown := []*metav1.Table{transitTable(networks), laneTable(networks, now)}
	if wide {
		shown = append(shown, pathTable(networks, now))
	}
	for _, table := range shown {
		if len(table.Rows) == 0 {
			continue
		}
		if _, err := fmt.Fprintln(out); err != nil {
			return err
		}
		if err := cli.PrintTable(out, table, wide); err != nil {
			return err
		}
	}
	for i, line := range problems(networks, now) {
		if i == 0 {
			line = "\n" + line
		}
		if _, err := fmt.Fprintln(out, line); err != nil {
			return err
		}
	}
	return nil
}

func clusterTable(networks Networks, now time.Time) *metav1.Table {
	table := &metav1.Table{ColumnDefinitions: []metav1.TableColumnDefinition{
		cli.Column("Name", false), cli.Column("Network", false), cli.Column("Ready", false), cli.Column("Reason", false),
		cli.Column("Lanes", false), cli.Column("Latency", false), cli.Column("Loss", false), cli.Column("MTU", false),
		cli.Column("Sent", false), cli.Column("Received", false), cli.Column("Since", false), cli.Column("Ranges", true),
	}}
	for _, n := range networks.Clusters {
		row := padded(len(table.ColumnDefinitions), n.Name, string(n.PodNetwork))
		if n.PodNetwork == v1alpha1.Fabric {
			row = []any{n.Name, string(n.PodNetwork), truth(n.Ready), cli.OrNone(n.Reason), fmt.Sprintf("%d/%d", n.LanesUp, n.Lanes),
				took(n.RoundTripMicroseconds), cli.None, size(n.MTU), rate(n.SentBytesPerSecond), rate(n.ReceivedBytesPerSecond),
				since(n.Since, now), cli.OrNone(strings.Join(n.PodCIDRs, ","))}
			if n.LossPercent != nil {
				row[6] = fmt.Sprintf("%d%%", *n.LossPercent)
			}
		}
		table.Rows = append(table.Rows, metav1.TableRow{Cells: row})
	}
	return table
}

// transitTable has two clusters a row that reach each other, or are to. They do so directly while both say that lanes are up.
func transitTable(networks Networks) *metav1.Table {
	table := &metav1.Table{ColumnDefinitions: []metav1.TableColumnDefinition{
		cli.Column("Cluster", false), cli.Column("Other", false), cli.Column("Through", false), cli.Column("Joined", false),
		cli.Column("Lanes", false),
	}}
	for _, n := range networks.Clusters {
		for _, t := range n.Transit {
			back := networks.said(t.Cluster, n.Name)
			if back != nil && n.Name > t.Cluster {
				continue // one row is enough, for home carries packets both ways or not at all
			}
			through, joined, lanes := "home", t.Accepted, cli.None
			if t.Lanes != nil {
				lanes = fmt.Sprintf("%d/%d", t.Lanes.Up, t.Lanes.Lanes)
			}
			if t.up() && (back == nil || back.up()) {
				through, joined = "direct", true
			}
			table.Rows = append(table.Rows, metav1.TableRow{Cells: []any{n.Name, t.Cluster, through, truth(joined), lanes}})
		}
	}
	return table
}

// said is what is shown of the way from a cluster to another one, nil if nothing is.
func (n Networks) said(cluster, other string) *Transit {
	for _, one := range n.Clusters {
		i := slices.IndexFunc(one.Transit, func(t Transit) bool { return t.Cluster == other })
		if one.Name == cluster && i >= 0 {
			return &one.Transit[i]
		}
	}
	return nil
}

func laneTable(networks Networks, now time.Time) *metav1.Table {
	table := &metav1.Table{ColumnDefinitions: []metav1.TableColumnDefinition{
		cli.Column("Cluster", false), cli.Column("Gateway", false), cli.Column("To", false), cli.Column("Up", false),
		cli.Column("Connections", false), cli.Column("Latency", false), cli.Column("MTU", false), cli.Column("Sent", false),
		cli.Column("Received", false), cli.Column("Since", false), cli.Column("Carrier", true), cli.Column("Control", true),
		cli.Column("Written", true),
	}}
	for _, n := range networks.Clusters {
		for _, g := range n.Gateways {
			for _, l := range g.Lanes {
				row := []any{n.Name, g.Name, l.Gateway, truth(l.Up), l.Connections, took(l.RoundTripMicroseconds), size(l.MTU),
					rate(l.SentBytesPerSecond), rate(l.ReceivedBytesPerSecond), since(&l.Since, now), cli.OrNone(string(l.Carrier)),
					cli.OrNone(l.CongestionControl), since(&g.RenewTime, now)}
				if g.Silent {
					row = append(padded(len(table.ColumnDefinitions)-1, n.Name, g.Name, l.Gateway, "Unknown"), since(&g.RenewTime, now))
				}
				table.Rows = append(table.Rows, metav1.TableRow{Cells: row})
			}
		}
	}
	return table
}

func pathTable(networks Networks, now time.Time) *metav1.Table {
	table := &metav1.Table{ColumnDefinitions: []metav1.TableColumnDefinition{
		cli.Column("Cluster", false), cli.Column("Pod", false), cli.Column("Node", false), cli.Column("To", false), cli.Column("Up", false),
		cli.Column("Latency", false), cli.Column("Loss", false), cli.Column("Since", false),
	}}
	for _, n := range networks.Clusters {
		for _, p := range n.Probes {
			for _, path := range p.Paths {
				table.Rows = append(table.Rows, metav1.TableRow{Cells: []any{n.Name, p.Name, p.Node, path.Address, truth(path.Up),
					took(path.RoundTripMicroseconds), fmt.Sprintf("%d%%", path.LossPercent), since(&path.Since, now)}})
			}
		}
	}
	return table
}

// problems says in a sentence each what is wrong.
func problems(networks Networks, now time.Time) (lines []string) {
	for _, n := range networks.Clusters {
		if n.PodNetwork == v1alpha1.Fabric && !n.Ready {
			message := n.Message
			if message == "" {
				message = "nothing is known of its network yet: see whether lodestone-virtualnode runs"
			}
			lines = append(lines, n.Name+": "+message)
		}
		for _, t := range n.Transit {
			if !t.Accepted {
				lines = append(lines, fmt.Sprintf("%s: pods there do not reach %s through home: %s", n.Name, t.Cluster, t.Message))
			}
			if t.Lanes != nil && !t.up() {
				lines = append(lines, fmt.Sprintf("%s: no lane from there to %s is up: %s", n.Name, t.Cluster, reason(t.Lanes.Message)))
			}
		}
		for _, g := range n.Gateways {
			if g.Silent {
				lines = append(lines, fmt.Sprintf("%s: gateway %s has written nothing for %s: see whether its pod runs (kubectl get pods -n %s "+
					"-o wide)", n.Name, g.Name, since(&g.RenewTime, now), keys.NetworkNamespace))
				continue
			}
			for _, l := range g.Lanes {
				if !l.Up {
					lines = append(lines, fmt.Sprintf("%s: gateway %s does not reach %s: %s", n.Name, g.Name, l.Gateway, reason(l.Message)))
				}
			}
		}
	}
	return lines
}

func reason(message string) string {
	if message == "" {
		return "what it sends is not answered"
	}
	return message
}

// padded is a row of so many cells, of which nothing is known but the first.
func padded(cells int, first ...any) []any {
	for len(first) < cells {
		first = append(first, cli.None)
	}
	return first
}

func truth(is bool) string {
	if is {
		return "True"
	}
	return "False"
}

func size(bytes int32) string {
	if bytes == 0 {
		return cli.None
	}
	return fmt.Sprint(bytes)
}

func since(at *metav1.Time, now time.Time) string {
	if at == nil || at.IsZero() {
		return cli.None
	}
	return duration.HumanDuration(now.Sub(at.Time))
}

// took is a time in milliseconds.
func took(microseconds int64) string {
	if microseconds == 0 {
		return cli.None
	}
	return fmt.Sprintf("%.2fms", float64(microseconds)/1000)
}

// rate is bytes a second as people read them.
func rate(bytes int64) string {
	value, unit := float64(bytes), 0
	for units := []string{"B/s", "kB/s", "MB/s", "GB/s"}; ; unit++ {
		if value < 999.5 || unit == len(units)-1 {
			if unit == 0 || value >= 100 {
				return fmt.Sprintf("%.0f%s", value, units[unit])
			}
			return fmt.Sprintf("%.1f%s", value, units[unit])
		}
		value /= 1000
	}
}
