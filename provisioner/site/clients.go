package site

import (
	"fmt"
	"sync"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/lodestone-storage/lodestone/pkg/clients"
	"github.com/lodestone-storage/lodestone/provisioner/remote"
)

// QPS and Burst are how many requests a second all moves together send to one cluster, home or
// remote. They are apart from those of claims: however many moves there are, claims do not wait
// for them. They are as high as those, for pods stand still while a move asks.
const (
	QPS   = 300
	Burst = 600
)

// ownClients are the clients of moves for remote clusters. The zero value is ready to use. It is
// safe for concurrent use.
type ownClients struct {
	mu    sync.Mutex
	known map[string]ownAccess
}

// ownAccess has the clients of moves for a connection, which is known by its configuration.
type ownAccess struct {
	connection *rest.Config
	remote.Access
}

// of returns the access to a cluster with clients of moves instead of those of its connection.
// They have the same transport, with its limits and its token.
func (o *ownClients) of(cluster string, access remote.Access) (remote.Access, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	own, ok := o.known[cluster]
	if !ok || own.connection != access.Config {
		var err error
		if own, err = newOwnAccess(access.Config); err != nil {
			return remote.Access{}, err
		}
		if o.known == nil {
			o.known = map[string]ownAccess{}
		}
		o.known[cluster] = own
	}
	if access.Client, access.Dynamic = own.Client, own.Dynamic; access.Remote != nil {
		access.Remote = own.Remote
	}
	return access, nil
}

func newOwnAccess(connection *rest.Config) (own ownAccess, err error) {
	own.connection = connection
	config := rest.CopyConfig(connection)
	config.RateLimiter, config.QPS, config.Burst = nil, QPS, Burst
	if own.Client, err = kubernetes.NewForConfig(config); err != nil {
		return own, fmt.Errorf("make client of moves: %w", err)
	}
	if own.Dynamic, err = dynamic.NewForConfig(config); err != nil {
		return own, fmt.Errorf("make client of moves: %w", err)
	}
	own.Remote, err = clients.NewRemoteClient(config)
	return own, err
}
