package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/kubernetes"
	logsapi "k8s.io/component-base/logs/api/v1"

	"github.com/lodestone-storage/lodestone/deploy"
	"github.com/lodestone-storage/lodestone/extender/mtls"
	"github.com/lodestone-storage/lodestone/extender/webhook"
	"github.com/lodestone-storage/lodestone/pkg/program/command"
)

// Names of the Secrets; the manifests have the same names.
const (
	AuthoritySecret = "lodestone-extender-authority"
	ServerSecret    = "lodestone-extender-server"
	ClientSecret    = "lodestone-extender-client"
)

// CertificatesOptions are the flags of the command certificates.
type CertificatesOptions struct {
	Kubeconfig                            string
	Namespace                             string
	AuthorityNamespace                    string
	Service, WebhookService               string
	Hosts                                 []string
	ClientName                            string
	AuthorityLife, ServerLife, ClientLife time.Duration
	Logs                                  *logsapi.LoggingConfiguration
}

// NewCertificatesOptions returns the defaults.
func NewCertificatesOptions() *CertificatesOptions {
	const day = 24 * time.Hour
	return &CertificatesOptions{
		Namespace:          "lodestone-system",
		AuthorityNamespace: "lodestone-certificates",
		Service:            "lodestone-extender",
		ClientName:         "kube-scheduler",
		AuthorityLife:      3650 * day,
		ServerLife:         90 * day,
		ClientLife:         365 * day,
		Logs:               logsapi.NewLoggingConfiguration(),
	}
}

// AddFlags adds the flags, except those for logging.
func (o *CertificatesOptions) AddFlags(flags *pflag.FlagSet) {
	flags.StringVar(&o.Kubeconfig, "kubeconfig", o.Kubeconfig, "kubeconfig of the home cluster; empty: the ServiceAccount of the pod")
	flags.StringVar(&o.Namespace, "namespace", o.Namespace, "namespace of the Service and of the Secrets "+ServerSecret+" and "+ClientSecret)
	flags.StringVar(&o.AuthorityNamespace, "authority-namespace", o.AuthorityNamespace, "namespace of the Secret "+AuthoritySecret)
	flags.StringVar(&o.Service, "service", o.Service, "Service whose names and cluster IPs the extender's certificate is for")
	flags.StringVar(&o.WebhookService, "webhook-service", o.WebhookService, "Service of the webhook, whose names the extender's certificate "+
		"is for, too; the MutatingWebhookConfigurations of Lodestone are then given the authorities; empty: there is no webhook")
	flags.StringSliceVar(&o.Hosts, "host", o.Hosts, "another name or address that the extender's certificate is for; may be given "+
		"several times")
	flags.StringVar(&o.ClientName, "client-name", o.ClientName, "common name of kube-scheduler's certificate")
	flags.DurationVar(&o.AuthorityLife, "authority-duration", o.AuthorityLife,
		"how long a new authority is valid; the next one is made after two thirds of it, and signs after five sixths")
	flags.DurationVar(&o.ServerLife, "server-duration", o.ServerLife,
		"how long a new certificate of the extender is valid; it is renewed after two thirds of it")
	flags.DurationVar(&o.ClientLife, "client-duration", o.ClientLife,
		"how long a new certificate for kube-scheduler is valid; it is renewed after two thirds of it")
}

// Validate returns an error that joins all that is wrong with the options.
func (o *CertificatesOptions) Validate() error {
	var mistakes []error
	for flag, name := range map[string]string{"--namespace": o.Namespace, "--authority-namespace": o.AuthorityNamespace,
		"--service": o.Service, "--webhook-service": cmp.Or(o.WebhookService, webhook.Service)} {
		if len(validation.IsDNS1123Label(name)) > 0 {
			mistakes = append(mistakes, fmt.Errorf("%s %q is no name: give lower-case letters, digits and '-'", flag, name))
		}
	}
	for flag, life := range map[string]time.Duration{"--authority-duration": o.AuthorityLife, "--server-duration": o.ServerLife,
		"--client-duration": o.ClientLife} {
		if life < time.Hour {
			mistakes = append(mistakes, fmt.Errorf("%s is %s: give at least 1h", flag, life))
		}
	}
	for _, host := range o.Hosts {
		if host == "" {
			mistakes = append(mistakes, errors.New("--host is empty: give a name or an address"))
		}
	}
	if o.ClientName == "" {
		mistakes = append(mistakes, errors.New("--client-name is empty: give the name that the extender shall know kube-scheduler by"))
	}
	return errors.Join(mistakes...)
}

// Config makes the client and the configuration from the options.
func (o *CertificatesOptions) Config() (*mtls.JobConfig, error) {
	home, err := homeCluster(o.Kubeconfig)
	if err != nil {
		return nil, err
	}
	home.UserAgent = "lodestone-extender-certificates"
	client, err := kubernetes.NewForConfig(home)
	if err != nil {
		return nil, fmt.Errorf("make client of the home cluster: %w", err)
	}
	config := &mtls.JobConfig{
		Client:        client,
		Authority:     types.NamespacedName{Namespace: o.AuthorityNamespace, Name: AuthoritySecret},
		ServerSecret:  types.NamespacedName{Namespace: o.Namespace, Name: ServerSecret},
		ClientSecret:  types.NamespacedName{Namespace: o.Namespace, Name: ClientSecret},
		Service:       types.NamespacedName{Namespace: o.Namespace, Name: o.Service},
		Hosts:         o.Hosts,
		ClientName:    o.ClientName,
		AuthorityLife: o.AuthorityLife,
		ServerLife:    o.ServerLife,
		ClientLife:    o.ClientLife,
		Now:           time.Now,
	}
	if o.WebhookService != "" {
		policies, err := webhook.Read(deploy.Files)
		if err != nil {
			return nil, err
		}
		for _, policy := range policies {
			config.Webhooks = append(config.Webhooks, policy.Name)
		}
		config.Webhook = types.NamespacedName{Namespace: o.Namespace, Name: o.WebhookService}
	}
	return config, nil
}

func newCertificatesCommand() *cobra.Command {
	options := NewCertificatesOptions()
	cmd := &cobra.Command{
		Use:   "certificates",
		Short: "Makes or renews the certificates of the extender and of kube-scheduler, and ends",
		Long: "lodestone-extender certificates makes an authority, a certificate for the extender and one for kube-scheduler, and renews\n" +
			"those that get old. It fills Secrets that exist already: " + AuthoritySecret + ", " + ServerSecret + " and\n" +
			ClientSecret + ". It may be run at any time.",
	}
	options.AddFlags(cmd.Flags())
	logsapi.AddFlags(options.Logs, cmd.Flags())
	return command.Complete(cmd, options.Logs, options.Validate, func(ctx context.Context) error {
		config, err := options.Config()
		if err != nil {
			return err
		}
		return mtls.RunCertificateJob(ctx, config)
	})
}
