package server

import (
	"context"

	"github.com/lodestone-storage/lodestone/extender/metrics"
	"github.com/lodestone-storage/lodestone/extender/snapshot"
	"github.com/lodestone-storage/lodestone/extender/wire"
)

// The verbs, as kube-scheduler's configuration names them.
const (
	filterVerb     = metrics.Filter
	prioritizeVerb = metrics.Prioritize
	preemptVerb    = metrics.Preempt
)

func (s *Server) filter(ctx context.Context, buffer []byte, request wire.Request) []byte {
	refusal, counts := s.judge(ctx, filterVerb, request.Pod, len(request.Names), func(i int) snapshot.Node {
		return s.node(&request, i)
	})
	for reason, nodes := range counts {
		s.Metrics.Refused(reason, nodes)
	}
	s.Metrics.Decided(filterVerb, metrics.Judged(len(request.Names), counts))
	return wire.AppendFilterResult(buffer, request, refusal)
}

// preempt drops the candidates that filter would refuse. kube-scheduler's own
// trial of an eviction does not ask extenders: without this, pods would be
// evicted for one that cannot take their place.
func (s *Server) preempt(ctx context.Context, buffer []byte, request wire.PreemptRequest) []byte {
	refusal, counts := s.judge(ctx, preemptVerb, request.Pod, len(request.Names), func(i int) snapshot.Node {
		return s.View.Node(request.Names[i])
	})
	for reason, nodes := range counts {
		s.Metrics.Spared(reason, nodes)
	}
	s.Metrics.Decided(preemptVerb, metrics.Judged(len(request.Names), counts))
	return wire.AppendPreemptResult(buffer, request, refusal)
}

// node returns the i-th candidate: as the request describes it if it does, else
// as it is known here.
func (s *Server) node(request *wire.Request, i int) snapshot.Node {
	if request.NodeMode {
		return request.Nodes[i].Node
	}
	return s.View.Node(request.Names[i])
}
