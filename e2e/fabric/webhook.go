package fabric

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/e2e/testbed"
	extender "github.com/lodestone-storage/lodestone/extender/app"
	"github.com/lodestone-storage/lodestone/extender/mtls"
	"github.com/lodestone-storage/lodestone/extender/webhook"
)

// StartWebhook starts the webhook for a cluster in which deploy/components/webhook and mtls are installed, with the rights of its
// ServiceAccount, and the certificates that the Job of mtls makes with the rights of its own. There are no Services on loopback, so
// the API server is given the webhook's address instead.
func StartWebhook(ctx context.Context, cluster *testbed.Cluster) (*Program, error) {
	if err := makeCertificates(ctx, cluster); err != nil {
		return nil, err
	}
	options := extender.NewWebhookOptions()
	secret, err := cluster.Client().CoreV1().Secrets(System).Get(ctx, extender.ServerSecret, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("get the webhook's certificate: %w", err)
	}
	if options.CertFile, err = cluster.WriteFile("webhook.crt", secret.Data[corev1.TLSCertKey]); err != nil {
		return nil, err
	}
	if options.PrivateKeyFile, err = cluster.WriteFile("webhook.key", secret.Data[corev1.TLSPrivateKeyKey]); err != nil {
		return nil, err
	}
	if options.Listen, err = cluster.ReserveAddress(); err != nil {
		return nil, fmt.Errorf("find an address for the webhook: %w", err)
	}
	if options.HTTPAddress, err = cluster.ReserveAddress(); err != nil {
		return nil, fmt.Errorf("find an address for the webhook's health: %w", err)
	}
	home, err := cluster.ServiceAccountConfig(ctx, System, "lodestone-webhook")
	if err != nil {
		return nil, err
	}
	p := start(ctx, func(ctx context.Context) error { return extender.RunWebhook(ctx, home, options) })
	if err := awaitHTTP(ctx, "http://"+options.HTTPAddress+"/readyz"); err != nil {
		return p, err
	}
	return p, reach(ctx, cluster, options.Listen)
}

func makeCertificates(ctx context.Context, cluster *testbed.Cluster) error {
	options := extender.NewCertificatesOptions()
	kubeconfig, err := cluster.ServiceAccountKubeconfig(ctx, "lodestone-certificates", "lodestone-certificates")
	if err != nil {
		return err
	}
	if options.Kubeconfig, err = cluster.WriteFile("certificates.kubeconfig", kubeconfig); err != nil {
		return err
	}
	options.WebhookService, options.Hosts = webhook.Service, []string{"127.0.0.1"}
	config, err := options.Config()
	if err != nil {
		return err
	}
	return mtls.RunCertificateJob(ctx, config)
}

// reach replaces the Service in all webhook configurations of Lodestone by an address.
func reach(ctx context.Context, cluster *testbed.Cluster, address string) error {
	configurations := cluster.Client().AdmissionregistrationV1().MutatingWebhookConfigurations()
	all, err := configurations.List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list the webhook configurations: %w", err)
	}
	for _, configuration := range all.Items {
		access := configuration.Webhooks[0].ClientConfig
		if access.Service == nil || access.Service.Name != webhook.Service {
			continue
		}
		patch, err := json.Marshal([]map[string]any{
			{"op": "remove", "path": "/webhooks/0/clientConfig/service"},
			{"op": "add", "path": "/webhooks/0/clientConfig/url", "value": "https://" + address + *access.Service.Path},
		})
		if err == nil {
			_, err = configurations.Patch(ctx, configuration.Name, types.JSONPatchType, patch, metav1.PatchOptions{})
		}
		if err != nil {
			return fmt.Errorf("give the API server the address of webhook %s: %w", configuration.Name, err)
		}
	}
	return nil
}
