package links

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	networkv1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/network/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/controller"
)

// aloneInterval is how often home looks at what it knows without the remote clusters.
const aloneInterval = 5 * time.Second

// Alone does what home does without a remote cluster, which may be away for long: it parts the networks at home's side where that is asked
// for, and takes back that the network is ready where home's own probes no longer say so. It runs until ctx ends.
func (l *Linker) Alone(ctx context.Context) error {
	clock := time.NewTicker(aloneInterval)
	defer clock.Stop()
	counted := map[string]bool{}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-clock.C:
		}
		present := map[string]bool{}
		for _, remote := range controller.All[v1alpha1.RemoteCluster](l.Objects) {
			present[remote.Name] = true
			if err := l.alone(ctx, remote); err != nil && ctx.Err() == nil {
				klog.FromContext(ctx).V(2).Info("Home looks at its network again later", "cluster", remote.Name, "err", err)
			}
		}
		for name := range counted {
			if !present[name] {
				l.Metrics.forget(name)
			}
		}
		counted = present
	}
}

func (l *Linker) alone(ctx context.Context, remote *v1alpha1.RemoteCluster) error {
	said := meta.FindStatusCondition(remote.Status.Conditions, v1alpha1.NetworkReady)
	if said == nil || remote.DeletionTimestamp != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if remote.Spec.PodNetwork != v1alpha1.Fabric {
		return remove(ctx, l.Home, remote.Name) // the condition stays until the remote cluster has parted, too
	}
	if said.Status != metav1.ConditionTrue {
		return nil
	}
	home, err := get(ctx, l.Home, remote.Name)
	if err != nil {
		return err
	}
	now := time.Now()
	if condition := contradicted(remote.Name, l.renewals.local(remote.Name, home, now), now); condition != nil {
		return l.report(ctx, remote, condition, reached{remote.Status.Transit, remote.Status.DirectTransit})
	}
	return nil
}

// contradicted is what is to be said of a network that is said to be ready, nil if home's own probes agree. home is nil if there is no
// object.
func contradicted(cluster string, home *networkv1alpha1.NetworkLink, now time.Time) *metav1.Condition {
	probed, problem := 0, ""
	if home != nil {
		probed, problem = tried("home", "cluster "+cluster, home.Status.Probes, func(p networkv1alpha1.ProbeStatus) bool {
			return now.Sub(p.RenewTime.Time) <= fresh
		})
	}
	switch {
	case problem != "":
		return &metav1.Condition{Type: v1alpha1.NetworkReady, Status: metav1.ConditionFalse, Reason: "PathDown", Message: problem}
	case probed == 0:
		return &metav1.Condition{Type: v1alpha1.NetworkReady, Status: metav1.ConditionFalse, Reason: "NotProbed",
			Message: notProbed("home", "cluster "+cluster)}
	}
	return nil
}
