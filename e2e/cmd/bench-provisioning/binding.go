package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// patience is how long a burst may take.
const patience = 20 * time.Minute

// binding tells when claims were bound, by watching them.
type binding struct {
	mu     sync.Mutex
	began  map[string]time.Time
	took   map[string]time.Duration
	change chan struct{}
}

func watchBinding(ctx context.Context, client kubernetes.Interface) (*binding, error) {
	b := &binding{began: map[string]time.Time{}, took: map[string]time.Duration{}, change: make(chan struct{}, 1)}
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(namespace))
	informer := factory.Core().V1().PersistentVolumeClaims().Informer()
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{UpdateFunc: func(_, obj any) {
		if claim, ok := obj.(*corev1.PersistentVolumeClaim); ok && claim.Status.Phase == corev1.ClaimBound {
			b.bound(claim.Name)
		}
	}}); err != nil {
		return nil, fmt.Errorf("watch claims: %w", err)
	}
	factory.StartWithContext(ctx)
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		return nil, errors.New("watch claims: stopped")
	}
	return b, nil
}

func (b *binding) begin(name string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.began[name] = time.Now()
}

func (b *binding) bound(name string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	began, ok := b.began[name]
	if _, done := b.took[name]; !ok || done {
		return
	}
	b.took[name] = time.Since(began)
	select {
	case b.change <- struct{}{}:
	default:
	}
}

// await waits until all claims of the given names are bound and returns how long
// each took.
func (b *binding) await(ctx context.Context, names []string) ([]time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		if took := b.all(names); took != nil {
			return took, nil
		}
		select {
		case <-b.change:
		case <-ctx.Done():
			return nil, fmt.Errorf("wait until %d claims are bound: %w", len(names), context.Cause(ctx))
		}
	}
}

func (b *binding) all(names []string) []time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	took := make([]time.Duration, 0, len(names))
	for _, name := range names {
		one, ok := b.took[name]
		if !ok {
			return nil
		}
		took = append(took, one)
	}
	return took
}
