package pods

import (
	"maps"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/controller"
	"github.com/lodestone-storage/lodestone/remoteagent/policy"
	"github.com/lodestone-storage/lodestone/remoteagent/sources"
)

// ledger keeps the pods of a home cluster within its offer. Requests of pods that several workers
// are about to create count before the informer shows the pods. It is safe for concurrent use.
type ledger struct {
	mu sync.Mutex
	// shown are the pods of home clusters that the informer has shown, and that have not ended.
	shown map[types.NamespacedName]*sources.Pod
	// times has, by home cluster, how many of those request the same: a pod is not counted against
	// each other one.
	times map[string]map[sources.Requests]int64
	// reserved are few, which are all looked at whenever a pod is admitted; shown are many.
	reserved map[types.NamespacedName]reservation
}

// reservation is what a pod requests that the informer does not show yet, or does not show resized.
type reservation struct {
	home     string
	requests corev1.ResourceList
	// resized says that the pod exists, and that requests are those after it was resized.
	resized bool
}

func newLedger() *ledger {
	return &ledger{shown: map[types.NamespacedName]*sources.Pod{}, times: map[string]map[sources.Requests]int64{},
		reserved: map[types.NamespacedName]reservation{}}
}

// podChanged takes what the informer shows of a pod: what was reserved for that is dropped.
func (l *ledger) podChanged(was, now *sources.Pod) {
	key := controller.Either(was, now).Key()
	l.mu.Lock()
	defer l.mu.Unlock()
	if before := l.shown[key]; before != nil {
		l.count(before, -1)
		delete(l.shown, key)
	}
	if now == nil {
		if l.reserved[key].resized {
			delete(l.reserved, key)
		}
		return
	}
	if r, ok := l.reserved[key]; ok && now.Home != "" && (!r.resized || covers(now.Counted.List(), r.requests)) {
		delete(l.reserved, key)
	}
	if now.Home != "" && !now.Ended {
		l.shown[key] = now
		l.count(now, 1)
	}
}

// count adds to how many pods request what a pod does. The caller holds the lock.
func (l *ledger) count(pod *sources.Pod, n int64) {
	times := l.times[pod.Home]
	if times == nil {
		times = map[sources.Requests]int64{}
		l.times[pod.Home] = times
	}
	if times[pod.Counted] += n; times[pod.Counted] == 0 {
		delete(times, pod.Counted)
	}
	if len(times) == 0 {
		delete(l.times, pod.Home)
	}
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

// used returns what the other pods of a home cluster request. The caller holds the lock.
func (l *ledger) used(home string, but types.NamespacedName) corev1.ResourceList {
	times := maps.Clone(l.times[home])
	if pod := l.shown[but]; pod != nil && pod.Home == home {
		times[pod.Counted]--
	}
	reserved := corev1.ResourceList{}
	for key, r := range l.reserved {
		pod := l.shown[key]
		switch {
		case key == but || r.home != home:
		case !r.resized:
			policy.AddRequests(reserved, r.requests)
		case pod != nil:
			times[pod.Counted]--
			policy.AddRequests(reserved, larger(pod.Counted.List(), r.requests))
		}
	}
	sum := sources.Sum(times)
	policy.AddRequests(sum, reserved)
	return sum
}

// covers says whether requests are at least others, of each resource that these name.
func covers(requests, others corev1.ResourceList) bool {
	for name, quantity := range others {
		if have := requests[name]; have.Cmp(quantity) < 0 {
			return false
		}
	}
	return true
}

// larger returns the larger ones of two requests. It changes the first ones.
func larger(requests, others corev1.ResourceList) corev1.ResourceList {
	for name, quantity := range others {
		if have := requests[name]; have.Cmp(quantity) < 0 {
			requests[name] = quantity
		}
	}
	return requests
}

// forget drops a reservation.
func (l *ledger) forget(key types.NamespacedName) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.reserved, key)
}
