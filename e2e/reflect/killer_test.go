package reflect

import (
	"errors"
	"net/http"
	"sync"
)

// killer lets through a number of writes, and then nothing any more, as if the
// program had been killed. The last one reaches the API server if answerLost is
// set, but its answer reaches nobody.
type killer struct {
	answerLost bool
	died       chan struct{}

	mu   sync.Mutex
	left int
}

func newKiller(writes int, answerLost bool) *killer {
	return &killer{answerLost: answerLost, died: make(chan struct{}), left: writes}
}

var errKilled = errors.New("killed")

// wrap puts the killer around what goes to west.
func (k *killer) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(request *http.Request) (*http.Response, error) {
		alive, last := k.step(request.Method != http.MethodGet)
		if alive {
			return next.RoundTrip(request)
		}
		if last && k.answerLost {
			if response, err := next.RoundTrip(request); err == nil {
				_ = response.Body.Close()
			}
		}
		if last {
			close(k.died)
		}
		return nil, errKilled
	})
}

func (k *killer) step(write bool) (alive, last bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.left < 0 {
		return false, false
	}
	if !write {
		return true, false
	}
	k.left--
	return k.left >= 0, k.left < 0
}

type roundTripper func(*http.Request) (*http.Response, error)

func (r roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return r(request) }
