package moves

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/movecontrol"
	"github.com/lodestone-storage/lodestone/provisioner/moves/decide"
	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
	"github.com/lodestone-storage/lodestone/provisioner/moves/transport"
)

// connect has the movers of a claim, in pods that both run, connected as package transport
// chooses; one reads at an end. Where it fails the next turn goes on.
func (c *Controller) connect(ctx context.Context, w *work, r *record.Record, i int, from record.End, pods [2]types.UID, seen *decide.Claim, client *movecontrol.Client) {
	wanted, why := transport.Peers(c.placeOf(r.Claims[i].Source.Ref.Cluster), c.placeOf(r.Claims[i].Target.Ref.Cluster), seen.Target.Mover.IPs, dataPort, c.Networks)
	now := time.Now()
	splicing, apart := w.links.between(i, pods)
	// Where all is copied after the stop the better way is worth a wait.
	urgent := !r.Down.IsZero() && !r.Claims[i].Whole()
	action := transport.Next(transport.Seen{Now: now, Wanted: wanted, Status: seen.Copy, Splicing: splicing, Apart: apart, Urgent: urgent})
	if action == transport.Tell {
		asking, cancel := context.WithTimeout(ctx, askTimeout)
		defer cancel()
		err := client.Tell(asking, movecontrol.Peers{Addresses: wanted})
		if err != nil {
			klog.FromContext(ctx).V(2).Info("A mover was not told where the other one is", "claim", r.Claims[i].Name, "err", err)
		}
		if errors.Is(err, movecontrol.ErrRefused) && !splicing {
			// It would refuse again.
			action = transport.Splice
		}
	}
	w.links.await(i, now, action == transport.Await)
	switch action {
	case transport.Splice:
		c.splice(ctx, w, r, i, from, pods)
	case transport.Cut:
		w.links.cut(i)
	default: // nothing to do here
	}
	seen.Way = wayOf(seen.Copy, why, pods, &c.ways)
}

// splice joins the movers of a claim until that is cut.
func (c *Controller) splice(ctx context.Context, w *work, r *record.Record, i int, from record.End, pods [2]types.UID) {
	// Not this turn's context; its end is the work's.
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	w.links.keep(i, pods, stop)
	go splice(ctx, c.to(r, i, from, dataPort), c.to(r, i, record.Target, dataPort), func(err error) { w.links.note(i, err) })
}

// placeOf is a cluster as movers see it.
func (c *Controller) placeOf(cluster string) transport.Place {
	place := transport.Place{Cluster: cluster}
	if object := c.Clusters.Object(cluster); object != nil {
		place.Network = object.Spec.PodNetwork
	}
	return place
}

// addressesOf returns the addresses of a pod, as its cluster tells them.
func addressesOf(pod *corev1.Pod) []string {
	var found []string
	for _, ip := range pod.Status.PodIPs {
		found = append(found, ip.IP)
	}
	return found
}

// wayOf is how data travels between two movers. why is why one may not dial the other.
func wayOf(status *movecontrol.Status, why string, pods [2]types.UID, taken *ways) decide.Way {
	way := decide.Way{Why: why}
	switch {
	case status.Connected && status.Direct:
		return decide.Way{Transport: v1alpha1.TransportDirect}
	case why != "":
	case !status.Seeks:
		way.Why = "the mover at the source is of a version that dials nobody"
	default:
		way.Why = status.PeerError
	}
	if status.Connected {
		way.Transport = v1alpha1.TransportSpliced
		way.Legs = &v1alpha1.MoveLegs{Source: taken.leg(door{pods[0], dataPort}), Target: taken.leg(door{pods[1], dataPort})}
	}
	return way
}
