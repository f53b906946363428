// Package session is the connection of a virtual node to its remote cluster: Open makes the
// clients, Worker is what the other packages run for a Session.
package session

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/clients"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/remotecluster"
	"github.com/lodestone-storage/lodestone/pkg/untrusted"
)

// Session is one remote cluster for as long as its RemoteCluster and kubeconfig stay the same. When
// they change, the registry ends all that runs for it and opens another one.
type Session struct {
	// Cluster is the ID of the remote cluster, Node the name of the virtual node
	// that stands for it.
	Cluster, Node string
	// HomeID is the ID of the home cluster.
	HomeID string
	// Strategy says which namespace of the remote cluster belongs to a home namespace.
	Strategy v1alpha1.NamespaceStrategy
	// Network says whether pods of the two clusters can reach each other.
	Network v1alpha1.PodNetwork
	// Ranges are the addresses that pods of the remote cluster may have at home, where the networks are joined.
	Ranges remotecluster.PodRanges
	// Translations are of pods of the remote cluster, as home reaches them; HomeTranslations of those of home, as that cluster does.
	Translations, HomeTranslations remotecluster.Translations
	// Topology is where the virtual node is to be, as far as the RemoteCluster says.
	Topology v1alpha1.Topology
	// HomeServer is the URL at which pods of the remote cluster reach home's API server; empty: they do not.
	HomeServer string
	// Config, Client and Remote reach the remote cluster with home's credentials there. Requests
	// have no timeout of their own: callers set one.
	Config *rest.Config
	Client kubernetes.Interface
	Remote *clients.RemoteClient
	// Links has the NetworkLink of home's tenant namespace.
	Links *clients.NetworkLinks
	// Gate refuses what they would change while it is not known that this home cluster acts there.
	Gate *clients.Gate

	connections *http.Transport
}

// Worker does one kind of work for a session until ctx ends, and returns once
// every step that was begun is done: no two workers of one kind ever work for one
// cluster at the same time. An error before that ends the session; a new one
// begins after a pause.
type Worker func(ctx context.Context, s *Session) error

// Namespace returns the namespace of the remote cluster that belongs to
// a home namespace.
func (s *Session) Namespace(home string) string {
	return remotecluster.Namespace(s.Strategy, home, s.HomeID)
}

// Tenant returns the namespace of the remote cluster that holds home's
// identity, requests and heartbeat.
func (s *Session) Tenant() string { return keys.TenantPrefix + s.HomeID }

// Open returns a session with its own connections: those of an earlier one may be dead without
// showing it. Config is that of the kubeconfig; Close closes the connections.
func Open(remote *v1alpha1.RemoteCluster, config *rest.Config, homeID string) (*Session, error) {
	config = rest.CopyConfig(config)
	config.UserAgent = "lodestone-virtualnode"
	config.QPS, config.Burst = 100, 200
	untrusted.Wrap(config)
	way := clients.NewGate()
	way.Wrap(config)
	security, err := rest.TLSConfigFor(config)
	if err != nil {
		return nil, fmt.Errorf("the kubeconfig cannot be used: %w", err)
	}
	ranges, err := remotecluster.ParsePodRanges(remote.Spec.PodCIDRs)
	if err != nil {
		return nil, fmt.Errorf("spec.podCIDRs of the RemoteCluster cannot be used: %w", err)
	}
	translations, err := remotecluster.ParseTranslations(remote.Spec.PodTranslations)
	if err != nil {
		return nil, fmt.Errorf("spec.podTranslations of the RemoteCluster cannot be used: %w", err)
	}
	homeTranslations, err := remotecluster.ParseTranslations(remote.Spec.HomePodTranslations)
	if err != nil {
		return nil, fmt.Errorf("spec.homePodTranslations of the RemoteCluster cannot be used: %w", err)
	}
	s := &Session{
		Cluster: remote.Name, Node: remote.Name, HomeID: homeID,
		Strategy: remote.Spec.Namespaces.Strategy, Network: remote.Spec.PodNetwork, Ranges: ranges,
		Translations: translations, HomeTranslations: homeTranslations, Topology: remote.Spec.Topology,
		HomeServer: remote.Spec.HomeServer,
		Config:     config, Gate: way,
		connections: utilnet.SetTransportDefaults(&http.Transport{
			TLSClientConfig:     security,
			TLSHandshakeTimeout: 10 * time.Second,
			MaxIdleConnsPerHost: 25,
			DialContext:         (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 15 * time.Second}).DialContext,
		}),
	}
	own := rest.CopyConfig(config)
	own.TLSClientConfig = rest.TLSClientConfig{}
	own.Transport = s.connections
	if own.Host, err = address(config); err != nil {
		return nil, err
	}
	if s.Client, err = kubernetes.NewForConfig(own); err != nil {
		return nil, fmt.Errorf("the kubeconfig cannot be used: %w", err)
	}
	if s.Remote, err = clients.NewRemoteClient(own); err != nil {
		return nil, fmt.Errorf("the kubeconfig cannot be used: %w", err)
	}
	if s.Links, err = clients.NewNetworkLinks(own, s.Tenant()); err != nil {
		return nil, fmt.Errorf("the kubeconfig cannot be used: %w", err)
	}
	return s, nil
}

// address returns the URL of the API server. A host without scheme is completed here, since that
// depends on the TLS settings, which later callers do not have.
func address(config *rest.Config) (string, error) {
	url, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return "", fmt.Errorf("the kubeconfig cannot be used: %w", err)
	}
	return url.String(), nil
}

// Close closes the session's connections. The session must not be used any more.
func (s *Session) Close() {
	if s.connections != nil {
		s.connections.CloseIdleConnections()
	}
}
