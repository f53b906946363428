package reflector

import (
	"context"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// secretWatches watches single Secrets of home by their names, so that nobody
// else's are read. It is safe for concurrent use.
type secretWatches struct {
	// ctx is that of watches, which begin whenever a Secret is needed.
	ctx     context.Context
	client  kubernetes.Interface
	changed func(namespace, name string)

	mu      sync.Mutex
	watches map[types.NamespacedName]*secretWatch
}

type secretWatch struct {
	cache.SharedIndexInformer
	stop context.CancelFunc

	mu     sync.Mutex
	failed error // of the last request
}

// newSecretWatches returns a secretWatches that calls changed whenever a Secret
// that is held may be different from before.
func newSecretWatches(ctx context.Context, client kubernetes.Interface, changed func(namespace, name string)) *secretWatches {
	return &secretWatches{ctx: ctx, client: client, changed: changed, watches: map[types.NamespacedName]*secretWatch{}}
}

// hold has a Secret watched from now on. It returns the Secret, nil if there is
// none, and whether that is known yet; err says why it cannot be read.
func (w *secretWatches) hold(namespace, name string) (secret *corev1.Secret, known bool, err error) {
	at := types.NamespacedName{Namespace: namespace, Name: name}
	w.mu.Lock()
	held, ok := w.watches[at]
	if !ok {
		held = w.start(at)
		w.watches[at] = held
	}
	w.mu.Unlock()
	if !held.HasSynced() {
		return nil, false, held.failure()
	}
	secret, _ = stored[*corev1.Secret](held, namespace, name)
	return secret, true, nil
}

// release ends the watch of a Secret.
func (w *secretWatches) release(namespace, name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	at := types.NamespacedName{Namespace: namespace, Name: name}
	if held, ok := w.watches[at]; ok {
		held.stop()
		delete(w.watches, at)
	}
}

// held returns the names of the Secrets of a namespace that are watched.
func (w *secretWatches) held(namespace string) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var names []string
	for at := range w.watches {
		if at.Namespace == namespace {
			names = append(names, at.Name)
		}
	}
	return names
}

func (w *secretWatches) start(at types.NamespacedName) *secretWatch {
	client := w.client.CoreV1().Secrets(at.Namespace)
	selector := fields.OneTermEqualSelector(metav1.ObjectNameField, at.Name).String()
	held := &secretWatch{}
	held.SharedIndexInformer = cache.NewSharedIndexInformer(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			options.FieldSelector = selector
			list, err := client.List(ctx, options)
			return list, w.note(at, held, err)
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			options.FieldSelector = selector
			watch, err := client.Watch(ctx, options)
			return watch, w.note(at, held, err)
		},
	}, &corev1.Secret{}, 0, cache.Indexers{})
	_ = held.SetTransform(slim)
	_, _ = held.AddEventHandler(handler(func(secret *corev1.Secret) { w.changed(secret.Namespace, secret.Name) }))
	ctx, stop := context.WithCancel(w.ctx)
	held.stop = stop
	go held.RunWithContext(ctx)
	go func() {
		select {
		case <-held.HasSyncedChecker().Done():
			w.changed(at.Namespace, at.Name)
		case <-ctx.Done():
		}
	}()
	return held
}

// note remembers how a request ended, and returns its error.
func (w *secretWatches) note(at types.NamespacedName, held *secretWatch, err error) error {
	held.mu.Lock()
	first := held.failed == nil && err != nil
	held.failed = err
	held.mu.Unlock()
	if first && w.ctx.Err() == nil {
		w.changed(at.Namespace, at.Name)
	}
	return err
}

func (h *secretWatch) failure() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.failed
}
