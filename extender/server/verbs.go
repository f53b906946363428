package server

import (
	"context"

	"k8s.io/klog/v2"

	"github.com/lodestone-storage/lodestone/extender/score"
	"github.com/lodestone-storage/lodestone/extender/snapshot"
	"github.com/lodestone-storage/lodestone/extender/wire"
)

func (s *Server) filter(ctx context.Context, buffer []byte, request wire.Request) []byte {
	result := s.judge(ctx, request.Pod, len(request.Names), func(i int) snapshot.Node { return s.node(request, i) })
	for reason, nodes := range result.counts {
		s.Metrics.Refused(reason, nodes)
	}
	if len(result.counts) > 0 {
		klog.FromContext(ctx).V(4).Info("Filtered nodes", "pod", klog.KRef(request.Pod.Namespace, request.Pod.Name), "nodes", len(request.Names), "refused", result.counts)
	}
	return wire.AppendFilterResult(buffer, request, result.refusals)
}

func (s *Server) prioritize(_ context.Context, buffer []byte, request wire.Request) []byte {
	scale := score.NewScale(s.View, request.Pod)
	return wire.AppendPriorities(buffer, request.Names, func(i int) int64 {
		return scale.Of(s.node(request, i))
	})
}

// preempt drops the candidates that filter would refuse. kube-scheduler's own
// trial of an eviction does not ask extenders: without this, pods would be
// evicted for one that cannot take their place.
func (s *Server) preempt(ctx context.Context, buffer []byte, request wire.PreemptRequest) []byte {
	result := s.judge(ctx, request.Pod, len(request.Names), func(i int) snapshot.Node { return s.View.Node(request.Names[i]) })
	for reason, nodes := range result.counts {
		s.Metrics.Spared(reason, nodes)
	}
	if len(result.counts) > 0 {
		klog.FromContext(ctx).V(4).Info("Spared nodes from preemption", "pod", klog.KRef(request.Pod.Namespace, request.Pod.Name), "candidates", len(request.Names), "spared", result.counts)
	}
	return wire.AppendPreemptResult(buffer, request, result.refusals)
}

// node returns the i-th candidate: as the request describes it if it does, else
// as it is known here.
func (s *Server) node(request wire.Request, i int) snapshot.Node {
	if request.NodeMode {
		return request.Nodes[i].Node
	}
	return s.View.Node(request.Names[i])
}
