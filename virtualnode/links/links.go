// Package links joins the networks of home and of a remote cluster, where podNetwork of its RemoteCluster is Fabric: it writes of each into
// the NetworkLink of the other (decide.go), and whether pods reach each other into the condition NetworkReady of the RemoteCluster. The
// network programs of both clusters do the rest.
package links

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	networkv1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/network/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/clients"
	"github.com/lodestone-storage/lodestone/pkg/controller"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/virtualnode/session"
)

const (
	// interval is how often both clusters are asked.
	interval = 3 * time.Second
	// timeout bounds one round.
	timeout = 10 * time.Second
)

// Linker works for all sessions.
type Linker struct {
	// Home has the NetworkLinks of home's namespace keys.NetworkNamespace.
	Home *clients.NetworkLinks
	// Remotes and Objects are the RemoteClusters of home; the caller runs the informer.
	Remotes *clients.RemoteClusters
	Objects cache.SharedIndexInformer
	// Metrics are what NewMetrics returns.
	Metrics *Metrics

	renewals renewals
}

// Run works for a session until ctx ends.
func (l *Linker) Run(ctx context.Context, s *session.Session) error {
	defer l.Metrics.forget(s.Cluster)
	clock := time.NewTicker(interval)
	defer clock.Stop()
	logger := klog.FromContext(ctx)
	for said := ""; ; {
		done, err := l.sync(ctx, s)
		switch {
		case err == nil:
			said = ""
		case ctx.Err() == nil && err.Error() != said:
			logger.Info("The networks are joined or parted again later", "err", err)
			said = err.Error()
		}
		if done {
			<-ctx.Done()
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-clock.C:
		}
	}
}

// sync makes one round; done says that there is nothing more to do in this session.
func (l *Linker) sync(ctx context.Context, s *session.Session) (done bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	remote := controller.Get[v1alpha1.RemoteCluster](l.Objects, s.Cluster)
	if remote == nil {
		return false, nil
	}
	// The condition is there before the first object, and until the last one is gone.
	marked := meta.FindStatusCondition(remote.Status.Conditions, v1alpha1.NetworkReady) != nil
	if remote.Spec.PodNetwork != v1alpha1.Fabric && !marked {
		return s.Network != v1alpha1.Fabric, nil
	}
	if remote.Spec.PodNetwork != v1alpha1.Fabric {
		if err := errors.Join(remove(ctx, l.Home, s.Cluster), remove(ctx, s.Links, keys.Home)); err != nil {
			return false, err
		}
		return false, l.report(ctx, remote, nil, reached{})
	}
	if remote.DeletionTimestamp != nil {
		return false, remove(ctx, s.Links, keys.Home)
	}
	if !marked {
		return false, l.report(ctx, remote, &metav1.Condition{Type: v1alpha1.NetworkReady, Status: metav1.ConditionFalse, Reason: "Joining",
			Message: "the networks are being joined"}, reached{})
	}
	condition, others, err := l.join(ctx, s, remote)
	if condition == nil {
		return false, err
	}
	return false, errors.Join(err, l.report(ctx, remote, condition, others))
}

// join brings both objects in line, and returns what is to be said of the network, nil if that is not known now, and which other clusters
// are reached.
func (l *Linker) join(ctx context.Context, s *session.Session, remote *v1alpha1.RemoteCluster) (
	condition *metav1.Condition, to reached, err error,
) {
	missing := func(where, install, apply string) *metav1.Condition {
		return &metav1.Condition{Type: v1alpha1.NetworkReady, Status: metav1.ConditionFalse, Reason: "NotInstalled", Message: fmt.Sprintf(
			"the network program is not installed %s: kubectl lodestone install %s brings it, or apply %s there", where, install, apply)}
	}
	missingHome := missing("at home", "--network", "deploy/components/network")
	missingThere := missing("in cluster "+s.Cluster, "--remote --network", "deploy/remote and deploy/components/network-remote")
	set, problem := termsOf(remote.Spec)
	if problem != "" {
		return &metav1.Condition{Type: v1alpha1.NetworkReady, Status: metav1.ConditionFalse, Reason: "NotAccepted", Message: problem}, to, nil
	}
	home, err := get(ctx, l.Home, s.Cluster)
	if apierrors.IsForbidden(err) {
		return missingHome, to, nil
	}
	if err != nil {
		return nil, to, fmt.Errorf("at home: %w", err)
	}
	there1, err := get(ctx, s.Links, keys.Home)
	if apierrors.IsForbidden(err) {
		return missingThere, to, nil
	}
	if err != nil {
		return nil, to, fmt.Errorf("in cluster %s: %w", s.Cluster, err)
	}
	others, err := l.others(ctx, remote)
	if err != nil {
		return nil, to, fmt.Errorf("at home: %w", err)
	}
	passing := transitOf(s.Cluster, set, others)
	owner := metav1.OwnerReference{APIVersion: v1alpha1.GroupVersion.String(), Kind: "RemoteCluster", Name: remote.Name, UID: remote.UID}
	err = put(ctx, l.Home, home, &networkv1alpha1.NetworkLink{
		ObjectMeta: metav1.ObjectMeta{Namespace: keys.NetworkNamespace, Name: s.Cluster, OwnerReferences: []metav1.OwnerReference{owner}},
		Spec:       here(set, there1, passing)})
	if apierrors.IsNotFound(err) {
		return missingHome, to, nil
	}
	if err != nil {
		return nil, to, fmt.Errorf("write NetworkLink %s at home: %w", s.Cluster, err)
	}
	err = put(ctx, s.Links, there1, &networkv1alpha1.NetworkLink{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.Tenant(), Name: keys.Home}, Spec: there(set, home, passing)})
	if apierrors.IsNotFound(err) {
		return missingThere, to, nil
	}
	if err != nil {
		return nil, to, fmt.Errorf("write NetworkLink %s in cluster %s: %w", keys.Home, s.Cluster, err)
	}
	now := time.Now()
	seen := l.renewals.local(s.Cluster, home, now)
	said := ready(s.Cluster, set, seen, there1, now)
	if seen != nil {
		l.Metrics.measured(s.Cluster, seen, now)
	}
	return &said, reached{reachedThroughHome(home), reachedDirectly(home, others)}, nil
}

// others are the clusters whose pods and those of a remote cluster are to reach each other through home, if their owners let them.
func (l *Linker) others(ctx context.Context, remote *v1alpha1.RemoteCluster) (others []other, err error) {
	for _, one := range passengers(remote, controller.All[v1alpha1.RemoteCluster](l.Objects)) {
		set, problem := termsOf(one.Spec)
		if problem != "" {
			continue // the condition of that cluster says so
		}
		link, err := get(ctx, l.Home, one.Name)
		if err != nil {
			return nil, err
		}
		others = append(others, other{one.Name, set, link})
	}
	return others, nil
}

// reached are other clusters that are, by their names.
type reached struct {
	throughHome, directly []string
}

// report writes the condition, or takes it away if it is nil, and which clusters are reached. Of an object that has changed meanwhile the
// next round takes care.
func (l *Linker) report(ctx context.Context, seen *v1alpha1.RemoteCluster, condition *metav1.Condition, to reached) error {
	update := seen.DeepCopy()
	var changed bool
	if condition == nil {
		l.Metrics.forget(seen.Name)
		changed = meta.RemoveStatusCondition(&update.Status.Conditions, v1alpha1.NetworkReady)
	} else {
		condition.ObservedGeneration = seen.Generation
		l.Metrics.condition(seen.Name, condition.Status)
		changed = meta.SetStatusCondition(&update.Status.Conditions, *condition)
	}
	if !changed && slices.Equal(update.Status.Transit, to.throughHome) && slices.Equal(update.Status.DirectTransit, to.directly) {
		return nil
	}
	update.Status.Transit, update.Status.DirectTransit = to.throughHome, to.directly
	if _, err := l.Remotes.UpdateStatus(ctx, update, metav1.UpdateOptions{}); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("write status of RemoteCluster %s: %w", seen.Name, err)
	}
	return nil
}

// get reads a NetworkLink, nil if there is none.
func get(ctx context.Context, links *clients.NetworkLinks, name string) (*networkv1alpha1.NetworkLink, error) {
	link, err := links.Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read NetworkLink %s: %w", name, err)
	}
	return link, nil
}

// put makes or changes a NetworkLink.
func put(ctx context.Context, links *clients.NetworkLinks, have, want *networkv1alpha1.NetworkLink) (err error) {
	switch {
	case have == nil:
		_, err = links.Create(ctx, want, metav1.CreateOptions{})
	case !equality.Semantic.DeepEqual(have.Spec, want.Spec) || len(have.OwnerReferences) != len(want.OwnerReferences):
		update := have.DeepCopy()
		update.Spec, update.OwnerReferences = want.Spec, want.OwnerReferences
		_, err = links.Update(ctx, update, metav1.UpdateOptions{})
	}
	return err
}

// remove deletes a NetworkLink. Clusters without such objects have none.
func remove(ctx context.Context, links *clients.NetworkLinks, name string) error {
	link, err := get(ctx, links, name)
	switch {
	case apierrors.IsForbidden(err), err == nil && link == nil:
		return nil
	case err != nil:
		return err
	}
	only := metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &link.UID}}
	if err := links.Delete(ctx, name, only); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete NetworkLink %s: %w", name, err)
	}
	return nil
}
