package pods

import (
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
)

type shadowPod = remotev1alpha1.ShadowPod

// latest holds objects as this program last wrote or read them, by the UID of
// their home pod. Until the informers show them, observing would repeat a write.
type latest[T metav1.Object] struct {
	mu      *sync.Mutex
	objects map[types.UID]entry[T]
}

type entry[T metav1.Object] struct {
	object T
	at     time.Time
}

func newLatest[T metav1.Object]() latest[T] {
	return latest[T]{mu: &sync.Mutex{}, objects: map[types.UID]entry[T]{}}
}

func (l latest[T]) set(pod types.UID, object T) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.objects[pod] = entry[T]{object: object, at: time.Now()}
}

func (l latest[T]) drop(pod types.UID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.objects, pod)
}

// newer returns the newer of what is seen and what was written.
func (l latest[T]) newer(pod types.UID, seen T) T {
	l.mu.Lock()
	defer l.mu.Unlock()
	last, ok := l.objects[pod]
	if !ok {
		return seen
	}
	if last.object.GetUID() == seen.GetUID() && older(seen, last.object) {
		return last.object
	}
	delete(l.objects, pod)
	return seen
}

// older says whether a is an older state than b of the same object.
func older(a, b metav1.Object) bool {
	order, err := resourceversion.CompareResourceVersion(a.GetResourceVersion(), b.GetResourceVersion())
	return err == nil && order < 0
}

// shadowWrites are the ShadowPods as last written or read.
type shadowWrites struct {
	latest[*shadowPod]
	// buried are the ShadowPods that were seen to be deleted a moment ago: the
	// answer to a request may come after that.
	buried map[types.UID]time.Time
}

func newShadowWrites() shadowWrites {
	return shadowWrites{latest: newLatest[*shadowPod](), buried: map[types.UID]time.Time{}}
}

func (w shadowWrites) set(pod types.UID, shadow *shadowPod) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, gone := w.buried[shadow.UID]; !gone {
		w.objects[pod] = entry[*shadowPod]{object: shadow, at: time.Now()}
	}
}

// of returns the ShadowPod of a home pod: the newer of what is seen, nil for
// none, and what was written a moment ago.
func (w shadowWrites) of(pod types.UID, seen *shadowPod) *shadowPod {
	if seen != nil {
		return w.newer(pod, seen)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	last, ok := w.objects[pod]
	if !ok {
		return nil
	}
	if time.Since(last.at) > safetyNet {
		// Created and gone again before it was seen, or the watch is late.
		delete(w.objects, pod)
		return nil
	}
	return last.object
}

// gone forgets a ShadowPod that was seen to be deleted.
func (w shadowWrites) gone(pod, shadow types.UID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if last, ok := w.objects[pod]; ok && last.object.UID == shadow {
		delete(w.objects, pod)
	}
	for uid, at := range w.buried {
		if time.Since(at) > 2*requestTimeout {
			delete(w.buried, uid)
		}
	}
	w.buried[shadow] = time.Now()
}
