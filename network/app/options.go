package app

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	logsapi "k8s.io/component-base/logs/api/v1"

	"github.com/lodestone-storage/lodestone/network/agent"
	"github.com/lodestone-storage/lodestone/network/cluster"
	"github.com/lodestone-storage/lodestone/network/lane"
	"github.com/lodestone-storage/lodestone/network/path"
	"github.com/lodestone-storage/lodestone/pkg/program"
	"github.com/lodestone-storage/lodestone/pkg/remotecluster"
)

const (
	stateDirectory = "/var/lib/lodestone-network"
	stateHelp      = "directory for the keys of a gateway and for what the node was told last, which nobody else may read"
)

// Options are the flags of the agent.
type Options struct {
	access
	Node        string
	Site        string
	State       string
	KeyAge      time.Duration
	PodCIDRs    []string
	Listen      string
	WireGuard   int
	Connections int
	HTTPAddress string
	Logs        *logsapi.LoggingConfiguration
}

// access is how a program reaches its own cluster, and of which links it reads there.
type access struct {
	Kubeconfig string
	Namespace  string
	Tenants    bool
}

func newAccess() access { return access{Namespace: os.Getenv("POD_NAMESPACE")} }

func (a *access) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&a.Kubeconfig, "kubeconfig", a.Kubeconfig, "kubeconfig file of this cluster; empty: that of the pod")
	flags.StringVar(&a.Namespace, "namespace", a.Namespace, "namespace of the program, and of the NetworkLinks that this cluster made as a "+
		"home cluster; default: the variable POD_NAMESPACE")
	flags.BoolVar(&a.Tenants, "tenants", a.Tenants, "this is a remote cluster: home clusters have NetworkLinks in their tenant namespaces")
}

func (a *access) validate() error {
	if a.Namespace == "" {
		return errors.New("--namespace is missing: give that of the program, or set POD_NAMESPACE")
	}
	return nil
}

func (a *access) config(agent string) (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", a.Kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("find the cluster (set --kubeconfig outside a pod): %w", err)
	}
	config.UserAgent = agent
	return config, nil
}

// NewOptions returns the defaults.
func NewOptions() *Options {
	return &Options{access: newAccess(), Node: os.Getenv("NODE_NAME"), State: stateDirectory, KeyAge: 90 * 24 * time.Hour,
		Listen: ":7473", WireGuard: 7477, Connections: 4, HTTPAddress: "127.0.0.1:7475", Logs: logsapi.NewLoggingConfiguration()}
}

// AddFlags adds the flags to a flag set.
func (o *Options) AddFlags(flags *pflag.FlagSet) {
	o.addFlags(flags)
	flags.StringVar(&o.Node, "node", o.Node, "name of this node; default: the variable NODE_NAME")
	flags.StringVar(&o.Site, "site", o.Site, "file of nodes, gateways and other clusters, which may change at any time, instead of the "+
		"objects of the cluster")
	flags.StringVar(&o.State, "state", o.State, stateHelp)
	flags.DurationVar(&o.KeyAge, "key-age", o.KeyAge, "how old the key of a gateway may be before it makes another one, at least 1h; "+
		"0: any age")
	flags.StringSliceVar(&o.PodCIDRs, "pod-cidrs", o.PodCIDRs, "ranges of IPv4 or IPv6 of which pods of this cluster have their addresses, "+
		"where its network does not take these from the podCIDRs of nodes, which are not looked at then; all nodes have to have the same")
	flags.StringVar(&o.Listen, "listen", o.Listen, "address at which a gateway is dialed by those of other clusters; empty: it only dials")
	flags.IntVar(&o.WireGuard, "wireguard-port", o.WireGuard, "UDP port at which a gateway listens for WireGuard of another cluster whose "+
		"carrier that is, and those after it where several dial; 0: it has no WireGuard")
	flags.IntVar(&o.Connections, "connections", o.Connections, "how many connections a gateway has to each gateway of another cluster")
	flags.StringVar(&o.HTTPAddress, "http-address", o.HTTPAddress, "address that serves /healthz, /readyz and /metrics; empty: none")
	logsapi.AddFlags(o.Logs, flags)
}

// Validate returns an error that joins all that is wrong with the options.
func (o *Options) Validate() error {
	var errs []error
	if o.Node == "" {
		errs = append(errs, errors.New("--node is missing: give the name of this node"))
	}
	if o.Site == "" {
		errs = append(errs, o.validate())
	} else if !filepath.IsAbs(o.Site) {
		errs = append(errs, fmt.Errorf("--site=%s is not the absolute path of a file", o.Site))
	}
	if _, err := o.podRanges(); err != nil {
		errs = append(errs, fmt.Errorf("--pod-cidrs: %w", err))
	}
	if len(o.PodCIDRs) > 0 && o.Site != "" {
		errs = append(errs, errors.New("--pod-cidrs is of no use with --site: have podRanges in that file"))
	}
	errs = append(errs, validateState(o.State))
	if o.KeyAge != 0 && o.KeyAge < time.Hour {
		errs = append(errs, fmt.Errorf("--key-age=%v: give 1h or more, or 0", o.KeyAge))
	}
	if o.WireGuard < 0 || o.WireGuard > 65000 {
		errs = append(errs, fmt.Errorf("--wireguard-port=%d: give 1 to 65000, or 0 for none", o.WireGuard))
	}
	if o.Connections < 1 || o.Connections > 64 {
		errs = append(errs, fmt.Errorf("--connections=%d: give 1 to 64", o.Connections))
	}
	errs = append(errs, program.ValidateAddress("--listen", o.Listen), program.ValidateAddress("--http-address", o.HTTPAddress))
	return errors.Join(errs...)
}

// podRanges are those of --pod-cidrs.
func (o *Options) podRanges() ([]netip.Prefix, error) {
	ranges, err := remotecluster.ParsePodRanges(o.PodCIDRs)
	if err == nil {
		err = ranges.Disjoint()
	}
	return ranges, err
}

func validateState(state string) error {
	if !filepath.IsAbs(state) {
		return fmt.Errorf("--state=%q is not the absolute path of a directory", state)
	}
	return nil
}

// Run runs the agent until ctx ends.
func (o *Options) Run(ctx context.Context) error {
	probes := program.NewProbes()
	probes.WaitFor("this node to be in line with the network")
	metrics := prometheus.NewRegistry()
	stop, err := probes.Serve(ctx, o.HTTPAddress, metrics)
	if err != nil {
		return err
	}
	defer stop()
	keys := lane.NewKeys(o.State)
	settings := agent.Settings{Self: o.Node, State: o.State, Keys: keys, KeyAge: o.KeyAge, Listen: o.Listen, WireGuardPort: o.WireGuard,
		Connections: o.Connections, Ready: probes.Ready, Metrics: metrics, Report: func(*agent.Report) {}}
	if o.Site != "" {
		settings.Told = (&file{path: o.Site}).read
		return agent.Run(ctx, settings)
	}
	config, err := o.config("lodestone-network")
	if err != nil {
		return err
	}
	ranges, err := o.podRanges()
	if err != nil {
		return err
	}
	watch, err := cluster.NewWatch(ctx, config, o.Namespace, o.Node, o.Tenants, ranges)
	if err != nil {
		return err
	}
	reporter, err := cluster.NewReporter(watch, config, o.Node, o.Listen, keys)
	if err != nil {
		return err
	}
	last := newKept(o.State, o.Node, watch.Told)
	settings.Told, settings.Report = last.told, reporter.Report
	go reporter.Run(ctx)
	go last.run(ctx)
	return agent.Run(ctx, settings)
}

// probeOptions are the flags of a pod that probes.
type probeOptions struct {
	access
	Name, Node  string
	Addresses   []string
	HTTPAddress string
	Logs        *logsapi.LoggingConfiguration
}

func newProbeOptions() *probeOptions {
	addresses := strings.FieldsFunc(os.Getenv("POD_IPS"), func(r rune) bool { return r == ',' })
	return &probeOptions{access: newAccess(), Name: os.Getenv("POD_NAME"), Node: os.Getenv("NODE_NAME"), Addresses: addresses,
		HTTPAddress: ":8081", Logs: logsapi.NewLoggingConfiguration()}
}

func (o *probeOptions) addFlags(flags *pflag.FlagSet) {
	o.access.addFlags(flags)
	flags.StringVar(&o.Name, "pod", o.Name, "name of this pod; default: the variable POD_NAME")
	flags.StringVar(&o.Node, "node", o.Node, "name of its node; default: the variable NODE_NAME")
	flags.StringSliceVar(&o.Addresses, "address", o.Addresses, "address of this pod, or one of IPv4 and one of IPv6; default: the variable "+
		"POD_IPS")
	flags.StringVar(&o.HTTPAddress, "http-address", o.HTTPAddress, "address that serves /healthz, /readyz and /metrics; empty: none")
	logsapi.AddFlags(o.Logs, flags)
}

func (o *probeOptions) validate() error {
	errs := []error{o.access.validate(), program.ValidateAddress("--http-address", o.HTTPAddress)}
	if o.Name == "" {
		errs = append(errs, errors.New("--pod is missing: give the name of this pod"))
	}
	if o.Node == "" {
		errs = append(errs, errors.New("--node is missing: give the name of its node"))
	}
	_, err := o.addresses()
	return errors.Join(append(errs, err)...)
}

// addresses are those of the pod, as they were given.
func (o *probeOptions) addresses() (all []netip.Addr, err error) {
	for _, text := range o.Addresses {
		address, err := netip.ParseAddr(text)
		if err != nil || address.Is4In6() || address.Zone() != "" {
			return nil, fmt.Errorf("--address=%q is no address: give that of this pod", text)
		}
		all = append(all, address)
	}
	if len(all) == 0 || len(all) > 2 || len(all) == 2 && all[0].Is4() == all[1].Is4() {
		return nil, errors.New("--address: give the address of this pod, or one of IPv4 and one of IPv6")
	}
	return all, nil
}

func (o *probeOptions) run(ctx context.Context) error {
	probes := program.NewProbes()
	probes.WaitFor("the NetworkLinks")
	metrics := prometheus.NewRegistry()
	stop, err := probes.Serve(ctx, o.HTTPAddress, metrics)
	if err != nil {
		return err
	}
	defer stop()
	config, err := o.config("lodestone-network-probe")
	if err != nil {
		return err
	}
	within := o.Namespace
	if o.Tenants {
		within = ""
	}
	addresses, err := o.addresses()
	if err != nil {
		return err
	}
	return path.Run(ctx, path.Settings{Name: o.Name, Node: o.Node, Addresses: addresses, Namespace: within, Config: config, Metrics: metrics,
		Ready: probes.Ready})
}
