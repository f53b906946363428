package app

import (
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/spf13/pflag"
	logsapi "k8s.io/component-base/logs/api/v1"
)

// Options are the flags of the program, as they were given.
type Options struct {
	Kubeconfig    string
	Listen        string
	HTTPAddress   string
	ShutdownGrace time.Duration
	MaxStaleness  time.Duration
	TLS           TLSOptions
	Logs          *logsapi.LoggingConfiguration
}

// NewOptions returns the defaults.
func NewOptions() *Options {
	return &Options{
		Listen:        "127.0.0.1:8888",
		HTTPAddress:   ":8082",
		ShutdownGrace: 5 * time.Second,
		MaxStaleness:  time.Minute,
		Logs:          logsapi.NewLoggingConfiguration(),
	}
}

// AddFlags adds the flags, except those for logging.
func (o *Options) AddFlags(flags *pflag.FlagSet) {
	flags.StringVar(&o.Kubeconfig, "kubeconfig", o.Kubeconfig, "kubeconfig of the home cluster; empty: the ServiceAccount of the pod")
	flags.StringVar(&o.Listen, "listen", o.Listen, "address that kube-scheduler calls (verbs filter, prioritize and preempt)")
	flags.StringVar(&o.HTTPAddress, "http-address", o.HTTPAddress, "address of /healthz, /readyz, /readyz/serving, /metrics and /explain")
	flags.DurationVar(&o.ShutdownGrace, "shutdown-grace", o.ShutdownGrace, "how long calls are still answered after a signal to stop, while callers turn elsewhere")
	flags.DurationVar(&o.MaxStaleness, "max-staleness", o.MaxStaleness, "for how long a kind of object may be out of sight before /readyz says not ready; calls are answered all the same, and /readyz/serving stays ready")
	o.TLS.addFlags(flags)
}

// Validate returns every mistake in the options.
func (o *Options) Validate() error {
	var mistakes []error
	for flag, address := range map[string]string{"--listen": o.Listen, "--http-address": o.HTTPAddress} {
		if _, _, err := net.SplitHostPort(address); err != nil {
			mistakes = append(mistakes, fmt.Errorf("%s must be [host]:port: %w", flag, err))
		}
	}
	if _, port, err := net.SplitHostPort(o.Listen); err == nil && port != "0" && o.Listen == o.HTTPAddress {
		mistakes = append(mistakes, fmt.Errorf("--listen and --http-address are both %s: give each its own port", o.Listen))
	}
	if o.ShutdownGrace < 0 {
		mistakes = append(mistakes, fmt.Errorf("--shutdown-grace is %s: it must not be negative", o.ShutdownGrace))
	}
	if o.MaxStaleness <= 0 {
		mistakes = append(mistakes, fmt.Errorf("--max-staleness is %s: it must be positive", o.MaxStaleness))
	}
	return errors.Join(append(mistakes, o.TLS.validate(o.Listen))...)
}
