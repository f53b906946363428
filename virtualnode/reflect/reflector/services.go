package reflector

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/controller"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/virtualnode/reflect/copies"
)

// servicesStay is how long Services stay in a namespace after its last pod: often another pod comes
// soon.
const servicesStay = 30 * time.Second

// inUse reports whether there are pods in a namespace, and if not, how long its Services still
// stay.
func (c *clusterReflector) inUse(s *remoteNamespace) (used bool, left time.Duration) {
	used = c.needed(key{kind: namespaceKind, namespace: s.home})
	s.mu.Lock()
	defer s.mu.Unlock()
	if used {
		s.idleSince = time.Time{}
		return true, 0
	}
	if s.idleSince.IsZero() {
		s.idleSince = c.Clock.Now()
	}
	return false, servicesStay - c.Clock.Since(s.idleSince)
}

// syncNamespace queues the Services of a namespace when its first pod came or its last one is gone.
func (c *clusterReflector) syncNamespace(s *remoteNamespace) {
	used, _ := c.inUse(s)
	s.mu.Lock()
	changed := used != s.used
	s.used = used
	s.mu.Unlock()
	if changed {
		c.enqueueServices(s)
	}
}

// syncService updates the copy of a Service, and those of its EndpointSlices.
func (c *clusterReflector) syncService(ctx context.Context, s *remoteNamespace, k key) (time.Duration, error) {
	have := controller.Get[corev1.Service](s.services, s.namespace+"/"+k.name)
	slices := controller.Indexed[discoveryv1.EndpointSlice](s.slices, serviceIndex, s.namespace+"/"+k.name)
	used, left := c.inUse(s)
	there := have != nil || len(slices) > 0
	home, err := c.serviceLister.Services(k.namespace).Get(k.name)
	wanted := err == nil && copies.TravelsService(home) && (used || there && left > 0)
	copier := copier[*corev1.Service]{
		kind: k.kind, homeID: c.session.HomeID, merge: copies.MergeService,
		client: c.session.Client.CoreV1().Services(s.namespace),
	}
	if !wanted {
		return 0, errors.Join(c.syncSlices(ctx, s, nil, slices), copier.remove(ctx, have, have != nil))
	}
	if err := copier.put(ctx, have, have != nil, c.destination(s).Service(home)); err != nil {
		if errors.Is(err, errForeign) {
			err = c.foreign(s, k)
		}
		return 0, err
	}
	return max(left, 0), c.syncSlices(ctx, s, c.wantedSlices(s, home), slices)
}

// wantedSlices returns the copies of the EndpointSlices of a Service: none if pods there cannot
// reach the addresses.
func (c *clusterReflector) wantedSlices(s *remoteNamespace, home *corev1.Service) []*discoveryv1.EndpointSlice {
	if !c.session.Network.Joined() || home.Spec.Type == corev1.ServiceTypeExternalName {
		return nil
	}
	var result []*discoveryv1.EndpointSlice
	for _, slice := range controller.Indexed[discoveryv1.EndpointSlice](c.slices, serviceIndex, home.Namespace+"/"+home.Name) {
		if wanted := c.destination(s).Slice(slice, c.leftOut); wanted != nil {
			result = append(result, wanted)
		}
	}
	return result
}

// leftOut says of a node at home that its endpoints are not copied: that of the cluster itself, and where the fabric joins the networks
// those of other remote clusters that are not reached through home.
func (c *clusterReflector) leftOut(node string) bool {
	if node == c.session.Node || c.session.Network != v1alpha1.Fabric {
		return node == c.session.Node
	}
	found := controller.Get[corev1.Node](c.nodes, node)
	if found == nil || found.Labels[keys.Cluster] == "" {
		return false
	}
	return !slices.Contains(c.reachedThroughHome(), found.Labels[keys.Cluster])
}

// reachedThroughHome are the other remote clusters that pods there reach.
func (c *clusterReflector) reachedThroughHome() []string {
	if c.Remotes == nil {
		return nil
	}
	if remote := controller.Get[v1alpha1.RemoteCluster](c.Remotes, c.session.Cluster); remote != nil {
		return remote.Status.Transit
	}
	return nil
}

// watchTransit queues all Services once other clusters are reached.
func (c *clusterReflector) watchTransit() (unwatch func() error, err error) {
	if c.Remotes == nil {
		return nil, nil
	}
	return controller.Watch(c.Remotes, func(was, now *v1alpha1.RemoteCluster) {
		if was == nil || now == nil || now.Name != c.session.Cluster || slices.Equal(was.Status.Transit, now.Status.Transit) {
			return // the first time all are queued anyhow
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, s := range c.namespaces {
			c.enqueueServices(s)
		}
	})
}

// syncSlices creates, updates and deletes EndpointSlices until those that exist are the wanted
// ones.
func (c *clusterReflector) syncSlices(ctx context.Context, s *remoteNamespace, wanted []*discoveryv1.EndpointSlice,
	there []*discoveryv1.EndpointSlice) error {
	copier := copier[*discoveryv1.EndpointSlice]{
		kind: "EndpointSlice", homeID: c.session.HomeID, merge: copies.MergeSlice,
		client: c.session.Client.DiscoveryV1().EndpointSlices(s.namespace),
	}
	var errs []error
	keep := map[string]bool{}
	for _, want := range wanted {
		keep[want.Name] = true
		have := controller.Get[discoveryv1.EndpointSlice](s.slices, s.namespace+"/"+want.Name)
		err := copier.put(ctx, have, have != nil, want)
		if errors.Is(err, errForeign) {
			// Such a name is not chosen by accident.
			klog.FromContext(ctx).Info("EndpointSlice that is not ours is left alone", "endpointSlice", klog.KObj(want))
			err = nil
		}
		errs = append(errs, err)
	}
	for _, slice := range there {
		if !keep[slice.Name] {
			errs = append(errs, copier.remove(ctx, slice, true))
		}
	}
	return errors.Join(errs...)
}

func (c *clusterReflector) syncConfigMap(ctx context.Context, s *remoteNamespace, k key) error {
	if k.name == ledgerName {
		if !c.needed(k) {
			return nil
		}
		return c.foreign(s, k)
	}
	copier := copier[*corev1.ConfigMap]{
		kind: k.kind, homeID: c.session.HomeID, merge: copies.MergeConfigMap,
		client: c.session.Client.CoreV1().ConfigMaps(s.namespace),
	}
	have := controller.Get[corev1.ConfigMap](s.configMaps, s.namespace+"/"+k.name)
	home, err := c.configMapLister.ConfigMaps(k.namespace).Get(k.name)
	if err != nil || copies.IsCopy(home) || !c.needed(k) {
		return copier.remove(ctx, have, have != nil)
	}
	if err := copier.put(ctx, have, have != nil, c.destination(s).ConfigMap(home)); !errors.Is(err, errForeign) {
		return err
	}
	return c.foreign(s, k)
}

// objects has the methods of a typed client that copier needs.
type objects[T metav1.Object] interface {
	Get(ctx context.Context, name string, options metav1.GetOptions) (T, error)
	Create(ctx context.Context, object T, options metav1.CreateOptions) (T, error)
	Update(ctx context.Context, object T, options metav1.UpdateOptions) (T, error)
	Delete(ctx context.Context, name string, options metav1.DeleteOptions) error
}

// copier writes copies of a kind that home may read.
type copier[T metav1.Object] struct {
	kind   kind
	client objects[T]
	homeID string
	merge  func(have, want T) (T, copies.Change)
}

// put creates or updates a copy. have is the copy as last read, if exists. An object that is not
// ours is not changed: put returns a refusal.
func (c copier[T]) put(ctx context.Context, have T, exists bool, want T) error {
	if !exists {
		_, err := c.client.Create(ctx, want, metav1.CreateOptions{})
		if !apierrors.IsAlreadyExists(err) {
			return c.sort("create", want, err)
		}
		if have, err = c.client.Get(ctx, want.GetName(), metav1.GetOptions{}); err != nil {
			return c.sort("get", want, err)
		}
	}
	if !copies.Ours(have, c.homeID) {
		return errForeign
	}
	if have.GetDeletionTimestamp() != nil {
		return nil // its deletion queues the object again
	}
	next, change := c.merge(have, want)
	switch change {
	case copies.None:
		return nil
	case copies.Update:
		klog.FromContext(ctx).V(4).Info("Updating copy")
		_, err := c.client.Update(ctx, next, metav1.UpdateOptions{})
		return c.sort("update", want, err)
	case copies.Replace:
		if err := c.remove(ctx, have, true); err != nil {
			return err
		}
		_, err := c.client.Create(ctx, want, metav1.CreateOptions{})
		return c.sort("create", want, err)
	}
	return nil
}

// remove deletes a copy if it is still as last read, and no object that is not, or no longer, ours.
func (c copier[T]) remove(ctx context.Context, have T, exists bool) error {
	if !exists || !copies.Ours(have, c.homeID) || have.GetDeletionTimestamp() != nil {
		return nil
	}
	klog.FromContext(ctx).V(4).Info("Removing copy")
	err := c.client.Delete(ctx, have.GetName(), metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: ptr.To(have.GetUID()), ResourceVersion: ptr.To(have.GetResourceVersion())},
	})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return c.sort("delete", have, err)
}

func (c copier[T]) sort(verb string, object T, err error) error {
	if err == nil {
		return nil
	}
	return sortError(fmt.Errorf("%s copy of %s %s/%s: %w", verb, c.kind, object.GetNamespace(), object.GetName(), err))
}
