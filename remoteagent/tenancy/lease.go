package tenancy

import (
	"context"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/controller"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/podlease"
	"github.com/lodestone-storage/lodestone/remoteagent/policy"
	"github.com/lodestone-storage/lodestone/remoteagent/sources"
)

// lookEvery is how often it is looked whether leases have lapsed: that changes by the clock alone.
const lookEvery = time.Second

// readEvery is how often the heartbeats of home clusters that ask for a lease are read, beside their watch. A watch may be late: what it
// tells of is taken for no more than this younger than it is.
const readEvery = 10 * time.Second

// Leases says which home clusters hold the lease that they ask for. A lease has lapsed only once the API server was asked: a watch that
// stood still must not end the pods of a home cluster that is heard. It is safe for concurrent use.
type Leases struct {
	client     kubernetes.Interface
	heartbeats *Heartbeats
	sources    *sources.Sources
	changed    []func(id string)

	mu    sync.Mutex
	known map[string]lease
}

// lease is what a home cluster asks for, and whether it is held.
type lease struct {
	ask   podlease.Ask
	state podlease.State
}

// NewLeases returns Leases for which none has lapsed before Run.
func NewLeases(client kubernetes.Interface, heartbeats *Heartbeats, from *sources.Sources) *Leases {
	return &Leases{client: client, heartbeats: heartbeats, sources: from, known: map[string]lease{}}
}

// Subscribe has changed called whenever the state of a home cluster's lease has changed. Call it before Run.
func (l *Leases) Subscribe(changed func(id string)) { l.changed = append(l.changed, changed) }

// State returns the lease that a home cluster asks for, and whether it is held. One that may have lapsed is listened for.
func (l *Leases) State(id string) (podlease.Ask, podlease.State) {
	now := l.heartbeats.lease(id)
	l.mu.Lock()
	defer l.mu.Unlock()
	if now.state == podlease.Lapsed && l.known[id] != now {
		now.state = podlease.Listening
	}
	return now.ask, now.state
}

// Run looks at the leases until ctx ends.
func (l *Leases) Run(ctx context.Context) {
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	for {
		for home := range controller.Each[remotev1alpha1.HomeCluster](l.sources.Homes) {
			l.look(ctx, home.Name)
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

func (l *Leases) look(ctx context.Context, id string) {
	now := l.heartbeats.lease(id)
	l.mu.Lock()
	before, known := l.known[id]
	l.mu.Unlock()
	// Another process has led until now, and knew what this one may hear of only later.
	if !known || now.state == podlease.Lapsed && before != now || !now.ask.None() && l.heartbeats.sinceRead(id) >= readEvery {
		if err := l.read(ctx, id); err != nil {
			klog.FromContext(ctx).Info("The heartbeat of a home cluster cannot be read, so its pods are not ended yet", "cluster", id, "err", err)
			return
		}
		now = l.heartbeats.lease(id)
	}
	if known && now == before {
		return
	}
	l.mu.Lock()
	l.known[id] = now
	l.mu.Unlock()
	if now.state == podlease.Lapsed {
		klog.FromContext(ctx).Info("The home cluster is silent: its pods that use claims are ended", "cluster", id)
	}
	for _, changed := range l.changed {
		changed(id)
	}
}

// read reads the Lease of a home cluster from the API server. One that is not there says nothing new.
func (l *Leases) read(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(ctx, sources.SyncTimeout)
	defer cancel()
	lease, err := l.client.CoordinationV1().Leases(policy.TenantNamespace(id)).Get(ctx, keys.HeartbeatLease, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the heartbeat of home cluster %s: %w", id, err)
	}
	l.heartbeats.read(id, lease)
	return nil
}

// Forget removes what is known of a home cluster that is no longer served.
func (l *Leases) Forget(id string) {
	l.heartbeats.Forget(id)
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.known, id)
}

// promise sets what is promised to a home cluster in its status, and the condition PodLease, and reports whether anything has changed.
func promise(home *remotev1alpha1.HomeCluster, ask podlease.Ask, state podlease.State) (changed bool) {
	if ask.None() {
		changed = home.Status.PodLease != nil
		home.Status.PodLease = nil
		return meta.RemoveStatusCondition(&home.Status.Conditions, remotev1alpha1.PodLease) || changed
	}
	made := remotev1alpha1.PodLeasePromise{Request: ask.Request, Seconds: ask.Seconds}
	if home.Status.PodLease == nil || *home.Status.PodLease != made {
		home.Status.PodLease, changed = &made, true
	}
	// An agent that has just started knows no more than the one before it.
	if state == podlease.Listening && meta.FindStatusCondition(home.Status.Conditions, remotev1alpha1.PodLease) != nil {
		return changed
	}
	condition := metav1.Condition{Type: remotev1alpha1.PodLease, ObservedGeneration: home.Generation}
	switch half := ask.Length() / 2; state {
	case podlease.Held:
		condition.Status, condition.Reason = metav1.ConditionTrue, "Held"
		condition.Message = fmt.Sprintf("The home cluster is heard. Once it has been silent for %v its pods that use claims are ended.", half)
	case podlease.Lapsed:
		condition.Status, condition.Reason = metav1.ConditionFalse, "Lapsed"
		condition.Message = fmt.Sprintf("The home cluster has been silent for %v: its pods that use claims are ended, as it has asked for, and "+
			"none is made until it is heard.", half)
	default:
		condition.Status, condition.Reason = metav1.ConditionUnknown, "Listening"
		condition.Message = fmt.Sprintf("The remote agent has just started. Once the home cluster has been silent for %v its pods that use "+
			"claims are ended.", half)
	}
	return meta.SetStatusCondition(&home.Status.Conditions, condition) || changed
}
