// Package site has the clusters that volumes are copied between: Sites says whether a cluster takes requests, and
// a Site reads there. It reads from API servers, never from caches, and what a remote cluster answers
// is checked first.
package site

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
