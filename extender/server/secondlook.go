package server

import (
	"context"
	"time"

	"github.com/lodestone-storage/lodestone/extender/filter"
)

// A change that ends a refusal wakes the pod in kube-scheduler, which may see it
// some milliseconds before this program does. Nothing else might wake the pod for
// minutes, so where one change can make the difference a refusal of all nodes is
// looked at twice. kube-scheduler places one pod after another: what is spent on
// that is a small share of its time, however many pods are refused.
const (
	secondLookAfter = 20 * time.Millisecond
	secondLookEvery = 250 * time.Millisecond
)

// doubtful says whether all nodes are refused, for these reasons, and one change may end that.
func doubtful(counts map[filter.Reason]int, nodes int) bool {
	refused, one := 0, false
	for reason, count := range counts {
		refused += count
		one = one || reason == filter.AttachLimit || reason == filter.VolumeMoving || reason == filter.SourceNotBound || reason == filter.SnapshotNotReady
	}
	return one && refused == nodes
}

// pause waits until it is time for a second look; false if there is none to be.
func (s *Server) pause(ctx context.Context) bool {
	now, last := s.Now().UnixNano(), s.paused.Load()
	if now-last < int64(secondLookEvery) || !s.paused.CompareAndSwap(last, now) {
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
