package server

import (
	"context"

	"github.com/lodestone-storage/lodestone/extender/explain"
	"github.com/lodestone-storage/lodestone/extender/metrics"
	"github.com/lodestone-storage/lodestone/extender/score"
	"github.com/lodestone-storage/lodestone/extender/snapshot"
	"github.com/lodestone-storage/lodestone/extender/wire"
)

// prioritize scores the candidates by what draws the pod to their clusters.
func (s *Server) prioritize(_ context.Context, buffer []byte, request wire.Request) []byte {
	scale, clusters := s.weigh(request)
	if len(scale) == 0 {
		s.Metrics.Decided(prioritizeVerb, metrics.Passed)
		return wire.AppendNoPriorities(buffer)
	}
	s.Metrics.Decided(prioritizeVerb, metrics.Scored)
	return wire.AppendPriorities(buffer, request, func(i int) int64 { return scale.Of(clusters[i]) })
}

// weigh returns the marks of the candidate clusters, none if no node is to be
// preferred, and the cluster of each candidate. It keeps the marks for those who
// ask.
func (s *Server) weigh(request wire.Request) (scale score.Scale, clusters []string) {
	gravity := score.NewGravity(s.View, request.Pod)
	if gravity.None() {
		return nil, nil
	}
	clusters = make([]string, len(request.Names))
	s.eachNode(&request, func(i int, node snapshot.Node) { clusters[i] = node.Cluster })
	if scale = gravity.Scale(clusters); len(scale) > 0 {
		s.note(request.Pod, explain.Decision{
			Time: s.Now(), Verb: prioritizeVerb, Claims: explain.Claims(request.Pod, gravity.Claims()), Scores: explain.Scores(scale),
		})
	}
	return scale, clusters
}
