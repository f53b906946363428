// Package peer is the command peer: it makes a remote cluster known to home, and home to it.
// command.go has the flags, decide.go the pure decision on what to do, run.go the steps and what --dry-run prints of them, login.go
// home's credentials, way.go how the remote cluster is reached.
package peer

import (
	"context"
	"maps"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/cli"
	"github.com/lodestone-storage/lodestone/kubectl-lodestone/discovery"
	"github.com/lodestone-storage/lodestone/kubectl-lodestone/replica"
	networkv1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/network/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/remotecluster"
)

// New returns the command.
func New(flags *genericclioptions.ConfigFlags, streams genericiooptions.IOStreams) *cobra.Command {
	o := NewOptions()
	command := &cobra.Command{
		Use:   "peer --remote-context CONTEXT",
		Short: "Let pods and volumes of this cluster be in another one",
		Long: `Peer lets pods and volumes of the home cluster (kubectl's current context, or
--context) be in a remote cluster (--remote-context). It works with your own
rights in both clusters and gives home an identity of its own there.

Before it, Lodestone must be installed at home (deploy/overlays) and the remote
agent in the remote cluster (deploy/remote). Peer makes a HomeCluster there, which
says what home may do, and a Secret and a RemoteCluster at home; then it waits
until both sides are ready. It may be stopped and run again at any time: it goes on
where it stopped. Run again with other flags it changes what they say.`,
		Example: `  # Peer with the cluster of context west, by the name west; namespaces there end in home's ID
  kubectl lodestone peer --remote-context west

  # With namespaces of the same names
  kubectl lodestone peer --remote-context west --namespaces shop,lab

  # Take at most 4 CPUs and 8 GiB of it, in namespaces that begin with shop-
  kubectl lodestone peer --remote-context west --offer cpu=4,memory=8Gi --namespaces 'shop-*'

  # Home's pods reach its API server at another address than you do
  kubectl lodestone peer --remote-context kind-west --name west --remote-server https://west-control-plane:6443

  # Log in with a client certificate in place of a token
  kubectl lodestone peer --remote-context west --auth certificate

  # A cluster that announces itself, with what its owner handed out
  kubectl lodestone peer --discovered west --domain fabric.example.com \
    --remote-token-file west.token --remote-ca-hash sha256:HASH

  # New credentials for a peering that exists
  kubectl lodestone peer --remote-context west --renew

  # Only show what would be made there
  kubectl lodestone peer --remote-context west --dry-run=client --for remote -o yaml`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return cli.Misuse("%q is one argument too many: name the remote cluster by the context of your kubeconfig that leads there, as in "+
					"--remote-context %s", args[0], args[0])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			connect, err := o.way(flags, cmd.UseLine())
			if err != nil {
				return err
			}
			if err := o.printsOnly(cmd); err != nil {
				return err
			}
			if err := o.Complete(); err != nil {
				return err
			}
			home, err := cli.ConnectHome(flags)
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), o.Timeout)
			defer cancel()
			remote, err := connect(ctx, home)
			if err != nil {
				return err
			}
			p := &peering{Options: *o, home: home, remote: remote, Reporter: cli.Reporter{Out: streams.ErrOut}, out: streams}
			return p.run(ctx)
		},
	}
	o.AddFlags(command.Flags())
	for name, values := range map[string][]string{
		"auth": {Token, Certificate}, "dry-run": {"none", "client"}, "output": {"yaml", "json"}, "for": {"both", "home", "remote"},
		"pod-security": {"privileged", "baseline", "restricted"}, "pod-network": {"Isolated", "Routed", "Fabric"},
		"namespace-strategy": {"SameName", "Suffixed"},
		"virtual-node":       {"Enabled", "Disabled"},
	} {
		_ = command.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
	}
	cli.CompleteFlag(command, flags, "name", cli.NamesOf(cli.RemoteCluster))
	cli.CompleteFlag(command, flags, "lodestone-namespace", cli.NamesOf(cli.Namespace))
	return command
}

// Ways to log in.
const (
	Token       = "token"
	Certificate = "certificate"
)

// maxLoginDuration is the longest lifetime of credentials that may be requested; the API has 32
// bits for the seconds.
const maxLoginDuration = 10 * 365 * 24 * time.Hour

// Options are the flags of peer. An empty value keeps the present value, or means the default.
type Options struct {
	RemoteContext, RemoteKubeconfig string
	ClusterProfile                  string
	ClusterProfileProviders         string
	Discovered                      string
	Where                           discovery.Where
	RemoteTokenFile, RemoteCAHash   string
	RemoteServer, RemoteCAFile      string
	HomeServer                      string
	Name, HomeID                    string
	Namespace                       string
	Auth                            string
	Duration                        time.Duration
	Renew                           bool
	Offer                           map[string]string
	PodSecurity                     string
	Namespaces                      []string
	PodNetwork, Strategy            string
	PodCarrier                      string
	PodCIDRs, HomePodCIDRs          []string
	PodTranslations                 map[string]string
	HomePodTranslations             map[string]string
	StorageClass, VirtualNode       string
	DryRun, Output, For             string
	ShowSecrets                     bool
	Timeout                         time.Duration

	// Complete makes this of the flags.
	offer corev1.ResourceList
	ca    []byte
	token string
}

// NewOptions returns the defaults.
func NewOptions() *Options {
	return &Options{
		Namespace: "lodestone-system", Duration: 30 * 24 * time.Hour,
		DryRun: "none", Output: "yaml", For: "both", Timeout: 2 * time.Minute,
	}
}

// AddFlags adds the flags to a flag set.
func (o *Options) AddFlags(flags *pflag.FlagSet) {
	flags.StringVar(&o.RemoteContext, "remote-context", o.RemoteContext,
		"kubeconfig context of the remote cluster; default: the current context of --remote-kubeconfig")
	flags.StringVar(&o.RemoteKubeconfig, "remote-kubeconfig", o.RemoteKubeconfig,
		"kubeconfig file of the remote cluster; default: the one that kubectl uses")
	flags.StringVar(&o.ClusterProfile, "cluster-profile", o.ClusterProfile,
		"ClusterProfile of home, <namespace>/<name>, that leads to the remote cluster, in place of a context")
	flags.StringVar(&o.ClusterProfileProviders, "cluster-profile-providers", o.ClusterProfileProviders,
		"file with the programs that log in for the access providers of --cluster-profile, as KEP-5339 describes it")
	flags.StringVar(&o.Discovered, "discovered", o.Discovered,
		"name by which the remote cluster announces itself in --domain or by --mdns, in place of a context")
	o.Where.AddFlags(flags)
	flags.StringVar(&o.RemoteTokenFile, "remote-token-file", o.RemoteTokenFile,
		"with --discovered, file with the token that the owner of the remote cluster handed out")
	flags.StringVar(&o.RemoteCAHash, "remote-ca-hash", o.RemoteCAHash, "with --discovered, hash of its certificate authority that the owner "+
		"handed out, sha256:<hex>: no other server gets the token")
	flags.StringVar(&o.RemoteServer, "remote-server", o.RemoteServer, "address, https://<host>:<port>, at which home's pods reach the "+
		"remote API server; default: that of the remote context")
	flags.StringVar(&o.RemoteCAFile, "remote-ca-file", o.RemoteCAFile,
		"file with the certificate authority of --remote-server in PEM, or of a --discovered cluster that does not show it; default: that of "+
			"the remote context")
	flags.StringVar(&o.HomeServer, "home-server", o.HomeServer, "address, https://<host>:<port>, at which pods there reach home's API "+
		"server, for those that get a token of it; default: as it is, at first none")
	flags.StringVar(&o.Name, "name", o.Name, "what home calls the remote cluster: the name of the RemoteCluster and of the virtual node; "+
		"default: the name of the remote context")
	flags.StringVar(&o.HomeID, "home-id", o.HomeID, "ID of the home cluster, equal to --cluster-id of the provisioner; default: what the "+
		"provisioner uses")
	flags.StringVar(&o.Namespace, "lodestone-namespace", o.Namespace, "namespace of home in which Lodestone runs")
	flags.StringVar(&o.Auth, "auth", o.Auth, "how home logs in there: token (of a service account; renewed by itself) or certificate "+
		"(signed by the remote cluster; renewed with --renew); default: as it is, at first token")
	flags.DurationVar(&o.Duration, "token-duration", o.Duration, "how long the token or certificate is to be valid; the remote cluster "+
		"may grant less")
	flags.BoolVar(&o.Renew, "renew", o.Renew, "give an existing peering new credentials")
	flags.StringToStringVar(&o.Offer, "offer", o.Offer, "how much home's pods may request there in all, such as cpu=4,memory=8Gi; default: "+
		"all that the nodes have")
	flags.StringVar(&o.PodSecurity, "pod-security", o.PodSecurity, "Pod Security Standard of home's namespaces there: privileged, baseline "+
		"or restricted; default: baseline")
	flags.StringSliceVar(&o.Namespaces, "namespaces", o.Namespaces, "patterns of the names that home's namespaces there may have, such as "+
		"'shop-*'; default: those that end in - and home's ID")
	flags.StringVar(&o.PodNetwork, "pod-network", o.PodNetwork, "Routed where pods of the two clusters reach each other's addresses, "+
		"Fabric to have Lodestone's network program join those of offloaded namespaces, else Isolated; default: Isolated")
	flags.StringVar(&o.PodCarrier, "pod-carrier", o.PodCarrier, "with --pod-network Fabric, what carries packets between the clusters: TLS, "+
		"or WireGuard where the kernels have it; default: TLS")
	flags.StringSliceVar(&o.PodCIDRs, "pod-cidrs", o.PodCIDRs, "with --pod-network Routed or Fabric, ranges from which pods there have their "+
		"addresses, such as 10.244.0.0/16: no others are taken over")
	flags.StringSliceVar(&o.HomePodCIDRs, "home-pod-cidrs", o.HomePodCIDRs, "with --pod-network Fabric, ranges from which pods at home have "+
		"their addresses; default: those that home's nodes tell")
	flags.StringToStringVar(&o.PodTranslations, "pod-translations", o.PodTranslations, "with --pod-network Fabric, by which ranges home "+
		"reaches those of --pod-cidrs, such as 10.244.0.0/16=100.64.0.0/16; default: as it is, and one of 100.64.0.0/10 for each that overlaps")
	flags.StringToStringVar(&o.HomePodTranslations, "home-pod-translations", o.HomePodTranslations, "with --pod-network Fabric, by which "+
		"ranges pods there reach those at home; default: as it is, and one of 100.64.0.0/10 for each that overlaps")
	flags.StringVar(&o.Strategy, "namespace-strategy", o.Strategy, "SameName, or Suffixed for <namespace>-<home ID>; default: SameName with "+
		"--namespaces, but Suffixed without or where the remote cluster already serves another home")
	flags.StringVar(&o.StorageClass, "storage-class", o.StorageClass, "real storage class to use there; default: the default class there")
	flags.StringVar(&o.VirtualNode, "virtual-node", o.VirtualNode, "Disabled where Liqo, Admiralty or somebody else registers a node for "+
		"the remote cluster, else Enabled; default: Enabled")
	flags.StringVar(&o.DryRun, "dry-run", o.DryRun, "client: print the objects of both clusters and change nothing")
	flags.StringVarP(&o.Output, "output", "o", o.Output, "how --dry-run prints: yaml or json")
	flags.StringVar(&o.For, "for", o.For, "with --dry-run, print the objects of home, remote, or both")
	flags.BoolVar(&o.ShowSecrets, "show-secrets", o.ShowSecrets, "with --dry-run, print credentials that exist too")
	flags.DurationVar(&o.Timeout, "timeout", o.Timeout, "how long to wait in all; what was begun goes on by itself or by the same "+
		"command again")
}

// printsOnly returns an error for a flag that says how --dry-run prints, without that.
func (o *Options) printsOnly(cmd *cobra.Command) error {
	for _, name := range []string{"output", "for", "show-secrets"} {
		if o.DryRun == "none" && cmd.Flags().Changed(name) {
			return cli.Misuse("--%s is for what --dry-run=client prints: give that, too, or leave --%s out", name, name)
		}
	}
	return nil
}

// idPattern matches the IDs of clusters.
var idPattern = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`)

// namePattern matches the patterns of names that a namespace can have.
var namePattern = regexp.MustCompile(`^[-a-z0-9*]+$`)

// Complete validates the flags and reads the files that they name.
func (o *Options) Complete() (err error) {
	oneOf := func(flag, value string, allowed ...string) {
		if err == nil && !slices.Contains(allowed, value) {
			named := slices.DeleteFunc(slices.Clone(allowed), func(a string) bool { return a == "" })
			err = cli.Misuse("--%s %q is not known: give %s", flag, value, cli.Or(named))
		}
	}
	oneOf("auth", o.Auth, "", Token, Certificate)
	oneOf("dry-run", o.DryRun, "none", "client")
	oneOf("output", o.Output, "yaml", "json")
	oneOf("for", o.For, "both", "home", "remote")
	oneOf("pod-security", o.PodSecurity, "", "privileged", "baseline", "restricted")
	oneOf("pod-network", o.PodNetwork, "", string(v1alpha1.Isolated), string(v1alpha1.Routed), string(v1alpha1.Fabric))
	oneOf("pod-carrier", o.PodCarrier, "", string(networkv1alpha1.TLS), string(networkv1alpha1.WireGuard))
	oneOf("virtual-node", o.VirtualNode, "", string(v1alpha1.VirtualNodeEnabled), string(v1alpha1.VirtualNodeDisabled))
	oneOf("namespace-strategy", o.Strategy, "", string(v1alpha1.SameName), string(v1alpha1.Suffixed))
	switch {
	case err != nil:
		return err
	case o.Name != "" && !validName(o.Name):
		return cli.Misuse("--name %q cannot be used: give up to 63 lower-case letters, digits and '-', other than %q", o.Name, keys.Home)
	case o.HomeID != "" && (len(o.HomeID) > maxHomeID || !idPattern.MatchString(o.HomeID)):
		return cli.Misuse("--home-id %q cannot be used: give up to %d lower-case letters, digits and '-'", o.HomeID, maxHomeID)
	case o.Duration < 10*time.Minute:
		return cli.Misuse("--token-duration %s is too short: give at least 10m", replica.Short(o.Duration))
	case o.Duration > maxLoginDuration:
		return cli.Misuse("--token-duration %s is too long: give at most %s, 10 years", replica.Short(o.Duration),
			replica.Short(maxLoginDuration))
	case o.Timeout <= 0:
		return cli.Misuse("--timeout must be more than 0: give a time such as 2m")
	}
	if err := o.checkNames(); err != nil {
		return err
	}
	if o.RemoteCAFile != "" {
		if o.ca, err = os.ReadFile(o.RemoteCAFile); err != nil {
			return cli.Misuse("--remote-ca-file cannot be read: %w", err)
		}
	}
	if o.RemoteTokenFile != "" {
		if o.token, err = readToken(o.RemoteTokenFile); err != nil {
			return err
		}
	}
	o.offer, err = quantities(o.Offer)
	return err
}

// checkNames checks what can be known of names, patterns and addresses before a cluster is asked.
func (o *Options) checkNames() error {
	for _, pattern := range o.Namespaces {
		switch {
		case !namePattern.MatchString(pattern):
			return cli.Misuse("--namespaces %q fits no namespace: give patterns of lower-case letters, digits, '-' and '*'", pattern)
		case pattern == metav1.NamespaceDefault || strings.HasPrefix(pattern, "kube-") || strings.HasPrefix(pattern, "lodestone-"):
			return cli.Misuse("--namespaces %q is of no use: namespace default, and those whose names begin with kube- or lodestone-, are never "+
				"given to a home cluster", pattern)
		}
	}
	if o.StorageClass != "" && len(validation.IsDNS1123Subdomain(o.StorageClass)) > 0 {
		return cli.Misuse("--storage-class %q cannot be a name: names have lower-case letters, digits, '-' and '.'", o.StorageClass)
	}
	for flag, server := range map[string]string{"remote-server": o.RemoteServer, "home-server": o.HomeServer} {
		address, err := url.Parse(server)
		if server != "" && (err != nil || address.Scheme != "https" || address.Host == "") {
			return cli.Misuse("--%s %q is not an address of an API server: give https://<host>:<port>", flag, server)
		}
	}
	if address, err := url.Parse(o.HomeServer); err != nil || strings.Trim(address.Path, "/") != "" || address.RawQuery != "" {
		return cli.Misuse("--home-server %q has a path, which clients in pods do not heed: give https://<host>:<port>", o.HomeServer)
	}
	for _, given := range []struct {
		flag  string
		texts []string
	}{{"--home-pod-cidrs", o.HomePodCIDRs}, {"--pod-cidrs", o.PodCIDRs}} {
		ranges, err := remotecluster.ParsePodRanges(given.texts)
		if err == nil {
			err = ranges.Disjoint()
		}
		if err != nil {
			return cli.Misuse("%s: %w", given.flag, err)
		}
	}
	if _, err := parseTranslations(o.PodTranslations); err != nil {
		return cli.Misuse("--pod-translations: %w", err)
	}
	if _, err := parseTranslations(o.HomePodTranslations); err != nil {
		return cli.Misuse("--home-pod-translations: %w", err)
	}
	return nil
}

func validName(name string) bool {
	return name != keys.Home && len(name) <= 63 && idPattern.MatchString(name)
}

func quantities(offer map[string]string) (corev1.ResourceList, error) {
	if len(offer) == 0 {
		return nil, nil
	}
	list := corev1.ResourceList{}
	for _, name := range slices.Sorted(maps.Keys(offer)) {
		quantity, err := resource.ParseQuantity(offer[name])
		if err != nil || quantity.Sign() < 0 {
			return nil, cli.Misuse("--offer %s=%s is not a quantity: give one such as %s", name, offer[name], "cpu=4,memory=8Gi")
		}
		list[corev1.ResourceName(name)] = quantity
	}
	return list, nil
}
