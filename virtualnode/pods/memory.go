package pods

import (
	"sync"
	"time"
)

// tellAgain is how long the same message about a pod is not repeated.
const tellAgain = 5 * time.Minute

// memory is what is remembered of pods between steps. All of it may be lost at
// any moment: it only saves events, and says why something waits.
type memory struct {
	mu   *sync.Mutex
	pods map[key]remembered
}

type remembered struct {
	told    string
	at      time.Time
	problem string
}

func newMemory() memory { return memory{mu: &sync.Mutex{}, pods: map[key]remembered{}} }

// worthTelling says whether something is news for a pod.
func (m memory) worthTelling(k key, what string, now time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	pod := m.pods[k]
	if pod.told == what && now.Sub(pod.at) < tellAgain {
		return false
	}
	pod.told, pod.at = what, now
	m.pods[k] = pod
	return true
}

// setProblem keeps why the last request for a pod failed, empty for nothing.
func (m memory) setProblem(k key, problem string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	pod, ok := m.pods[k]
	if !ok && problem == "" {
		return
	}
	pod.problem = problem
	m.pods[k] = pod
}

func (m memory) problemOf(k key) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.pods[k].problem
}

func (m memory) forget(k key) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.pods, k)
}
