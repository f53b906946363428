package path

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	networkv1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/network/v1alpha1"
)

const (
	// every is how often a small packet is sent, and whole how often packets and connections of all sizes are.
	every, whole = time.Second, 5 * time.Second
	// lost is after how many small packets in a row without an answer a path is down.
	lost = 2
	// window is of how many small packets loss and round trip times are told.
	window = 50
)

// sample is a small packet.
type sample struct {
	answered bool
	took     time.Duration
}

// target is a pod of another cluster that is probed. It is safe for concurrent use.
type target struct {
	// own is the address by which that pod sees this one.
	own, address netip.Addr
	now          func() time.Time

	mu      sync.Mutex
	samples []sample
	problem string // of the last packets and connections of all sizes
	known   bool   // these were sent once
	up      bool
	since   time.Time
}

func newTarget(own, address netip.Addr) *target {
	return &target{own: own, address: address, now: time.Now, since: time.Now()}
}

// run probes until ctx ends.
func (t *target) run(ctx context.Context) {
	clock := time.NewTicker(every)
	defer clock.Stop()
	var next time.Time
	for ctx.Err() == nil {
		began := time.Now()
		seen, err := AskUDP(netip.AddrPortFrom(t.address, Port), content(64))
		t.take(sample{answered: err == nil && seen == t.own, took: time.Since(began)})
		if time.Now().After(next) {
			t.takeWhole(t.tryAll(ctx))
			next = time.Now().Add(whole)
		}
		select {
		case <-ctx.Done():
		case <-clock.C:
		}
	}
}

func content(size int) []byte {
	b := make([]byte, size)
	_, _ = rand.Read(b)
	return b
}

// tryAll returns what does not work, in a sentence; empty: all does.
func (t *target) tryAll(ctx context.Context) string {
	for _, one := range tries() {
		if problem := try(ctx, one, t.own, t.address).Problem; problem != "" {
			return problem
		}
	}
	return ""
}

func (t *target) take(s sample) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.samples = append(t.samples, s)
	if len(t.samples) > window {
		t.samples = slices.Delete(t.samples, 0, len(t.samples)-window)
	}
	t.settle()
}

func (t *target) takeWhole(problem string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.problem, t.known = problem, true
	t.settle()
}

// settle finds out whether the path is up. The caller holds mu.
func (t *target) settle() {
	up := t.known && t.problem == "" && !t.silent()
	if up != t.up {
		t.up, t.since = up, t.now()
	}
}

// silent says that the last small packets were not answered.
func (t *target) silent() bool {
	if len(t.samples) < lost {
		return false
	}
	return !slices.ContainsFunc(t.samples[len(t.samples)-lost:], func(s sample) bool { return s.answered })
}

// status is what is known.
func (t *target) status() networkv1alpha1.PathStatus {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := networkv1alpha1.PathStatus{Address: t.address.String(), Up: t.up, Since: metav1.NewTime(t.since.Truncate(time.Second))}
	switch {
	case t.up:
	case t.problem != "":
		s.Message = t.problem
	case t.silent():
		by := ""
		if t.address.Is6() {
			by = " by IPv6"
		}
		s.Message = fmt.Sprintf("small UDP packets%s to pod %s are not answered", by, t.address)
	default:
		s.Message = "not probed yet"
	}
	var took []time.Duration
	for _, one := range t.samples {
		if one.answered {
			took = append(took, one.took)
		}
	}
	if len(t.samples) > 0 {
		s.LossPercent = int32(100 * (len(t.samples) - len(took)) / len(t.samples))
	}
	if slices.Sort(took); len(took) > 0 {
		s.RoundTripMicroseconds = took[len(took)/2].Microseconds()
	}
	return s
}
