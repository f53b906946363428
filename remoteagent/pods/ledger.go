package pods

import (
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/remoteagent/policy"
	"github.com/lodestone-storage/lodestone/remoteagent/sources"
)

// ledger keeps the pods of a home cluster within its offer. Requests of pods that several workers
// are about to create count before the informer shows the pods. It is safe for concurrent use.
type ledger struct {
	sources *sources.Sources

	mu       sync.Mutex
	reserved map[types.NamespacedName]reservation
}

// reservation is what a pod requests that the informer does not show yet, or does not show resized.
type reservation struct {
	home     string
	requests corev1.ResourceList
	// resized says that the pod exists, and that requests are those after it was resized.
	resized bool
}

func newLedger(from *sources.Sources) *ledger {
	return &ledger{sources: from, reserved: map[types.NamespacedName]reservation{}}
}

// admit says why the pod of a ShadowPod would exceed the offer. If it would not, admit returns nil
// and reserves the pod's requests until the informer shows the pod or forget is called.
func (l *ledger) admit(home *remotev1alpha1.HomeCluster, shadow *remotev1alpha1.ShadowPod) *policy.Refusal {
	if home == nil || len(home.Spec.Offer) == 0 {
		return nil
	}
	key := keyOf(shadow)
	l.mu.Lock()
	defer l.mu.Unlock()
	if known, ok := l.reserved[key]; ok && !known.resized {
		return nil
	}
	return l.reserve(home, key, reservation{requests: policy.Requests(shadow.Spec.Pod.Spec)})
}

// admitActual is admit for the pod as the cluster would create it: limit ranges and runtime classes
// add to the requests of its template.
func (l *ledger) admitActual(home *remotev1alpha1.HomeCluster, pod *corev1.Pod) *policy.Refusal {
	key, requests := keyOf(pod), policy.Requests(pod.Spec)
	l.mu.Lock()
	defer l.mu.Unlock()
	if known, ok := l.reserved[key]; ok && !known.resized && known.home == home.Name && equality.Semantic.DeepEqual(known.requests, requests) {
		// Whatever was admitted since counts it.
		return nil
	}
	return l.reserve(home, key, reservation{requests: requests})
}

// admitGrowth says why a pod that is about to be resized to what pod says would exceed the offer. If it
// would not, admitGrowth returns nil, and that counts until the informer shows it.
func (l *ledger) admitGrowth(home *remotev1alpha1.HomeCluster, pod *corev1.Pod) *policy.Refusal {
	if home == nil || len(home.Spec.Offer) == 0 {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.reserve(home, keyOf(pod), reservation{requests: policy.Requests(pod.Spec), resized: true})
}

// forgetGrowth drops what admitGrowth has admitted.
func (l *ledger) forgetGrowth(key types.NamespacedName) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.reserved[key].resized {
		delete(l.reserved, key)
	}
}

// reserve reserves requests within the offer. The caller holds the lock.
func (l *ledger) reserve(home *remotev1alpha1.HomeCluster, key types.NamespacedName, wanted reservation) *policy.Refusal {
	if refusal := policy.Within(home, l.used(home.Name, key), wanted.requests); refusal != nil {
		return refusal
	}
	wanted.home = home.Name
	l.reserved[key] = wanted
	return nil
}

// used returns what the other pods of a home cluster request. It drops the reservations for pods
// that the informer shows by now.
func (l *ledger) used(home string, but types.NamespacedName) corev1.ResourceList {
	times := map[sources.Requests]int64{}
	var resized []corev1.ResourceList
	for pod := range l.sources.PodsOf(home) {
		key := pod.Key()
		known := l.reserved[key]
		if !known.resized {
			delete(l.reserved, key)
		}
		if key == but || pod.Ended {
			continue
		}
		if known.resized {
			resized = append(resized, l.requests(pod))
		} else {
			times[pod.Counted]++
		}
	}
	sum := sources.Sum(times)
	for _, requests := range resized {
		policy.AddRequests(sum, requests)
	}
	for key, p := range l.reserved {
		if !p.resized && p.home == home && key != but {
			policy.AddRequests(sum, p.requests)
		}
	}
	return sum
}

// requests returns what a pod that was resized requests, or will once the informer shows that. The caller
// holds the lock.
func (l *ledger) requests(pod *sources.Pod) corev1.ResourceList {
	now := pod.Counted.List()
	shown := true
	for name, quantity := range l.reserved[pod.Key()].requests {
		if have := now[name]; have.Cmp(quantity) < 0 {
			now[name], shown = quantity, false
		}
	}
	if shown {
		delete(l.reserved, pod.Key())
	}
	return now
}

// forget drops a reservation.
func (l *ledger) forget(key types.NamespacedName) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.reserved, key)
}
