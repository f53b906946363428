package server

import (
	"context"
	"time"

	"k8s.io/klog/v2"

	"github.com/lodestone-storage/lodestone/extender/explain"
	"github.com/lodestone-storage/lodestone/extender/filter"
	"github.com/lodestone-storage/lodestone/extender/metrics"
	"github.com/lodestone-storage/lodestone/extender/score"
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

// preempt drops the candidates that filter would refuse. kube-scheduler does not ask extenders when
// it simulates an eviction: without this, pods would be evicted for a pod that cannot run there.
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

// eachNode calls with for each candidate: with the node as the request describes it if it does,
// else as the view has it.
func (s *Server) eachNode(request *wire.Request, with func(i int, node snapshot.Node)) {
	if !request.NodeMode {
		s.View.EachNode(request.Names, with)
		return
	}
	for i := range request.Nodes {
		with(i, request.Nodes[i].Node)
	}
}

// judgement is the result of filter for one pod.
type judgement struct {
	at   time.Time
	plan *filter.Plan
	// reasons has one reason for each node; it is nil if no rule applies to the pod.
	reasons []filter.Reason
	tally   explain.Tally
}

// candidates calls with for each node to judge.
type candidates func(with func(i int, node snapshot.Node))

// judge judges the nodes 0 to nodes-1 for a pod, once the view is as new as kube-scheduler's, and
// stores the decision in the Journal. It returns a function with the sentence for each node, empty
// for one that is not refused, nil if all are kept, and how many nodes each reason refused.
func (s *Server) judge(ctx context.Context, verb string, pod snapshot.Pod, nodes int, each candidates) (refusal func(i int) string,
	counts map[filter.Reason]int) {
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
	if worthSecondLook(counts, nodes) && s.waitForSecondLook(ctx) {
		again()
	}
	// A pod without claims of ours is stored only if it is refused now or was before: otherwise the
	// Journal would still show the earlier refusal.
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

// accept counts all nodes as accepted, if no rule applies to the pod.
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

// recheck is how often a waiting request checks the view again.
const recheck = time.Millisecond

// catchUp waits until known reports that the view has what kube-scheduler has seen, or until
// Patience is over. Both watch the same API server, and for a new claim kube-scheduler calls within
// milliseconds: an answer from a view without the claim would let its pod go anywhere, or delay it
// for minutes.
func (s *Server) catchUp(ctx context.Context, pod snapshot.Pod, known func() bool) {
	if known() {
		return
	}
	deadline := time.NewTimer(s.Patience)
	defer deadline.Stop()
	again := time.NewTicker(recheck)
	defer again.Stop()
	for {
		select {
		case <-again.C:
			if known() {
				s.Metrics.CaughtUp()
				return
			}
		case <-deadline.C:
			s.Metrics.GaveUp()
			klog.FromContext(ctx).V(2).Info("Deciding without a claim, volume, storage class or node that is not known yet", "pod",
				klog.KRef(pod.Namespace, pod.Name))
			return
		case <-ctx.Done():
			return
		}
	}
}

// A change that ends a refusal makes kube-scheduler try the pod again, often some milliseconds
// before this program gets the change. The next attempt might come only minutes later. So if all
// nodes are refused and one change could end that, the nodes are judged twice. kube-scheduler
// places one pod after another; the limits below keep the time for this a small share, however many
// pods are refused.
const (
	secondLookAfter = 20 * time.Millisecond
	secondLookEvery = 250 * time.Millisecond
)

// worthSecondLook reports whether all nodes are refused, for these reasons, and one change may end
// that.
func worthSecondLook(counts map[filter.Reason]int, nodes int) bool {
	refused, one := 0, false
	for reason, count := range counts {
		refused += count
		one = one || reason == filter.AttachLimit || reason == filter.VolumeMoving || reason == filter.SourceNotBound ||
			reason == filter.SnapshotNotReady || reason == filter.ClaimStaysHome
	}
	return one && refused == nodes
}

// waitForSecondLook waits until it is time to judge again; false if the nodes must not be judged
// again.
func (s *Server) waitForSecondLook(ctx context.Context) bool {
	now, last := s.Now().UnixNano(), s.lastSecondLook.Load()
	if now-last < int64(secondLookEvery) || !s.lastSecondLook.CompareAndSwap(last, now) {
		return false
	}
	timer := time.NewTimer(secondLookAfter)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// prioritize scores the candidates by what attracts the pod to their clusters.
func (s *Server) prioritize(_ context.Context, buffer []byte, request wire.Request) []byte {
	scale, clusters := s.weigh(request)
	if len(scale) == 0 {
		s.Metrics.Decided(prioritizeVerb, metrics.Passed)
		return wire.AppendNoPriorities(buffer)
	}
	s.Metrics.Decided(prioritizeVerb, metrics.Scored)
	return wire.AppendPriorities(buffer, request, func(i int) int64 { return scale.Of(clusters[i]) })
}

// weigh returns the marks of the candidate clusters, none if no node is preferred, and the cluster
// of each candidate. It stores the decision in the Journal.
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

// note stores a decision in the Journal, with the age of the data that it was made from.
func (s *Server) note(pod snapshot.Pod, decision explain.Decision) {
	if _, age := s.stalest(); age >= time.Second {
		decision.Stale = age.Truncate(time.Second).String()
	}
	s.Journal.Add(pod, decision)
}
