package kubelet

import (
	"crypto/sha256"
	"sync"
	"time"
)

const (
	// maxStrangers is how many requests with tokens are judged at once.
	maxStrangers = 64
	// answerAge is how long it is believed whose a token is, or that it is nobody's;
	// maxAnswers bounds how many such answers are kept.
	answerAge  = 10 * time.Second
	maxAnswers = 1024
)

// answer says whose a token is: user, or err if it is nobody's.
type answer struct {
	user *user
	err  error
	till time.Time
}

// answers are the home cluster's answers on tokens of the last seconds, by the
// hash of the token, so that no tokens are kept. It is safe for concurrent use.
type answers struct {
	mu    sync.Mutex
	known map[[sha256.Size]byte]answer
}

func newAnswers() *answers { return &answers{known: map[[sha256.Size]byte]answer{}} }

// get returns the answer on a token; false if there is none that is still believed.
func (a *answers) get(token string, now time.Time) (answer, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	found, ok := a.known[sha256.Sum256([]byte(token))]
	return found, ok && now.Before(found.till)
}

// set keeps an answer. Where there are too many, another goes: first one that is
// old, then one on a token that is nobody's, so that no flood of those drives out
// the others.
func (a *answers) set(token string, is answer, now time.Time) {
	is.till = now.Add(answerAge)
	a.mu.Lock()
	defer a.mu.Unlock()
	key := sha256.Sum256([]byte(token))
	if _, ok := a.known[key]; !ok && len(a.known) >= maxAnswers {
		delete(a.known, a.worst(now))
	}
	a.known[key] = is
}

func (a *answers) worst(now time.Time) (worst [sha256.Size]byte) {
	found, nobodys := false, false
	for key, known := range a.known {
		switch {
		case !now.Before(known.till):
			return key
		case !found || (known.err != nil && !nobodys):
			worst, found, nobodys = key, true, known.err != nil
		}
	}
	return worst
}
