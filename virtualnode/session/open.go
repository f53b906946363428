package session

import (
	"fmt"
	"net"
	"net/http"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/bounded"
	"github.com/lodestone-storage/lodestone/pkg/remoteapi"
)

// Open returns a session with connections of its own: those of an earlier one
// may be dead without showing it. Config is that of the kubeconfig; Close frees
// the connections.
func Open(remote *v1alpha1.RemoteCluster, config *rest.Config, homeID string) (*Session, error) {
	config = rest.CopyConfig(config)
	config.UserAgent = "lodestone-virtualnode"
	config.QPS, config.Burst = 100, 200
	bounded.Wrap(config)
	security, err := rest.TLSConfigFor(config)
	if err != nil {
		return nil, fmt.Errorf("the kubeconfig cannot be used: %w", err)
	}
	s := &Session{
		Cluster: remote.Name, Node: remote.Name, HomeID: homeID,
		Strategy: remote.Spec.Namespaces.Strategy, Network: remote.Spec.PodNetwork,
		Config: config,
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
	if s.Remote, err = remoteapi.NewClient(own); err != nil {
		return nil, fmt.Errorf("the kubeconfig cannot be used: %w", err)
	}
	return s, nil
}

// address returns the URL of the API server. Without its scheme it would depend
// on the TLS settings, which are not beside it any more.
func address(config *rest.Config) (string, error) {
	url, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return "", fmt.Errorf("the kubeconfig cannot be used: %w", err)
	}
	return url.String(), nil
}

// Close frees the session's connections. Nothing of it may be used any more.
func (s *Session) Close() {
	if s.connections != nil {
		s.connections.CloseIdleConnections()
	}
}
