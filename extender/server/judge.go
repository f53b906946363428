package server

import (
	"context"
	"time"

	"k8s.io/klog/v2"

	"github.com/lodestone-storage/lodestone/extender/explain"
	"github.com/lodestone-storage/lodestone/extender/filter"
	"github.com/lodestone-storage/lodestone/extender/snapshot"
)

// judgement says which nodes cannot take a pod.
type judgement struct {
	at   time.Time
	plan *filter.Plan
	// reasons has one for each node; nil where no rule applies to the pod.
	reasons []filter.Reason
	tally   explain.Tally
}

// candidates calls with each node that is to be judged.
type candidates func(with func(i int, node snapshot.Node))

// judge judges the nodes 0 to nodes-1 for a pod, once the view has caught up with
// kube-scheduler, and keeps the outcome for those who ask. It returns how to get
// the sentence for a node, empty for one that is not refused, nil if all are kept,
// and how many nodes each reason refused.
func (s *Server) judge(ctx context.Context, verb string, pod snapshot.Pod, nodes int, each candidates) (refusal func(i int) string, counts map[filter.Reason]int) {
	known := func() bool { return s.View.Knows(pod) }
	s.catchUp(ctx, pod, known)
	result := s.judgeNow(pod, nodes, each)
	again := func() {
		result = s.judgeNow(pod, nodes, each)
		counts = result.tally.Refused()
	}
	if counts = result.tally.Refused(); counts[filter.NodeNotSeen] > 0 {
		s.catchUp(ctx, pod, func() bool {
			again()
			return counts[filter.NodeNotSeen] == 0
		})
	}
	if doubtful(counts, nodes) && s.pause(ctx) {
		again()
	}
	// A pod that waits for nothing here is worth a note only if it was refused, now
	// or before: then people would read on what no longer holds.
	if (result.reasons == nil || (len(pod.Volumes) == 0 && len(counts) == 0)) && known() {
		if !s.Journal.Refused(pod) {
			return nil, nil
		}
		result.accept(each)
	}
	s.note(pod, explain.Decision{
		Time: result.at, Verb: verb, Claims: explain.Claims(pod, result.plan.Claims()), Nodes: result.tally.Verdicts(),
	})
	if len(counts) == 0 {
		return nil, nil
	}
	if logger := klog.FromContext(ctx).V(4); logger.Enabled() {
		logger.Info("Refused nodes", "verb", verb, "pod", klog.KRef(pod.Namespace, pod.Name), "nodes", nodes, "refused", counts)
	}
	return func(i int) string { return result.reasons[i].Sentence() }, counts
}

// accept counts all nodes where no rule applies to the pod.
func (j *judgement) accept(each candidates) {
	if j.reasons != nil {
		return
	}
	each(func(_ int, node snapshot.Node) { j.tally.Add(node.Cluster, filter.Accepted, node.Name) })
}

func (s *Server) judgeNow(pod snapshot.Pod, nodes int, each candidates) judgement {
	at := s.Now()
	result := judgement{at: at, plan: filter.NewPlan(s.View, pod, at)}
	if result.plan.Indifferent() {
		return result
	}
	result.reasons = make([]filter.Reason, nodes)
	each(func(i int, node snapshot.Node) {
		reason := result.plan.Judge(node)
		result.reasons[i] = reason
		result.tally.Add(node.Cluster, reason, node.Name)
	})
	return result
}
