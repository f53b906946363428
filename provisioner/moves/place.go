package moves

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/clusters"
	"github.com/lodestone-storage/lodestone/provisioner/moves/decide"
	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
)

// site is a cluster that requests may be sent to.
type site struct {
	clusters.Access
	home bool
}

// remoteTimeout bounds what one look at another cluster may take: one that stands still
// must leave time to see to the pods at home.
const remoteTimeout = 8 * time.Second

// patience bounds requests to a cluster.
func (s site) patience(ctx context.Context) (context.Context, context.CancelFunc) {
	if s.home {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, remoteTimeout)
}

// reach returns how requests get to a cluster; why says why none may be sent.
func (c *Controller) reach(cluster string) (at site, why string) {
	if cluster == keys.Home {
		return site{Access: clusters.Access{Client: c.Client, Config: c.Home, Dynamic: c.Dynamic}, home: true}, ""
	}
	known := c.Clusters.Get(cluster)
	if known == nil {
		return site{}, fmt.Sprintf("there is no RemoteCluster %s: create it again", cluster)
	}
	access, why := known.Access()
	return site{Access: access}, why
}

// observeGone finds out which ends have no RemoteCluster any more, where that decides
// anything: of a move that commits, or has nothing left to do but to clean up.
func (c *Controller) observeGone(ctx context.Context, o *decide.Observation) error {
	if r := o.Record; !r.Freed && r.Phase != v1alpha1.MoveCommit && r.Phase != v1alpha1.MoveFinalize {
		return nil
	}
	for _, end := range record.Ends {
		cluster := o.Record.Claims[0].At(end).Ref.Cluster
		if o.Unusable[end] == "" || o.Record.GaveUp(end) || cluster == keys.Home {
			continue
		}
		gone, err := c.Clusters.Gone(ctx, cluster)
		if err != nil {
			return err
		}
		o.Gone[end] = gone
	}
	return nil
}

// errUnreachable is the error of a step in a cluster that takes no requests now.
type errUnreachable string

func (e errUnreachable) Error() string { return string(e) }

func (c *Controller) must(cluster string) (site, error) {
	at, why := c.reach(cluster)
	if why != "" {
		return at, errUnreachable(why)
	}
	return at, nil
}

// suspect has a cluster looked at after a request to it failed.
func (c *Controller) suspect(cluster string) {
	if known := c.Clusters.Get(cluster); known != nil {
		known.Poke()
	}
}

// orNil turns "not found" into nil. What a remote cluster answers is made sound first.
func orNil[T any](at site, object *T, err error, what string) (*T, error) {
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("look at %s: %w", what, err)
	case at.home:
		return object, nil
	}
	sound, err := clusters.Trusted(object)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", what, err)
	}
	typed, _ := sound.(*T)
	return typed, nil
}

// claimAt and the like ask API servers, never caches.
func claimAt(ctx context.Context, at site, namespace, name string) (*corev1.PersistentVolumeClaim, error) {
	claim, err := at.Client.CoreV1().PersistentVolumeClaims(namespace).Get(ctx, name, metav1.GetOptions{})
	return orNil(at, claim, err, "claim "+namespace+"/"+name)
}

func volumeAt(ctx context.Context, at site, name string) (*corev1.PersistentVolume, error) {
	volume, err := at.Client.CoreV1().PersistentVolumes().Get(ctx, name, metav1.GetOptions{})
	return orNil(at, volume, err, "volume "+name)
}

// uses says whether a pod mounts a claim of its namespace.
func uses(spec *corev1.PodSpec, claim string) bool {
	for _, volume := range spec.Volumes {
		if volume.PersistentVolumeClaim != nil && volume.PersistentVolumeClaim.ClaimName == claim {
			return true
		}
	}
	return false
}

func finished(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}
