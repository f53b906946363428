package app

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"

	"github.com/lodestone-storage/lodestone/extender/metrics"
	"github.com/lodestone-storage/lodestone/extender/mtls"
)

// followInterval is how often the files of certificates are read. They change a
// few times a year, and old ones stay valid for days.
const followInterval = 5 * time.Second

// TLSOptions are the flags about who may call the verbs.
type TLSOptions struct {
	CertFile       string
	PrivateKeyFile string
	ClientCAFile   string
	ClientNames    []string
	AllowPlainHTTP bool
}

func (o *TLSOptions) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&o.CertFile, "tls-cert-file", o.CertFile, "file of the certificate for --listen, in PEM; read again when it changes, as are the two below")
	flags.StringVar(&o.PrivateKeyFile, "tls-private-key-file", o.PrivateKeyFile, "file of the certificate's private key, in PEM")
	flags.StringVar(&o.ClientCAFile, "client-ca-file", o.ClientCAFile, "file of the authorities whose client certificates are accepted at --listen, in PEM")
	flags.StringSliceVar(&o.ClientNames, "client-name", o.ClientNames, "common name or DNS name that a client certificate must have; may be given several times; empty: any certificate of --client-ca-file")
	flags.BoolVar(&o.AllowPlainHTTP, "allow-plain-http", o.AllowPlainHTTP, "serve --listen without TLS to everybody who reaches it, also on other addresses than loopback")
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

// validate returns every mistake in the options of a program that listens on an
// address.
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
		mistakes = append(mistakes, fmt.Errorf("%s missing: --tls-cert-file, --tls-private-key-file and --client-ca-file belong together, give all or none", strings.Join(missing, " and ")))
	}
	if plain && !o.AllowPlainHTTP && !loopback(listen) {
		mistakes = append(mistakes, fmt.Errorf("--listen=%s without TLS would answer everybody: give --tls-cert-file, --tls-private-key-file and --client-ca-file, or listen on 127.0.0.1, or accept it with --allow-plain-http", listen))
	}
	if !plain && o.AllowPlainHTTP {
		mistakes = append(mistakes, errors.New("--allow-plain-http has no meaning with --tls-cert-file: leave one of them out"))
	}
	if plain && len(o.ClientNames) > 0 {
		mistakes = append(mistakes, errors.New("--client-name is checked in client certificates only: give --tls-cert-file, --tls-private-key-file and --client-ca-file too"))
	}
	for _, name := range o.ClientNames {
		if name == "" {
			mistakes = append(mistakes, errors.New("--client-name is empty: leave it out to accept any certificate of --client-ca-file"))
		}
	}
	return errors.Join(mistakes...)
}

// loopback reports whether only programs of the same machine or pod reach an
// address. One that is no address is judged elsewhere.
func loopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return true
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// protect makes config serve the verbs with the certificates that it names, if it
// names any, and says in the answers to probes of readiness when these are of no use any more.
func protect(ctx context.Context, group *errgroup.Group, config *Config, verbs, status *http.Server, counters *metrics.Metrics) error {
	if config.TLS == nil {
		return nil
	}
	guard, err := mtls.Open(*config.TLS, time.Now, counters.Certificates())
	if err != nil {
		return fmt.Errorf("serve with TLS: %w", err)
	}
	guard.Attach(ctx, verbs)
	config.Verbs = guard.Listener(config.Verbs)
	status.Handler = readyUnless(guard.Problem, status.Handler)
	group.Go(func() error { guard.Follow(ctx, followInterval); return nil })
	return nil
}

func readyUnless(problem func() error, next http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", next)
	for _, path := range []string{"/readyz", "/readyz/serving"} {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, r *http.Request) {
			if err := problem(); err != nil {
				http.Error(w, "not ready: "+err.Error(), http.StatusServiceUnavailable)
				return
			}
			next.ServeHTTP(w, r)
		})
	}
	return mux
}
