package pods

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/klog/v2"
)

// pokes ends pauses early. The zero value is ready to use.
type pokes struct {
	mu   sync.Mutex
	next chan struct{}
}

// poke has everything that pauses try again at once.
func (p *pokes) poke() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.next != nil {
		close(p.next)
		p.next = nil
	}
}

func (p *pokes) poked() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.next == nil {
		p.next = make(chan struct{})
	}
	return p.next
}

// retry repeats what fails, with pauses that grow and can be ended early. An
// informer's own pauses grow to a minute, which is long for a cluster that is
// back.
type retry struct {
	pokes *pokes
}

func newRetry(p *pokes) retry { return retry{pokes: p} }

// until repeats do until it succeeds, fails in a way that the caller must know,
// or ctx ends.
func (r retry) until(ctx context.Context, do func(context.Context) error) error {
	return r.repeat(ctx, do, again)
}

// always repeats do, however it fails, until it succeeds or ctx ends.
func (r retry) always(ctx context.Context, do func(context.Context) error) error {
	return r.repeat(ctx, do, func(error) bool { return true })
}

func (r retry) repeat(ctx context.Context, do func(context.Context) error, again func(error) bool) error {
	for pause := minBackoff * 10; ; pause = min(2*pause, maxBackoff) {
		poked := r.pokes.poked()
		err := do(ctx)
		if err == nil || !again(err) {
			return err
		}
		klog.FromContext(ctx).V(3).Info("Request will be tried again", "err", err)
		timer := time.NewTimer(pause/2 + rand.N(pause/2))
		select {
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		case <-poked:
			timer.Stop()
			pause = minBackoff * 5
		case <-timer.C:
		}
	}
}

// again says whether an error may pass by itself. The others are for the
// informer: it must list anew, or ask in another way.
func again(err error) bool {
	return !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) && !apierrors.IsInvalid(err) &&
		!apierrors.IsBadRequest(err) && !apierrors.IsTooManyRequests(err)
}

// source is what an informer needs of a typed client.
type source[L runtime.Object] interface {
	List(ctx context.Context, options metav1.ListOptions) (L, error)
	Watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error)
}

// patient is a source whose requests are repeated until they succeed.
type patient[L runtime.Object] struct {
	source[L]
	retry retry
}

func (p patient[L]) List(ctx context.Context, options metav1.ListOptions) (list L, err error) {
	err = p.retry.until(ctx, func(ctx context.Context) error {
		list, err = p.source.List(ctx, options)
		return err
	})
	return list, err
}

func (p patient[L]) Watch(ctx context.Context, options metav1.ListOptions) (stream watch.Interface, err error) {
	err = p.retry.until(ctx, func(ctx context.Context) error {
		stream, err = p.source.Watch(ctx, options)
		return err
	})
	return stream, err
}
