package app

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	logsapi "k8s.io/component-base/logs/api/v1"

	"github.com/lodestone-storage/lodestone/extender/mtls"
	"github.com/lodestone-storage/lodestone/pkg/program"
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
	flags.DurationVar(&o.ShutdownGrace, "shutdown-grace", o.ShutdownGrace,
		"how long calls are still answered after a signal to stop, while callers turn elsewhere")
	flags.DurationVar(&o.MaxStaleness, "max-staleness", o.MaxStaleness, "for how long a kind of object may be out of sight before /readyz "+
		"says not ready; calls are answered all the same, and /readyz/serving stays ready")
	o.TLS.addFlags(flags)
}

// Validate returns an error that joins all that is wrong with the options.
func (o *Options) Validate() error {
	var mistakes []error
	for flag, address := range map[string]string{"--listen": o.Listen, "--http-address": o.HTTPAddress} {
		if address == "" {
			mistakes = append(mistakes, fmt.Errorf("%s is empty: give [HOST]:PORT", flag))
		}
		mistakes = append(mistakes, program.ValidateAddress(flag, address))
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

// TLSOptions are the flags on who may call the verbs.
type TLSOptions struct {
	CertFile       string
	PrivateKeyFile string
	ClientCAFile   string
	ClientNames    []string
	AllowPlainHTTP bool
}

func (o *TLSOptions) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&o.CertFile, "tls-cert-file", o.CertFile, "file of the certificate for --listen, in PEM; read again when it changes, as "+
		"are the two below")
	flags.StringVar(&o.PrivateKeyFile, "tls-private-key-file", o.PrivateKeyFile, "file of the certificate's private key, in PEM")
	flags.StringVar(&o.ClientCAFile, "client-ca-file", o.ClientCAFile,
		"file of the authorities whose client certificates are accepted at --listen, in PEM")
	flags.StringSliceVar(&o.ClientNames, "client-name", o.ClientNames, "common name or DNS name that a client certificate must have; may be "+
		"given several times; empty: any certificate of --client-ca-file")
	flags.BoolVar(&o.AllowPlainHTTP, "allow-plain-http", o.AllowPlainHTTP,
		"serve --listen without TLS to everybody who reaches it, also on other addresses than loopback")
}

// settings returns nil for plain http.
func (o *TLSOptions) settings() *mtls.Settings {
	if o.CertFile == "" {
		return nil
	}
	return &mtls.Settings{
		Files: mtls.Files{Certificate: o.CertFile, Key: o.PrivateKeyFile, ClientCA: o.ClientCAFile},
		Names: o.ClientNames,
	}
}

// validate returns all that is wrong with the options of a program that listens on an address.
func (o *TLSOptions) validate(listen string) error {
	files := []struct{ flag, path string }{
		{"--tls-cert-file", o.CertFile}, {"--tls-private-key-file", o.PrivateKeyFile}, {"--client-ca-file", o.ClientCAFile},
	}
	var missing []string
	for _, file := range files {
		if file.path == "" {
			missing = append(missing, file.flag)
		}
	}
	var mistakes []error
	plain := len(missing) == len(files)
	if len(missing) > 0 && !plain {
		mistakes = append(mistakes, fmt.Errorf("%s missing: --tls-cert-file, --tls-private-key-file and --client-ca-file belong together, "+
			"give all or none", strings.Join(missing, " and ")))
	}
	if plain && !o.AllowPlainHTTP && !loopback(listen) {
		mistakes = append(mistakes, fmt.Errorf("--listen=%s without TLS would answer everybody: give --tls-cert-file, --tls-private-key-file "+
			"and --client-ca-file, or listen on 127.0.0.1, or accept it with --allow-plain-http", listen))
	}
	if !plain && o.AllowPlainHTTP {
		mistakes = append(mistakes, errors.New("--allow-plain-http has no meaning with --tls-cert-file: leave one of them out"))
	}
	if plain && len(o.ClientNames) > 0 {
		mistakes = append(mistakes, errors.New("--client-name is checked in client certificates only: give --tls-cert-file, "+
			"--tls-private-key-file and --client-ca-file too"))
	}
	for _, name := range o.ClientNames {
		if name == "" {
			mistakes = append(mistakes, errors.New("--client-name is empty: leave it out to accept any certificate of --client-ca-file"))
		}
	}
	return errors.Join(mistakes...)
}

// loopback reports whether only programs of the same machine or pod can reach an address. Whether
// the text is an address at all is checked elsewhere.
func loopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return true
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// Config is what Run needs.
type Config struct {
	// Home reaches the API server of the home cluster.
	Home *rest.Config
	// Verbs accepts the calls of kube-scheduler, Status those of probes and Prometheus. Run closes
	// both.
	Verbs, Status net.Listener
	// TLS says who may call at Verbs; nil: everybody, over plain http.
	TLS *mtls.Settings
	// ShutdownGrace is how long calls are still answered after Run's context has ended.
	ShutdownGrace time.Duration
	// MaxStaleness is how long no changes of a kind of object may arrive before the program is not
	// ready.
	MaxStaleness time.Duration
}

// Config opens the listeners and makes the clients that the options name. The caller must pass the
// Config to Run or Close it.
func (o *Options) Config(ctx context.Context) (*Config, error) {
	home, err := homeCluster(o.Kubeconfig)
	if err != nil {
		return nil, err
	}
	config := &Config{Home: home, TLS: o.TLS.settings(), ShutdownGrace: o.ShutdownGrace, MaxStaleness: o.MaxStaleness}
	var listen net.ListenConfig
	if config.Verbs, err = listen.Listen(ctx, "tcp", o.Listen); err != nil {
		return nil, fmt.Errorf("open --listen: %w", err)
	}
	if config.Status, err = listen.Listen(ctx, "tcp", o.HTTPAddress); err != nil {
		return nil, errors.Join(fmt.Errorf("open --http-address: %w", err), config.Close())
	}
	return config, nil
}

func homeCluster(kubeconfig string) (*rest.Config, error) {
	if kubeconfig == "" {
		home, err := rest.InClusterConfig()
		if err != nil {
			return nil, fmt.Errorf("find the home cluster: outside a pod, set --kubeconfig: %w", err)
		}
		return home, nil
	}
	home, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("read --kubeconfig: %w", err)
	}
	return home, nil
}

// Close closes the listeners of a Config that was not passed to Run.
func (c *Config) Close() error {
	var problems []error
	for _, listener := range []net.Listener{c.Verbs, c.Status} {
		if listener != nil {
			problems = append(problems, listener.Close())
		}
	}
	return errors.Join(problems...)
}
