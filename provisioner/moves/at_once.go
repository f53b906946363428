package moves

import (
	"slices"
	"sync"
)

// together is how many requests one look at a move makes at a time, at most.
const together = 16

// atOnce calls functions at the same time, and returns once all have returned; the error
// is that of the first of them that has one.
func atOnce(calls []func() error) error {
	errs, slots := make([]error, len(calls)), make(chan struct{}, together)
	var running sync.WaitGroup
	for i, call := range calls {
		slots <- struct{}{}
		running.Go(func() {
			defer func() { <-slots }()
			errs[i] = call()
		})
	}
	running.Wait()
	if i := slices.IndexFunc(errs, func(err error) bool { return err != nil }); i >= 0 {
		return errs[i]
	}
	return nil
}
