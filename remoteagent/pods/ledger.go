package pods

import (
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/remoteagent/policy"
	"github.com/lodestone-storage/lodestone/remoteagent/sources"
)

// ledger keeps the pods of a home cluster within its offer: what several workers
// are about to make counts before it is seen. It is safe for concurrent use.
type ledger struct {
	sources *sources.Sources

	mu       sync.Mutex
	promised map[types.NamespacedName]promise
}

type promise struct {
	home     string
	requests corev1.ResourceList
}

func newLedger(from *sources.Sources) *ledger {
	return &ledger{sources: from, promised: map[types.NamespacedName]promise{}}
}

// admit says why the pod of a ShadowPod would go beyond the offer. Otherwise its
// requests are promised until it is seen or forgotten.
func (l *ledger) admit(home *remotev1alpha1.HomeCluster, shadow *remotev1alpha1.ShadowPod) *policy.Refusal {
	if home == nil || len(home.Spec.Offer) == 0 {
		return nil
	}
	key := keyOf(shadow)
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, ok := l.promised[key]; ok {
		return nil
	}
	return l.promise(home, key, policy.Requests(shadow.Spec.Pod.Spec))
}

// correct is admit with what the cluster would make of the pod: limit ranges and
// runtime classes add to what its template requests.
func (l *ledger) correct(home *remotev1alpha1.HomeCluster, pod *corev1.Pod) *policy.Refusal {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.promise(home, keyOf(pod), policy.Requests(pod.Spec))
}

// promise promises requests within the offer, for who holds the lock.
func (l *ledger) promise(home *remotev1alpha1.HomeCluster, key types.NamespacedName, requests corev1.ResourceList) *policy.Refusal {
	if refusal := policy.Within(home, l.used(home.Name, key), requests); refusal != nil {
		return refusal
	}
	l.promised[key] = promise{home: home.Name, requests: requests}
	return nil
}

// used returns what the other pods of a home cluster request. Promises of pods
// that are seen by now are kept no longer.
func (l *ledger) used(home string, but types.NamespacedName) corev1.ResourceList {
	sum := corev1.ResourceList{}
	for _, pod := range sources.All[corev1.Pod](l.sources.Pods) {
		if pod.Labels[keys.HomeID] != home {
			continue
		}
		delete(l.promised, keyOf(pod))
		if keyOf(pod) != but && !policy.Ended(pod) {
			policy.AddRequests(sum, policy.Requests(pod.Spec))
		}
	}
	for key, p := range l.promised {
		if p.home == home && key != but {
			policy.AddRequests(sum, p.requests)
		}
	}
	return sum
}

// forget takes a promise back.
func (l *ledger) forget(key types.NamespacedName) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.promised, key)
}
