package flow

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/decide"
)

// leftovers counts the backing claims that may hold data and that nothing at home
// stands for any more.
type leftovers struct {
	gauge *prometheus.GaugeVec

	mu   sync.Mutex
	kept map[types.UID]leftover
	// last is the number of the one that was noted last.
	last int
	told map[string]toldOf
}

// leftover is one of them, at is its backing claim and home the namespace at home
// that it belongs to, empty if it does not say.
type leftover struct {
	cluster, home string
	at            types.NamespacedName
	number        int
}

func newLeftovers() *leftovers {
	return &leftovers{kept: map[types.UID]leftover{}, told: map[string]toldOf{}, gauge: prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "lodestone_provisioner_backings_left",
		Help: "Backing claims that may hold data and have neither claim nor volume at home, by cluster: kept by policy Retain, or left by a volume that was declared lost.",
	}, []string{"cluster"})}
}

// note notes what is left of a claim, nil for nothing, and says whether that is
// new.
func (l *leftovers) note(claim types.UID, now *leftover) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	before, had := l.kept[claim]
	if had && now != nil && before.cluster == now.cluster {
		return false
	}
	if had {
		l.gauge.WithLabelValues(before.cluster).Dec()
		delete(l.kept, claim)
	}
	if now == nil {
		return false
	}
	l.last++
	kept := *now
	kept.number = l.last
	l.kept[claim] = kept
	l.gauge.WithLabelValues(now.cluster).Inc()
	return true
}

// in returns those in a cluster, the latest first.
func (l *leftovers) in(cluster string) []leftover {
	l.mu.Lock()
	defer l.mu.Unlock()
	var there []leftover
	for _, one := range l.kept {
		if one.cluster == cluster {
			there = append(there, one)
		}
	}
	slices.SortFunc(there, func(a, b leftover) int { return cmp.Compare(b.number, a.number) })
	return there
}

// noteLeft notes what is left of a claim, and has it told of.
func (f *Flow) noteLeft(ctx context.Context, claim types.UID, b *decide.Backing) {
	if b == nil {
		f.Metrics.leftovers.note(claim, nil)
		return
	}
	now := &leftover{cluster: b.Cluster, at: types.NamespacedName{Namespace: b.Claim.Namespace, Name: b.Claim.Name}}
	if owner, ok := f.Place.OwnerOf(b.Claim); ok {
		now.home = owner.Namespace
	}
	if !f.Metrics.leftovers.note(claim, now) {
		return
	}
	klog.FromContext(ctx).Info("No volume at home stands for a backing claim", "cluster", b.Cluster, "backing", now.at)
	if b.Cluster != keys.Home {
		f.left.AddAfter(b.Cluster, f.Metrics.leftovers.pause(b.Cluster, time.Now()))
	}
}

// tellLeft says on RemoteClusters what is left there, until the queue is shut down.
func (f *Flow) tellLeft() {
	for {
		cluster, shutdown := f.left.Get()
		if shutdown {
			return
		}
		if remote := f.Clusters.Object(cluster); remote != nil {
			if text := f.Metrics.leftovers.summary(cluster, time.Now()); text != "" {
				f.Recorder.Event(&corev1.ObjectReference{APIVersion: v1alpha1.GroupVersion.String(), Kind: "RemoteCluster", Name: remote.Name, UID: remote.UID},
					corev1.EventTypeNormal, "BackingLeft", strings.ToValidUTF8(text[:min(len(text), maxText)], ""))
			}
		}
		f.left.Done(cluster)
	}
}

// listed is how many of them are named; the log names all.
const listed = 3

// leftText says what is left in a cluster, of which there is at least one. Nothing
// removes it but its administrator, and it can be imported again.
func leftText(cluster string, there []leftover) string {
	names := make([]string, 0, listed+1)
	for _, one := range there[:min(len(there), listed)] {
		names = append(names, one.at.String())
	}
	if more := len(there) - listed; more > 0 {
		names = append(names, fmt.Sprintf("and %d more, which the log of the provisioner names", more))
	}
	what, them, one := "1 real claim is", "it", "it"
	if len(there) > 1 {
		what, them, one = fmt.Sprintf("%d real claims are", len(there)), "them", "the first"
	}
	home := cmp.Or(there[0].home, "NAMESPACE")
	return fmt.Sprintf("%s in cluster %s with data, and no volume at home stands for %s: %s; "+
		"kubectl lodestone import pvc %s -n %s --cluster %s --remote-context CONTEXT --class CLASS gives %s a claim again, with the kubeconfig context of %s and a virtual storage class; "+
		"to be rid of %s, take finalizer %s off and then delete it there",
		what, cluster, them, strings.Join(names, ", "), there[0].at.Name, home, cluster, one, cluster, one, keys.BackingFinalizer)
}
