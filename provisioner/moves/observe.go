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
	"github.com/lodestone-storage/lodestone/provisioner/slim"
)

// observe asks what there is of a move. On an error the observation is not complete.
func (c *Controller) observe(ctx context.Context, w *work) (decide.Observation, error) {
	o := decide.Observation{Now: time.Now(), Margin: c.Margin, Unusable: map[record.End]string{}, Gone: map[record.End]bool{}}
	if w.record == nil {
		known, err := c.read(ctx, w.uid)
		if err != nil {
			return o, err
		}
		if known == nil {
			c.free(c.Registry.set(w.uid, nil))
		}
		w.record = known
	}
	if w.record != nil {
		o.Record = w.record.record
	}
	move, err := c.Moves.In(w.at.Namespace).Get(ctx, w.at.Name, metav1.GetOptions{})
	switch {
	case err == nil && move.UID == w.uid:
		o.Move = move
	case err != nil && !apierrors.IsNotFound(err):
		return o, fmt.Errorf("look at VolumeMove %s: %w", w.at, err)
	}
	if o.Record == nil || o.Record.Over() {
		w.links.close()
		return o, nil
	}
	for i := range o.Record.Claims {
		seen, err := c.observeClaim(ctx, o, i)
		if err != nil {
			return o, err
		}
		o.Claims = append(o.Claims, seen)
	}
	if err := c.observeGone(ctx, &o); err != nil {
		return o, err
	}
	// After the volumes: whoever mounts one now has looked at it before.
	if err := c.observePods(ctx, &o); err != nil {
		return o, err
	}
	if err := c.observeOthers(ctx, &o); err != nil {
		return o, err
	}
	if err := c.observeNodes(ctx, &o); err != nil {
		return o, err
	}
	c.observeCopies(ctx, w, &o)
	return o, nil
}

// observeClaim looks at one claim and what is behind it, but not at its movers' words.
func (c *Controller) observeClaim(ctx context.Context, o decide.Observation, i int) (seen decide.Claim, err error) {
	r, home := o.Record, site{Access: clusters.Access{Client: c.Client}, home: true}
	known := &r.Claims[i]
	if seen.Claim, err = claimAt(ctx, home, r.Namespace, known.Name); err != nil {
		return seen, err
	}
	if seen.Claim != nil && seen.Claim.UID != known.UID {
		seen.Claim = nil
	}
	if seen.Volume, err = volumeAt(ctx, home, known.Volume.Name); err != nil {
		return seen, err
	}
	for _, end := range record.Ends {
		copied := known.At(end)
		if o.Unusable[end] != "" {
			// One that does not answer is asked once in a turn: abort and going back must not
			// wait for each claim.
			continue
		}
		at, why := c.reach(copied.Ref.Cluster)
		if r.GaveUp(end) {
			why = "it was given up"
		}
		if why != "" {
			o.Unusable[end] = why
			continue
		}
		side, err := c.observeSide(ctx, at, r, i, end)
		if err != nil {
			if copied.Ref.Cluster == keys.Home {
				return seen, err
			}
			// It must not keep pods at home waiting.
			c.suspect(copied.Ref.Cluster)
			o.Unusable[end] = fmt.Sprintf("cluster %s cannot be asked now: %v", copied.Ref.Cluster, err)
			continue
		}
		if end == record.Source {
			seen.Source = side
		} else {
			seen.Target = side
		}
	}
	if r.Phase == v1alpha1.MoveVerifying && seen.Claim != nil {
		if seen.New, err = c.volumeFor(known, seen); err != nil {
			seen.NewError, err = err.Error(), nil
		}
	}
	return seen, err
}

func (c *Controller) observeSide(ctx context.Context, at site, r *record.Record, i int, end record.End) (side decide.Side, err error) {
	ctx, cancel := at.patience(ctx)
	defer cancel()
	ref := r.Claims[i].At(end).Ref
	if side.Backing, err = claimAt(ctx, at, ref.Namespace, ref.Name); err != nil {
		return side, err
	}
	if b := side.Backing; b != nil && b.Spec.VolumeName != "" {
		if side.Real, err = volumeAt(ctx, at, b.Spec.VolumeName); err != nil {
			return side, err
		}
		if side.Real != nil && (side.Real.Spec.ClaimRef == nil || side.Real.Spec.ClaimRef.UID != b.UID) {
			side.Real = nil
		}
	}
	side.Mover, _, err = c.moverAt(ctx, at, r, i, end)
	return side, err
}

// observePods finds out which pods of home use a claim of a move.
func (c *Controller) observePods(ctx context.Context, o *decide.Observation) error {
	pods, err := c.Client.CoreV1().Pods(o.Record.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list pods: %w", err)
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		used := usedBy(pod, o.Record)
		if len(used) == 0 {
			continue
		}
		known, seen := slim.NewPod(pod), podOf(pod)
		seen.Claims = used
		if c.local(known) {
			// Others than its node may say that it has failed.
			seen.Finished = known.Ended()
			if !seen.Finished {
				o.Writers = append(o.Writers, writer(known))
			}
		}
		o.Pods = append(o.Pods, seen)
	}
	return nil
}

// usedBy returns the indices of the claims of a move that a pod uses.
func usedBy(pod *corev1.Pod, r *record.Record) (claims []int) {
	for i := range r.Claims {
		if uses(&pod.Spec, r.Claims[i].Name) {
			claims = append(claims, i)
		}
	}
	return claims
}

func podOf(pod *corev1.Pod) decide.Pod {
	seen := decide.Pod{
		Name: pod.Name, UID: pod.UID, Bound: pod.Spec.NodeName != "", Leaving: pod.DeletionTimestamp != nil,
		Finished: finished(pod), Owned: metav1.GetControllerOf(pod) != nil, Node: pod.Spec.NodeName,
		Hasty: pod.Spec.TerminationGracePeriodSeconds != nil && *pod.Spec.TerminationGracePeriodSeconds == 0,
	}
	for _, gate := range pod.Spec.SchedulingGates {
		seen.Gated = seen.Gated || gate.Name == keys.MovingGate
	}
	for _, condition := range pod.Status.Conditions {
		seen.Ready = seen.Ready || condition.Type == corev1.PodReady && condition.Status == corev1.ConditionTrue
	}
	return seen
}
