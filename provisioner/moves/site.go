package moves

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/moves/transport"
	"github.com/lodestone-storage/lodestone/provisioner/remote"
)

// site is a cluster to which requests may be sent.
type site struct {
	remote.Access
	home bool
}

// remoteTimeout limits one observation of a remote cluster: there must be time left for the
// pods at home.
const remoteTimeout = 8 * time.Second

// withTimeout limits requests to a remote cluster.
func (s site) withTimeout(ctx context.Context) (context.Context, context.CancelFunc) {
	if s.home {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, remoteTimeout)
}

// reach returns the clients of a cluster; why says why no request may be sent.
func (c *Controller) reach(cluster string) (at site, why string) {
	if cluster == keys.Home {
		return site{Access: remote.Access{Client: c.Client, Config: c.Home, Dynamic: c.Dynamic}, home: true}, ""
	}
	known := c.Clusters.Get(cluster)
	if known == nil {
		return site{}, fmt.Sprintf("there is no RemoteCluster %s: create it again", cluster)
	}
	access, why := known.Access()
	return site{Access: access}, why
}

func (c *Controller) homeSite() site { at, _ := c.reach(keys.Home); return at }

// networkOf describes the network of a cluster for package transport.
func (c *Controller) networkOf(cluster string) transport.Place {
	place := transport.Place{Cluster: cluster}
	if object := c.Clusters.Object(cluster); object != nil {
		place.Network = object.Spec.PodNetwork
	}
	return place
}

// errUnreachable is the error of a step in a cluster that takes no requests now.
type errUnreachable string

func (e errUnreachable) Error() string { return string(e) }

func (c *Controller) siteOf(cluster string) (site, error) {
	at, why := c.reach(cluster)
	if why != "" {
		return at, errUnreachable(why)
	}
	return at, nil
}

// recheckCluster triggers a probe of a cluster after a failed request.
func (c *Controller) recheckCluster(cluster string) {
	if known := c.Clusters.Get(cluster); known != nil {
		known.CheckNow()
	}
}

// foundOrNil turns "not found" into nil. It first removes from a remote cluster's object
// what cannot be trusted.
func foundOrNil[T any](at site, object *T, err error, what string) (*T, error) {
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("look at %s: %w", what, err)
	case at.home:
		return object, nil
	}
	sound, err := remote.Trusted(object)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", what, err)
	}
	typed, _ := sound.(*T)
	return typed, nil
}

// claimAt and the functions below read from API servers, never from caches.
func claimAt(ctx context.Context, at site, namespace, name string) (*corev1.PersistentVolumeClaim, error) {
	claim, err := at.Client.CoreV1().PersistentVolumeClaims(namespace).Get(ctx, name, metav1.GetOptions{})
	return foundOrNil(at, claim, err, "claim "+namespace+"/"+name)
}

func volumeAt(ctx context.Context, at site, name string) (*corev1.PersistentVolume, error) {
	volume, err := at.Client.CoreV1().PersistentVolumes().Get(ctx, name, metav1.GetOptions{})
	return foundOrNil(at, volume, err, "volume "+name)
}
