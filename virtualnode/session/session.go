// Package session is a remote cluster as virtual nodes use it.
package session

import (
	"context"
	"net/http"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/namespaces"
	"github.com/lodestone-storage/lodestone/pkg/remoteapi"
)

// Session is one remote cluster for as long as its RemoteCluster and kubeconfig
// stay the same. All that runs for it ends with the context that came with it,
// and begins anew with the next one.
type Session struct {
	// Cluster is the ID of the remote cluster, Node the name of the virtual node
	// that stands for it.
	Cluster, Node string
	// HomeID is the ID of the home cluster.
	HomeID string
	// Strategy says which namespace there belongs to a namespace here.
	Strategy v1alpha1.NamespaceStrategy
	// Network says whether pods of the two clusters reach each other.
	Network v1alpha1.PodNetwork
	// Config, Client and Remote talk to the remote cluster with home's identity
	// there. Requests have no time limit of their own: callers set one.
	Config *rest.Config
	Client kubernetes.Interface
	Remote *remoteapi.Client

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
	return namespaces.Remote(s.Strategy, home, s.HomeID)
}

// Tenant returns the namespace of the remote cluster that holds home's
// identity, requests and heartbeat.
func (s *Session) Tenant() string { return keys.TenantPrefix + s.HomeID }
