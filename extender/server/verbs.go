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
	refusal, counts := s.judge(ctx, filterVerb, request.Pod, len(request.Names), func(with func(int, snapshot.Node)) {
		s.eachNode(&request, with)
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
	refusal, counts := s.judge(ctx, preemptVerb, request.Pod, len(request.Names), func(with func(int, snapshot.Node)) {
		s.View.EachNode(request.Names, with)
	})
	for reason, nodes := range counts {
		s.Metrics.Spared(reason, nodes)
	}
	s.Metrics.Decided(preemptVerb, metrics.Judged(len(request.Names), counts))
	return wire.AppendPreemptResult(buffer, request, refusal)
}

// eachNode calls with each candidate: as the request describes it if it does, else
// as it is known here.
func (s *Server) eachNode(request *wire.Request, with func(i int, node snapshot.Node)) {
	if !request.NodeMode {
		s.View.EachNode(request.Names, with)
		return
	}
	for i := range request.Nodes {
		with(i, request.Nodes[i].Node)
	}
}
