package flow

import (
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/clusters"
)

// virtualClaim stands for the virtual claim itself, in the place of a cluster.
const virtualClaim = ""

// written are the claims, backing and virtual, as this program last wrote them.
// Until the informers show a write, observing would repeat it, or act on what was
// before.
type written struct {
	mu     sync.Mutex
	claims map[place]write
}

type place struct {
	claim   types.UID
	cluster string
}

type write struct {
	result *corev1.PersistentVolumeClaim
	// created is true while all writes since the claim was created were made without
	// having seen it in between.
	created bool
	at      time.Time
}

// set keeps the result of a write over what was seen, nil for nothing. What a
// remote cluster says of another claim than that one is not kept.
func (w *written) set(claim types.UID, cluster string, seen, result *corev1.PersistentVolumeClaim) {
	if cluster != keys.Home {
		if seen != nil && (result.UID != seen.UID || result.Namespace != seen.Namespace || result.Name != seen.Name) {
			return
		}
		if trusted, err := clusters.Trusted(result); err == nil {
			result, _ = trusted.(*corev1.PersistentVolumeClaim)
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	last, ok := w.claims[place{claim, cluster}]
	// What was seen may itself be what was written before.
	created := seen == nil || ok && last.created && last.result.UID == seen.UID && last.result.ResourceVersion == seen.ResourceVersion
	w.claims[place{claim, cluster}] = write{result: result, created: created, at: time.Now()}
}

// drop forgets a write, as when the backing claim was deleted since.
func (w *written) drop(claim types.UID, cluster string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.claims, place{claim, cluster})
}

// latest returns the newer of what is seen and what was written.
func (w *written) latest(claim types.UID, cluster string, seen *corev1.PersistentVolumeClaim, now time.Time) *corev1.PersistentVolumeClaim {
	w.mu.Lock()
	defer w.mu.Unlock()
	last, ok := w.claims[place{claim, cluster}]
	if !ok {
		return seen
	}
	behind := seen == nil && last.created
	if seen != nil && seen.UID == last.result.UID {
		order, err := resourceversion.CompareResourceVersion(seen.ResourceVersion, last.result.ResourceVersion)
		behind = err == nil && order < 0
	}
	if behind && now.Sub(last.at) < safetyNet {
		return last.result
	}
	delete(w.claims, place{claim, cluster})
	return seen
}
