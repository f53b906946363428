package app

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/klog/v2"

	"github.com/lodestone-storage/lodestone/deploy"
	"github.com/lodestone-storage/lodestone/extender/webhook"
	"github.com/lodestone-storage/lodestone/pkg/controller"
	"github.com/lodestone-storage/lodestone/pkg/program"
	"github.com/lodestone-storage/lodestone/pkg/program/command"
)

// WebhookOptions are the flags of the command webhook.
type WebhookOptions struct {
	Kubeconfig               string
	Listen, HTTPAddress      string
	CertFile, PrivateKeyFile string
	Logs                     *logsapi.LoggingConfiguration
}

// NewWebhookOptions returns the defaults.
func NewWebhookOptions() *WebhookOptions {
	return &WebhookOptions{Listen: ":8443", HTTPAddress: ":8082", Logs: logsapi.NewLoggingConfiguration()}
}

// AddFlags adds the flags, except those for logging.
func (o *WebhookOptions) AddFlags(flags *pflag.FlagSet) {
	flags.StringVar(&o.Kubeconfig, "kubeconfig", o.Kubeconfig, "kubeconfig of the home cluster; empty: the ServiceAccount of the pod")
	flags.StringVar(&o.Listen, "listen", o.Listen, "address that API servers call, over TLS")
	flags.StringVar(&o.HTTPAddress, "http-address", o.HTTPAddress, "address of /healthz, /readyz and /metrics; empty: none")
	flags.StringVar(&o.CertFile, "tls-cert-file", o.CertFile, "certificate in PEM, for the names of Service "+webhook.Service+
		"; it is read again when it changes")
	flags.StringVar(&o.PrivateKeyFile, "tls-private-key-file", o.PrivateKeyFile, "private key of --tls-cert-file in PEM")
}

// Validate returns an error that joins all that is wrong with the options.
func (o *WebhookOptions) Validate() error {
	mistakes := []error{program.ValidateAddress("--listen", o.Listen), program.ValidateAddress("--http-address", o.HTTPAddress)}
	if o.Listen == "" {
		mistakes = append(mistakes, errors.New("--listen is empty: give [HOST]:PORT"))
	}
	if o.CertFile == "" || o.PrivateKeyFile == "" {
		mistakes = append(mistakes, errors.New("API servers call over TLS only: give --tls-cert-file and --tls-private-key-file"))
	}
	return errors.Join(mistakes...)
}

func newWebhookCommand() *cobra.Command {
	options := NewWebhookOptions()
	cmd := &cobra.Command{
		Use:   "webhook",
		Short: "Answers API servers that serve no MutatingAdmissionPolicies",
		Long: "lodestone-extender webhook does what Lodestone's MutatingAdmissionPolicies do, for API servers that do not serve this kind\n" +
			"of object (before Kubernetes 1.36). They call it as the MutatingWebhookConfigurations of deploy/components/webhook say.",
	}
	options.AddFlags(cmd.Flags())
	logsapi.AddFlags(options.Logs, cmd.Flags())
	return command.Complete(cmd, options.Logs, options.Validate, func(ctx context.Context) error {
		home, err := homeCluster(options.Kubeconfig)
		if err != nil {
			return err
		}
		return RunWebhook(ctx, home, options)
	})
}

// webhookGrace is how long requests are still answered after the context has ended: API servers learn late that a replica ends.
const webhookGrace = 5 * time.Second

// RunWebhook answers API servers until ctx ends, and then finishes the running requests. It returns an error only if it cannot serve.
func RunWebhook(ctx context.Context, home *rest.Config, options *WebhookOptions) error {
	home = rest.CopyConfig(home)
	home.UserAgent, home.ContentType = "lodestone-webhook", runtime.ContentTypeProtobuf
	// As many as API servers have requests; their own flow control does the rest.
	home.QPS = -1
	client, err := kubernetes.NewForConfig(home)
	if err != nil {
		return fmt.Errorf("make client of the home cluster: %w", err)
	}
	policies, err := webhook.Read(deploy.Files)
	if err != nil {
		return err
	}
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTransform(controller.DropManagedFields))
	namespaces := factory.Core().V1().Namespaces()
	synced := namespaces.Informer().HasSynced
	handler, err := webhook.NewHandler(policies, client, namespaces.Lister())
	if err != nil {
		return err
	}
	// Read for each connection, so that a renewed certificate is used at once: API servers open few.
	certificate := func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		pair, err := tls.LoadX509KeyPair(options.CertFile, options.PrivateKeyFile)
		return &pair, err
	}
	if _, err := certificate(nil); err != nil {
		return fmt.Errorf("read --tls-cert-file and --tls-private-key-file: %w", err)
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", options.Listen)
	if err != nil {
		return fmt.Errorf("open --listen: %w", err)
	}
	probes := program.NewProbes()
	stopProbes, err := probes.Serve(ctx, options.HTTPAddress, prometheus.NewRegistry())
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	defer stopProbes()
	probes.WaitFor("the namespaces of the home cluster")

	group, serving := errgroup.WithContext(context.WithoutCancel(ctx))
	serving, stopServing := context.WithCancel(serving)
	factory.StartWithContext(serving)
	defer func() { stopServing(); factory.Shutdown() }()
	server := newHTTPServer(serving, handler)
	group.Go(func() error {
		if !cache.WaitForCacheSync(ctx.Done(), synced) {
			return listener.Close()
		}
		probes.Ready()
		klog.FromContext(ctx).Info("Serving", "listen", listener.Addr().String(), "policies", len(policies))
		return serve(server, tls.NewListener(listener, &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: certificate}))
	})
	group.Go(func() error {
		defer stopServing()
		select {
		case <-ctx.Done():
			probes.WaitFor("its end")
			wait(serving, webhookGrace)
		case <-serving.Done():
		}
		return shutDown(serving, server)
	})
	return group.Wait()
}
