package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"

	"github.com/spf13/pflag"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	logsapi "k8s.io/component-base/logs/api/v1"

	"github.com/lodestone-storage/lodestone/network/homeapi"
	"github.com/lodestone-storage/lodestone/pkg/program"
)

// homeAPIOptions are the flags of a pod through which pods of remote clusters reach the API server.
type homeAPIOptions struct {
	Kubeconfig, Namespace, Listen string
	Logs                          *logsapi.LoggingConfiguration
}

func newHomeAPIOptions() *homeAPIOptions {
	return &homeAPIOptions{Namespace: os.Getenv("POD_NAMESPACE"), Listen: ":6443", Logs: logsapi.NewLoggingConfiguration()}
}

func (o *homeAPIOptions) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&o.Kubeconfig, "kubeconfig", o.Kubeconfig, "kubeconfig file of this cluster; empty: that of the pod")
	flags.StringVar(&o.Namespace, "namespace", o.Namespace, "namespace whose pods are connected; default: the variable POD_NAMESPACE")
	flags.StringVar(&o.Listen, "listen", o.Listen, "address at which pods connect")
	logsapi.AddFlags(o.Logs, flags)
}

func (o *homeAPIOptions) validate() error {
	errs := []error{program.ValidateAddress("--listen", o.Listen)}
	if o.Listen == "" {
		errs = append(errs, errors.New("--listen is empty: give the address at which pods connect, such as :6443"))
	}
	if o.Namespace == "" {
		errs = append(errs, errors.New("--namespace is missing: give that whose pods are connected, or set POD_NAMESPACE"))
	}
	return errors.Join(errs...)
}

func (o *homeAPIOptions) run(ctx context.Context) error {
	config, err := clientcmd.BuildConfigFromFlags("", o.Kubeconfig)
	if err != nil {
		return fmt.Errorf("find the cluster (set --kubeconfig outside a pod): %w", err)
	}
	config.UserAgent, config.QPS, config.Burst = "lodestone-home-api", 50, 100
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	at, err := url.Parse(config.Host)
	if err != nil || at.Hostname() == "" {
		return fmt.Errorf("the address of the API server, %q, is none: see the kubeconfig", config.Host)
	}
	server := net.JoinHostPort(at.Hostname(), cmp.Or(at.Port(), "443"))
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", o.Listen)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	dial := func(ctx context.Context) (net.Conn, error) { return (&net.Dialer{}).DialContext(ctx, "tcp", server) }
	return homeapi.New(dial, client.CoreV1().Pods(o.Namespace)).Serve(ctx, listener)
}
