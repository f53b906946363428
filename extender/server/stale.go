package server

import (
	"fmt"
	"time"

	"github.com/lodestone-storage/lodestone/extender/explain"
	"github.com/lodestone-storage/lodestone/extender/snapshot"
)

func (s *Server) stalest() (kind string, age time.Duration) {
	if s.Stalest == nil {
		return "", 0
	}
	return s.Stalest()
}

// tooStale says what has been out of sight for too long; nil if nothing has.
func (s *Server) tooStale() error {
	kind, age := s.stalest()
	if age <= s.MaxStaleness {
		return nil
	}
	return fmt.Errorf("not ready: %s cannot be watched for %s, and calls are answered from what was known before: see that the API server is reachable and lets this program's ServiceAccount list and watch them; the log says why",
		kind, age.Truncate(time.Second))
}

// note keeps a decision for those who ask, and says how old the knowledge was that
// it was made from.
func (s *Server) note(pod snapshot.Pod, decision explain.Decision) {
	if _, age := s.stalest(); age >= time.Second {
		decision.Stale = age.Truncate(time.Second).String()
	}
	s.Journal.Add(pod, decision)
}
