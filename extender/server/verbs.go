package server

import (
	"context"

	"k8s.io/klog/v2"

	"github.com/lodestone-storage/lodestone/extender/filter"
	"github.com/lodestone-storage/lodestone/extender/score"
	"github.com/lodestone-storage/lodestone/extender/snapshot"
	"github.com/lodestone-storage/lodestone/extender/wire"
)

func (s *Server) filter(ctx context.Context, buffer []byte, request wire.Request) []byte {
	s.catchUp(ctx, request, func() bool { return s.View.KnowsClaimsOf(request.Pod) })
	result := s.judge(request)
	if result.counts[filter.NodeNotSeen] > 0 {
		s.catchUp(ctx, request, func() bool {
			result = s.judge(request)
			return result.counts[filter.NodeNotSeen] == 0
		})
	}
	if result.refusals == nil {
		return wire.AppendFilterResult(buffer, request, nil)
	}
	for reason, nodes := range result.counts {
		s.Metrics.Refused(reason, nodes)
	}
	klog.FromContext(ctx).V(4).Info("Filtered nodes", "pod", klog.KRef(request.Pod.Namespace, request.Pod.Name), "nodes", len(request.Names), "refused", result.counts)
	return wire.AppendFilterResult(buffer, request, result.refusals)
}

// judgement is the outcome of filter: a sentence for each refused node, nil
// where no rule applies to the pod, and how many nodes each reason refused.
type judgement struct {
	refusals []string
	counts   map[filter.Reason]int
}

func (s *Server) judge(request wire.Request) judgement {
	plan := filter.NewPlan(s.View, request.Pod, s.Now())
	if plan.Indifferent() {
		return judgement{}
	}
	result := judgement{refusals: make([]string, len(request.Names)), counts: map[filter.Reason]int{}}
	for i := range request.Names {
		if reason := plan.Judge(s.node(request, i)); reason != filter.Accepted {
			result.refusals[i] = reason.Sentence()
			result.counts[reason]++
		}
	}
	return result
}

func (s *Server) prioritize(_ context.Context, buffer []byte, request wire.Request) []byte {
	scale := score.NewScale(s.View, request.Pod)
	return wire.AppendPriorities(buffer, request.Names, func(i int) int64 {
		return scale.Of(s.node(request, i))
	})
}

// node returns the i-th candidate: as the request describes it if it does, else
// as it is known here.
func (s *Server) node(request wire.Request, i int) snapshot.Node {
	if request.NodeMode {
		return request.Nodes[i].Node
	}
	return s.View.Node(request.Names[i])
}
