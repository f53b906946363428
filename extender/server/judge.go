package server

import (
	"context"

	"github.com/lodestone-storage/lodestone/extender/filter"
	"github.com/lodestone-storage/lodestone/extender/snapshot"
)

// judgement says which nodes cannot take a pod: a sentence for each refused node,
// nil where no rule applies to the pod, and how many nodes each reason refused.
type judgement struct {
	refusals []string
	counts   map[filter.Reason]int
}

// judge judges the nodes 0 to nodes-1 for a pod, once the view has caught up with
// kube-scheduler.
func (s *Server) judge(ctx context.Context, pod snapshot.Pod, nodes int, node func(i int) snapshot.Node) judgement {
	s.catchUp(ctx, pod, func() bool { return s.View.KnowsClaimsOf(pod) })
	result := s.judgeNow(pod, nodes, node)
	if result.counts[filter.NodeNotSeen] > 0 {
		s.catchUp(ctx, pod, func() bool {
			result = s.judgeNow(pod, nodes, node)
			return result.counts[filter.NodeNotSeen] == 0
		})
	}
	return result
}

func (s *Server) judgeNow(pod snapshot.Pod, nodes int, node func(i int) snapshot.Node) judgement {
	plan := filter.NewPlan(s.View, pod, s.Now())
	if plan.Indifferent() {
		return judgement{}
	}
	result := judgement{refusals: make([]string, nodes), counts: map[filter.Reason]int{}}
	for i := range nodes {
		if reason := plan.Judge(node(i)); reason != filter.Accepted {
			result.refusals[i] = reason.Sentence()
			result.counts[reason]++
		}
	}
	return result
}
