// Package site has the clusters that volumes are copied between: Sites says whether a cluster takes requests, and
// a Site reads there. It reads from API servers, never from caches, and what a remote cluster answers
// is checked first.
package site

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/lodestone-storage/lodestone/pkg/clients"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/remote"
)

// Sites are the clusters that volumes are copied between.
type Sites struct {
	// Access is that of the home cluster.
	remote.Access
	Clusters *remote.Clusters
	// own are the clients of moves for remote clusters.
	own *ownClients
}

// New returns the clusters of the home cluster that access is of.
func New(access remote.Access, clusters *remote.Clusters) Sites {
	return Sites{Access: access, Clusters: clusters, own: &ownClients{}}
}

// Site is a cluster to which requests may be sent.
type Site struct {
	remote.Access
	// Home says that it is the home cluster.
	Home bool
}

// remoteTimeout limits one observation of a remote cluster: there must be time left for the
// pods at home.
const remoteTimeout = 8 * time.Second

// WithTimeout limits requests to a remote cluster.
func (s Site) WithTimeout(ctx context.Context) (context.Context, context.CancelFunc) {
	if s.Home {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, remoteTimeout)
}

// Reach returns the clients of a cluster; why says why no request may be sent.
func (s Sites) Reach(cluster string) (at Site, why string) {
	if cluster == keys.Home {
		return s.Home(), ""
	}
	known := s.Clusters.Get(cluster)
	if known == nil {
		return Site{}, fmt.Sprintf("there is no RemoteCluster %s: create it again", cluster)
	}
	access, why := known.Access()
	if why != "" {
		return Site{}, why
	}
	access, err := s.own.of(cluster, access)
	if err != nil {
		return Site{}, err.Error()
	}
	return Site{Access: access}, ""
}

// Home is the home cluster.
func (s Sites) Home() Site { return Site{Access: s.Access, Home: true} }

// ErrUnreachable is the error of a step in a cluster that takes no requests now.
type ErrUnreachable string

func (e ErrUnreachable) Error() string { return string(e) }

// At returns the clients of a cluster; the error is an ErrUnreachable.
func (s Sites) At(cluster string) (Site, error) {
	at, why := s.Reach(cluster)
	if why != "" {
		return at, ErrUnreachable(why)
	}
	return at, nil
}

// Recheck triggers a probe of a cluster after a failed request.
func (s Sites) Recheck(cluster string) {
	if known := s.Clusters.Get(cluster); known != nil {
		known.CheckNow()
	}
}

// FoundOrNil turns "not found" into nil. It first removes from a remote cluster's object
// what cannot be trusted.
func FoundOrNil[T any](at Site, object *T, err error, what string) (*T, error) {
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("look at %s: %w", what, err)
	case at.Home:
		return object, nil
	}
	sound, err := remote.Trusted(object)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", what, err)
	}
	typed, _ := sound.(*T)
	return typed, nil
}

// Claim is a claim there, nil if there is none of that name.
func (s Site) Claim(ctx context.Context, namespace, name string) (*corev1.PersistentVolumeClaim, error) {
	claim, err := s.Client.CoreV1().PersistentVolumeClaims(namespace).Get(ctx, name, metav1.GetOptions{})
	return FoundOrNil(s, claim, err, "claim "+namespace+"/"+name)
}

// Volume is a volume there, nil if there is none of that name.
func (s Site) Volume(ctx context.Context, name string) (*corev1.PersistentVolume, error) {
	volume, err := s.Client.CoreV1().PersistentVolumes().Get(ctx, name, metav1.GetOptions{})
	return FoundOrNil(s, volume, err, "volume "+name)
}

// IgnoreGone is the error of a request, nil if the object was not there; what says what was tried.
func IgnoreGone(err error, what string) error {
	if err == nil || apierrors.IsNotFound(err) {
		return nil
	}
	return fmt.Errorf("%s: %w", what, err)
}

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

// PageSize is how many objects are read at once, maxPages how many times: a remote cluster may send
// pages for ever.
const (
	PageSize = 500
	maxPages = 200
)

// ErrEndless is the error of a list that has too many pages.
var ErrEndless = errors.New("the list has more than 100,000 objects, which a move does not look through: delete what is not needed there")

// EachPage reads a list page by page. All pages are of the moment of the first one; if the API
// server cannot tell any more what was there then, the whole read fails.
func EachPage[L metav1.ListInterface](ctx context.Context, options metav1.ListOptions,
	list func(context.Context, metav1.ListOptions) (L, error), each func(L)) error {
	options.Limit = PageSize
	for range maxPages {
		page, err := list(ctx, options)
		if err != nil {
			return err
		}
		each(page)
		if options.Continue = page.GetContinue(); options.Continue == "" {
			return nil
		}
	}
	return ErrEndless
}

// maxAtOnce limits the parallel requests of one observation.
const maxAtOnce = 16

// AtOnce calls functions in parallel and waits for all; it returns the error of the first
// in order that failed.
func AtOnce(calls []func() error) error {
	errs, slots := make([]error, len(calls)), make(chan struct{}, maxAtOnce)
	var running sync.WaitGroup
	for i, call := range calls {
		slots <- struct{}{}
		running.Go(func() {
			defer func() { <-slots }()
			errs[i] = call()
		})
	}
	running.Wait()
	if i := slices.IndexFunc(errs, func(err error) bool { return err != nil }); i >= 0 {
		return errs[i]
	}
	return nil
}
