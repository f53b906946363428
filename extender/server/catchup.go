package server

import (
	"context"
	"time"

	"k8s.io/klog/v2"

	"github.com/lodestone-storage/lodestone/extender/snapshot"
)

// recheck is how often a request that waits looks again.
const recheck = time.Millisecond

// catchUp waits until known says that the view has what kube-scheduler has seen,
// or until it has waited long enough. Both watch the same API server, and for a
// new claim kube-scheduler calls within milliseconds: an answer from before the
// claim would let its pod go anywhere, or hold it back for minutes.
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
			klog.FromContext(ctx).V(2).Info("Deciding without a claim, volume, storage class or node that is not known yet", "pod", klog.KRef(pod.Namespace, pod.Name))
			return
		case <-ctx.Done():
			return
		}
	}
}
