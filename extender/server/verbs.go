package server

import (
	"k8s.io/klog/v2"

	"github.com/lodestone-storage/lodestone/extender/filter"
	"github.com/lodestone-storage/lodestone/extender/score"
	"github.com/lodestone-storage/lodestone/extender/snapshot"
	"github.com/lodestone-storage/lodestone/extender/wire"
)

func (s *Server) filter(buffer []byte, request wire.Request, logger klog.Logger) []byte {
	plan := filter.NewPlan(s.View, request.Pod, s.Now())
	if plan.Indifferent() {
		return wire.AppendFilterResult(buffer, request, nil)
	}
	refusals := make([]string, len(request.Names))
	counts := map[filter.Reason]int{}
	for i := range request.Names {
		if reason := plan.Judge(s.node(request, i)); reason != filter.Accepted {
			refusals[i] = reason.Sentence()
			counts[reason]++
		}
	}
	for reason, nodes := range counts {
		s.Metrics.Refused(reason, nodes)
	}
	logger.V(4).Info("Filtered nodes", "pod", klog.KRef(request.Pod.Namespace, request.Pod.Name), "nodes", len(request.Names), "refused", counts)
	return wire.AppendFilterResult(buffer, request, refusals)
}

func (s *Server) prioritize(buffer []byte, request wire.Request, _ klog.Logger) []byte {
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
