package moves

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/moves/decide"
	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
	"github.com/lodestone-storage/lodestone/provisioner/slim"
)

// observe asks what there is of a move. On an error the observation is not complete.
func (c *Controller) observe(ctx context.Context, w *work) (decide.Observation, error) {
	o := decide.Observation{Now: time.Now(), Margin: c.Margin, Settling: c.Settling, Unusable: map[record.End]string{}, Gone: map[record.End]bool{}}
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
		w.abroad.close()
		return o, nil
	}
	c.lookOut(ctx, w, o.Record)
	if err := c.observeClaims(ctx, w, &o); err != nil {
		return o, err
	}
	w.tardy.see(&o)
	if err := c.observeGone(ctx, &o); err != nil {
		return o, err
	}
	// After the volumes: whoever mounts one now has looked at it before.
	if err := c.observeUsers(ctx, &o); err != nil {
		return o, err
	}
	if err := c.observeNodes(ctx, &o, w.abroad); err != nil {
		return o, err
	}
	c.observeCopies(ctx, w, &o)
	return o, nil
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
		for _, j := range used {
			if known := &o.Record.Claims[j]; known.Source.Ref.Cluster == keys.Home && !seen.Finished {
				o.Claims[j].Levels = append(o.Claims[j].Levels, levels(&pod.Spec, known.Name)...)
			}
		}
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
		Finished: finished(pod), Owned: metav1.GetControllerOf(pod) != nil, Job: jobOf(pod), Node: pod.Spec.NodeName,
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
