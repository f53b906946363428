package peer

import (
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/outcome"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// Ways to log in.
const (
	Token       = "token"
	Certificate = "certificate"
)

// longestLogin is the longest life of credentials that may be asked for; the API
// counts seconds in 32 bits.
const longestLogin = 10 * 365 * 24 * time.Hour

// Options are the flags of peer. An empty value leaves what is there, or the
// default.
type Options struct {
	RemoteContext, RemoteKubeconfig string
	RemoteServer, RemoteCAFile      string
	Name, HomeID                    string
	Namespace                       string
	Auth                            string
	Duration                        time.Duration
	Renew                           bool
	Offer                           map[string]string
	PodSecurity                     string
	Namespaces                      []string
	PodNetwork, Strategy            string
	StorageClass, VirtualNode       string
	DryRun, Output, For             string
	ShowSecrets                     bool
	Timeout                         time.Duration

	// Made of the flags by Complete.
	offer corev1.ResourceList
	ca    []byte
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
	flags.StringVar(&o.RemoteContext, "remote-context", o.RemoteContext, "kubeconfig context of the remote cluster; default: the current context of --remote-kubeconfig")
	flags.StringVar(&o.RemoteKubeconfig, "remote-kubeconfig", o.RemoteKubeconfig, "kubeconfig file of the remote cluster; default: the one that kubectl uses")
	flags.StringVar(&o.RemoteServer, "remote-server", o.RemoteServer, "address, https://<host>:<port>, at which home's pods reach the remote API server; default: that of the remote context")
	flags.StringVar(&o.RemoteCAFile, "remote-ca-file", o.RemoteCAFile, "file with the certificate authority of --remote-server in PEM; default: that of the remote context")
	flags.StringVar(&o.Name, "name", o.Name, "what home calls the remote cluster: the name of the RemoteCluster and of the virtual node; default: the name of the remote context")
	flags.StringVar(&o.HomeID, "home-id", o.HomeID, "ID of the home cluster, equal to --cluster-id of the provisioner; default: what the provisioner uses")
	flags.StringVar(&o.Namespace, "lodestone-namespace", o.Namespace, "namespace of home in which Lodestone runs")
	flags.StringVar(&o.Auth, "auth", o.Auth, "how home logs in there: token (of a service account; renewed by itself) or certificate (signed by the remote cluster; renewed with --renew); default: as it is, at first token")
	flags.DurationVar(&o.Duration, "token-duration", o.Duration, "how long the token or certificate is to be valid; the remote cluster may grant less")
	flags.BoolVar(&o.Renew, "renew", o.Renew, "give an existing peering new credentials")
	flags.StringToStringVar(&o.Offer, "offer", o.Offer, "how much home's pods may request there in all, such as cpu=4,memory=8Gi; default: all that the nodes have")
	flags.StringVar(&o.PodSecurity, "pod-security", o.PodSecurity, "Pod Security Standard of home's namespaces there: privileged, baseline or restricted; default: baseline")
	flags.StringSliceVar(&o.Namespaces, "namespaces", o.Namespaces, "patterns of the names that home's namespaces there may have, such as 'shop-*'; default: any")
	flags.StringVar(&o.PodNetwork, "pod-network", o.PodNetwork, "Routed where pods of the two clusters reach each other's addresses, else Isolated; default: Isolated")
	flags.StringVar(&o.Strategy, "namespace-strategy", o.Strategy, "SameName, or Suffixed for <namespace>-<home ID>; default: SameName, but Suffixed where the remote cluster already serves another home")
	flags.StringVar(&o.StorageClass, "storage-class", o.StorageClass, "real storage class to use there; default: the default class there")
	flags.StringVar(&o.VirtualNode, "virtual-node", o.VirtualNode, "Disabled where Liqo, Admiralty or somebody else registers a node for the remote cluster, else Enabled; default: Enabled")
	flags.StringVar(&o.DryRun, "dry-run", o.DryRun, "client: print the objects of both clusters and change nothing")
	flags.StringVarP(&o.Output, "output", "o", o.Output, "how --dry-run prints: yaml or json")
	flags.StringVar(&o.For, "for", o.For, "with --dry-run, print the objects of home, remote, or both")
	flags.BoolVar(&o.ShowSecrets, "show-secrets", o.ShowSecrets, "with --dry-run, print credentials that exist too")
	flags.DurationVar(&o.Timeout, "timeout", o.Timeout, "how long to wait in all; what was begun goes on by itself or by the same command again")
}

// idPattern is that of IDs of clusters.
var idPattern = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`)

// Complete judges the flags and reads what they name.
func (o *Options) Complete() (err error) {
	oneOf := func(flag, value string, allowed ...string) {
		if err == nil && !slices.Contains(allowed, value) {
			err = outcome.Misuse("--%s %q is not known: give %s", flag, value, strings.Join(allowed, " or "))
		}
	}
	oneOf("auth", o.Auth, "", Token, Certificate)
	oneOf("dry-run", o.DryRun, "none", "client")
	oneOf("output", o.Output, "yaml", "json")
	oneOf("for", o.For, "both", "home", "remote")
	oneOf("pod-security", o.PodSecurity, "", "privileged", "baseline", "restricted")
	oneOf("pod-network", o.PodNetwork, "", string(v1alpha1.Isolated), string(v1alpha1.Routed))
	oneOf("virtual-node", o.VirtualNode, "", string(v1alpha1.VirtualNodeEnabled), string(v1alpha1.VirtualNodeDisabled))
	oneOf("namespace-strategy", o.Strategy, "", string(v1alpha1.SameName), string(v1alpha1.Suffixed))
	switch {
	case err != nil:
		return err
	case o.RemoteContext == "" && o.RemoteKubeconfig == "":
		return outcome.Misuse("say which cluster to peer with: give --remote-context, or --remote-kubeconfig with a current context")
	case o.Name != "" && !validName(o.Name):
		return outcome.Misuse("--name %q cannot be used: give up to 63 lower-case letters, digits and '-', other than %q", o.Name, keys.Home)
	case o.HomeID != "" && (len(o.HomeID) > maxHomeID || !idPattern.MatchString(o.HomeID)):
		return outcome.Misuse("--home-id %q cannot be used: give up to %d lower-case letters, digits and '-'", o.HomeID, maxHomeID)
	case o.Duration < 10*time.Minute:
		return outcome.Misuse("--token-duration %v is too short: give at least 10m", o.Duration)
	case o.Duration > longestLogin:
		return outcome.Misuse("--token-duration %v is too long: give at most %v, 10 years", o.Duration, longestLogin)
	case o.Timeout <= 0:
		return outcome.Misuse("--timeout must be more than 0")
	}
	if o.RemoteCAFile != "" {
		if o.ca, err = os.ReadFile(o.RemoteCAFile); err != nil {
			return outcome.Misuse("--remote-ca-file cannot be read: %w", err)
		}
	}
	o.offer, err = quantities(o.Offer)
	return err
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
			return nil, outcome.Misuse("--offer %s=%s is not a quantity: give one such as %s", name, offer[name], "cpu=4,memory=8Gi")
		}
		list[corev1.ResourceName(name)] = quantity
	}
	return list, nil
}

// nameFor returns what home calls the cluster of a context when no flag says it.
func nameFor(context string) (string, error) {
	if !validName(context) {
		return "", outcome.Misuse("the context name %q cannot be the name of a cluster: give one with --name (up to 63 lower-case letters, digits and '-')", context)
	}
	return context, nil
}

// String returns what a RemoteCluster is called in messages.
func called(name string) string { return fmt.Sprintf("RemoteCluster %q", name) }
