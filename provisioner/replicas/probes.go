// This file asks clusters that answer whether their agents reach one that does not: their owners may have them probe it.

package replicas

import (
	"context"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/clients"
	"github.com/lodestone-storage/lodestone/provisioner/replicas/decide"
)

const (
	// askEvery is how often a cluster is asked what its agent finds, and for how long at most.
	askEvery, askTimeout = 5 * time.Second, 3 * time.Second
	// heardFor is how long it counts that an agent has written that a server does not answer, which it writes again every 20 s.
	heardFor = time.Minute
)

// probing is what is known of the probes of one cluster.
type probing struct {
	asked time.Time
	// failed says that the cluster could not be asked, or has not been.
	failed bool
	// found is what it says of others, by their name.
	found map[string]probed
}

// probed is what a cluster says of another one.
type probed struct {
	answers bool
	written metav1.Time
	// changed is when this process saw written change, zero if it has not: no clock of another machine is trusted.
	changed time.Time
}

// askProbes asks the clusters that answer.
func (a *automatic) askProbes(ctx context.Context, answering []string) {
	asking := errgroup.Group{}
	asking.SetLimit(8)
	for _, id := range answering {
		cluster := a.Clusters.Get(id)
		if cluster == nil {
			continue
		}
		access, why := cluster.Access()
		known := a.probes[id]
		if why != "" || known != nil && time.Since(known.asked) < askEvery {
			continue
		}
		if access.Remote == nil { // Without an agent nothing is probed.
			delete(a.probes, id)
			continue
		}
		if known == nil {
			known = &probing{}
			a.probes[id] = known
		}
		asking.Go(func() error {
			known.ask(ctx, access.Remote, a.Place.HomeID)
			return nil
		})
	}
	_ = asking.Wait() // No function returns an error.
}

// ask reads what the agent of a cluster has found.
func (p *probing) ask(ctx context.Context, client *clients.RemoteClient, homeID string) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	home, err := client.HomeClusters().Get(ctx, homeID, metav1.GetOptions{})
	p.asked = time.Now()
	switch {
	case apierrors.IsNotFound(err), apierrors.IsForbidden(err):
		p.failed, p.found = false, nil
	case err != nil:
		p.failed = true
	default:
		p.failed, p.found = false, p.next(home, p.asked)
	}
}

// next returns what is known once a HomeCluster was read. What it is to probe and has not probed yet is in it, too.
func (p *probing) next(home *remotev1alpha1.HomeCluster, now time.Time) map[string]probed {
	found := map[string]probed{}
	for _, wanted := range home.Spec.Probes {
		before, known := p.found[wanted.Cluster]
		is := probed{}
		if i := slices.IndexFunc(home.Status.Probes, func(r remotev1alpha1.ProbeResult) bool { return r.Cluster == wanted.Cluster }); i >= 0 {
			is = probed{answers: home.Status.Probes[i].Answers, written: home.Status.Probes[i].LastProbe, changed: before.changed}
			if known && !before.written.Equal(&is.written) {
				is.changed = now
			}
		}
		found[wanted.Cluster] = is
	}
	return found
}

// probesOf returns what the others say of a cluster.
func (a *automatic) probesOf(lost string, answering []string, now time.Time) (all []decide.Probe) {
	for _, id := range answering {
		known := a.probes[id]
		if id == lost || known == nil {
			continue
		}
		found, probes := known.found[lost]
		if known.failed || probes {
			all = append(all, decide.Probe{By: id, Answers: found.answers && !known.failed,
				Fresh: !known.failed && !found.changed.IsZero() && now.Sub(found.changed) < heardFor})
		}
	}
	return all
}
