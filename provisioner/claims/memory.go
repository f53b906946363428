package claims

import (
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/sentence"
	"github.com/lodestone-storage/lodestone/provisioner/claims/steps"
	"github.com/lodestone-storage/lodestone/provisioner/remote"
)

// memory is the state of claims between steps. All of it may be lost at any time: it only
// saves requests, events and waiting. It is safe for concurrent use.
type memory struct {
	mu     sync.Mutex
	claims map[types.UID]*remembered
}

// remembered is the state of one claim. There may be many claims, and most of their fields
// are empty.
type remembered struct {
	facts
	// owners are the keys of the virtual claim according to the labels of its backing
	// claims: all that is left once the virtual claim is gone. If they differ, at most one
	// is true and the others are forged.
	owners []types.NamespacedName
	// moved are the names of backing claims that moves created.
	moved []string
	// written are the results of this process's last writes, by cluster: of backing claims,
	// and of the virtual claim under virtualClaim. Until the informers show a write,
	// observing without them would repeat it or act on the earlier state.
	written map[string]write
}

// facts is comparable: what a pointer points to is replaced, never changed.
type facts struct {
	// unsent: no request for a backing claim has left this process. gone: backing claim and
	// real volume are gone. orphan: only a backing claim is left.
	unsent, gone, orphan bool
	// change is the change for which the claim must still be written, so that its pods are
	// retried.
	change *change
	// selected is when the claim was first observed with a node, synced when labels and
	// annotations of its backing claim were last written.
	selected, synced *time.Time
	// lastEvent is the claim's last event.
	lastEvent *noted
	// lasting has the conditions of which the duration matters, each with the time it
	// began.
	lasting [lastings]*noted

	refusedSize       *refusedSize
	refusedAttributes *steps.RefusedAttributes
	lastWarning       *lastWarning
	budget            *budget
}

// noted is a text and the time since when it holds.
type noted struct {
	what string
	when time.Time
}

// The indexes of facts.lasting.
const (
	backingMissed = iota
	backingAwaited
	clusterAway
	pendingCondition
	lastings
)

// change is a change for which the pods of a claim must be retried, not before due, and once more later.
type change struct {
	what string
	due  time.Time
	// last: the pods were retried once already.
	last bool
}

func newMemory() memory { return memory{claims: map[types.UID]*remembered{}} }

// of returns the state of a claim. The caller must not change it.
func (m *memory) of(claim types.UID) remembered {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r := m.claims[claim]; r != nil {
		return *r
	}
	return remembered{}
}

// update changes the state of a claim.
func (m *memory) update(claim types.UID, change func(*remembered)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.claims[claim]
	if r == nil {
		r = &remembered{}
	}
	change(r)
	if r.facts == (facts{}) && r.owners == nil && r.moved == nil && len(r.written) == 0 {
		delete(m.claims, claim)
		return
	}
	m.claims[claim] = r
}

func (m *memory) forget(claim types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.claims, claim)
}

// settled drops the state that matters only until a claim has its volume.
func (m *memory) settled(claim types.UID) {
	m.update(claim, func(r *remembered) { r.unsent, r.selected = false, nil })
}

func (m *memory) setUnsent(claim types.UID, unsent bool) {
	m.update(claim, func(r *remembered) { r.unsent = unsent })
}

// setChange records a change for which the pods of a claim must be retried, not before due.
func (m *memory) setChange(claim types.UID, what string, due time.Time) {
	m.update(claim, func(r *remembered) { r.change = &change{what: what, due: due} })
}

// retryAgain is when pods are retried for the second time: an extender on a busy machine may not have seen the change before the
// first, and kube-scheduler would then set them aside until something else changes.
const retryAgain = 10 * time.Second

// retried records that the pods of a claim are retried for the change that is due by now.
func (m *memory) retried(claim types.UID, now time.Time) {
	m.update(claim, func(r *remembered) {
		switch {
		case r.change == nil || now.Before(r.change.due):
		case r.change.last:
			r.change = nil
		default:
			r.change = &change{what: r.change.what, due: now.Add(retryAgain), last: true}
		}
	})
}

// dueIn returns after what time the change is due; 0 if it is due or there is none.
func (f facts) dueIn(now time.Time) time.Duration {
	if f.change == nil {
		return 0
	}
	return max(0, f.change.due.Sub(now))
}

// changed returns the change that is due; empty for none.
func (f facts) changed(now time.Time) string {
	if f.change == nil || now.Before(f.change.due) {
		return ""
	}
	return f.change.what
}

// selectedAt returns when a claim was first observed with a selected node.
func (m *memory) selectedAt(claim types.UID, now time.Time) (at time.Time) {
	m.update(claim, func(r *remembered) {
		if r.selected == nil {
			r.selected = &now
		}
		at = *r.selected
	})
	return at
}

// syncedAt is when labels and annotations were last written on the backing claim; zero if
// never.
func (f facts) syncedAt() time.Time {
	if f.synced == nil {
		return time.Time{}
	}
	return *f.synced
}

// worthTelling says whether an event is news for a claim's user: it differs from the last
// one, or that was long ago.
func (m *memory) worthTelling(claim types.UID, what string, now time.Time) (news bool) {
	m.update(claim, func(r *remembered) {
		news = r.lastEvent == nil || r.lastEvent.what != what || now.Sub(r.lastEvent.when) >= tellAgain
		if news {
			r.lastEvent = &noted{what: what, when: now}
		}
	})
	return news
}

// since records that what holds for a claim now, empty for nothing, and returns since when
// it does; zero for nothing.
func (m *memory) since(claim types.UID, which int, what string, now time.Time) (since time.Time) {
	m.update(claim, func(r *remembered) {
		switch last := r.lasting[which]; {
		case what == "":
			r.lasting[which] = nil
		case last == nil || last.what != what:
			r.lasting[which] = &noted{what: what, when: now}
			since = now
		default:
			since = last.when
		}
	})
	return since
}

// sinceTrue is since for a condition that is either true or false.
func (m *memory) sinceTrue(claim types.UID, which int, is bool, now time.Time) time.Time {
	what := ""
	if is {
		what = "so"
	}
	return m.since(claim, which, what, now)
}

// orphans returns the claims of which only a backing claim is left.
func (m *memory) orphans() (claims []types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for claim, r := range m.claims {
		if r.orphan {
			claims = append(claims, claim)
		}
	}
	return claims
}

// maxOwners limits the owners kept for one claim: backing claims in a remote cluster can be
// forged, each with another owner.
const maxOwners = 16

func (m *memory) addOwner(claim types.UID, owner types.NamespacedName) {
	m.update(claim, func(r *remembered) { r.owners = added(r.owners, owner) })
}

func (m *memory) addMoved(claim types.UID, name string) {
	m.update(claim, func(r *remembered) { r.moved = added(r.moved, name) })
}

func added[T comparable](have []T, one T) []T {
	if slices.Contains(have, one) || len(have) >= maxOwners {
		return have
	}
	return append(slices.Clip(have), one)
}

// virtualClaim is the key of the virtual claim in remembered.written, where other keys are
// clusters.
const virtualClaim = ""

// write is the result of a write of this process.
type write struct {
	result *corev1.PersistentVolumeClaim
	// created is true as long as all writes since the claim's creation were made before the
	// cache showed it.
	created bool
	at      time.Time
}

// setWritten records the result of a write on top of what the cache had, nil for nothing. A
// result with another UID is ignored.
func (m *memory) setWritten(claim types.UID, cluster string, seen, result *corev1.PersistentVolumeClaim) {
	if cluster != keys.Home {
		if seen != nil && (result.UID != seen.UID || result.Namespace != seen.Namespace || result.Name != seen.Name) {
			return
		}
		if trusted, err := remote.Trusted(result); err == nil {
			result, _ = trusted.(*corev1.PersistentVolumeClaim)
		}
	}
	m.update(claim, func(r *remembered) {
		last, ok := r.written[cluster]
		// What was observed may be the result of the previous write.
		created := seen == nil || ok && last.created && last.result.UID == seen.UID && last.result.ResourceVersion == seen.ResourceVersion
		if r.written == nil {
			r.written = map[string]write{}
		}
		r.written[cluster] = write{result: result, created: created, at: time.Now()}
	})
}

// dropWritten drops the result of a write, for example because the backing claim was
// deleted since.
func (m *memory) dropWritten(claim types.UID, cluster string) {
	m.update(claim, func(r *remembered) { delete(r.written, cluster) })
}

// latest returns the newer of the cached claim and the written one.
func (m *memory) latest(claim types.UID, cluster string, seen *corev1.PersistentVolumeClaim, now time.Time) *corev1.PersistentVolumeClaim {
	latest := seen
	m.update(claim, func(r *remembered) {
		last, ok := r.written[cluster]
		if !ok {
			return
		}
		behind := seen == nil && last.created
		if seen != nil && seen.UID == last.result.UID {
			order, err := resourceversion.CompareResourceVersion(seen.ResourceVersion, last.result.ResourceVersion)
			behind = err == nil && order < 0
		}
		if behind && now.Sub(last.at) < safetyNet {
			latest = last.result
			return
		}
		delete(r.written, cluster)
	})
	return latest
}

// What a remote cluster reports of a volume may be written at home reflections times in a
// row, then once in reflectPause. An expansion needs few writes; a cluster that changes its
// report constantly must not cause more.
const (
	reflections  = 6
	reflectPause = 15 * time.Second
)

// budget is how many writes were left at a time.
type budget struct {
	left int
	at   time.Time
}

// refilled returns the budget at a later time.
func (b budget) refilled(now time.Time) budget {
	if n := int(now.Sub(b.at) / reflectPause); n > 0 {
		b.left, b.at = min(reflections, b.left+n), b.at.Add(time.Duration(n)*reflectPause)
	}
	return b
}

// spend counts a write at home of what a remote cluster reports of the claim's volume.
func (m *memory) spend(claim types.UID, now time.Time) {
	m.update(claim, func(r *remembered) {
		b := budget{left: reflections, at: now}
		if r.budget != nil {
			b = r.budget.refilled(now)
		}
		if b.left == reflections {
			b.at = now // Time beyond a full budget does not count.
		}
		b.left = max(0, b.left-1)
		r.budget = &b
	})
}

// quietUntil returns until when no such write is allowed; zero if it is allowed now.
func (m *memory) quietUntil(claim types.UID, now time.Time) (until time.Time) {
	m.update(claim, func(r *remembered) {
		if r.budget == nil {
			return
		}
		switch b := r.budget.refilled(now); b.left {
		case reflections:
			r.budget = nil // a full budget, as before any write
		case 0:
			until = b.at.Add(reflectPause)
		}
	})
	return until
}

// refusedSize is a size that was refused, and until when it is not requested again.
type refusedSize struct {
	steps.RefusedSize
	pause time.Duration
}

// setRefusedSize records the size that was refused for a claim and when it may be requested
// again; nil drops it.
func (m *memory) setRefusedSize(claim types.UID, size *steps.RefusedSize, now time.Time) {
	m.update(claim, func(r *remembered) {
		before := r.refusedSize
		if r.refusedSize = nil; size == nil {
			return
		}
		kept := refusedSize{RefusedSize: *size, pause: sizeAgainSoon}
		if before != nil && before.Size.Equal(size.Size) {
			kept.pause = min(2*before.pause, sizeAgainSeldom)
		}
		kept.Until = now.Add(kept.pause)
		r.refusedSize = &kept
	})
}

// sizeRefused returns the refused size, nil once it may be requested again.
func (f facts) sizeRefused(now time.Time) *steps.RefusedSize {
	if f.refusedSize == nil || !now.Before(f.refusedSize.Until) {
		return nil
	}
	return &f.refusedSize.RefusedSize
}

// setRefusedAttributes records attributes that were refused; nil drops them.
func (m *memory) setRefusedAttributes(claim types.UID, refused *steps.RefusedAttributes) {
	m.update(claim, func(r *remembered) { r.refusedAttributes = refused })
}

// attributesRefused returns the attributes that were refused recently, nil for none.
func (f facts) attributesRefused(now time.Time) *steps.RefusedAttributes {
	if f.refusedAttributes == nil || !now.Before(f.refusedAttributes.Until) {
		return nil
	}
	return f.refusedAttributes
}

// lastWarning is the last warning event of a claim's backing claim, and when events are
// read again.
type lastWarning struct {
	steps.LastWarning
	pause time.Duration
}

// warningOf returns the last warning about a backing claim, for changing.
func (r *remembered) warningOf(b types.UID) *lastWarning {
	if r.lastWarning == nil || r.lastWarning.Backing != b {
		return &lastWarning{LastWarning: steps.LastWarning{Backing: b}, pause: readEventsSoon / 2}
	}
	last := *r.lastWarning
	return &last
}

// setLastWarning records the last warning about a backing claim; with a nil event the
// previous one stays.
func (m *memory) setLastWarning(claim, b types.UID, event *corev1.Event, now time.Time) {
	m.update(claim, func(r *remembered) {
		last := r.warningOf(b)
		if event != nil {
			// Clone the strings, or the whole event would stay in memory.
			last.Reason, last.Message = strings.Clone(sentence.Cut(event.Reason, maxWarning)), strings.Clone(sentence.Cut(event.Message, maxWarning))
		}
		last.pause = min(2*last.pause, readEventsSeldom)
		last.Again = now.Add(last.pause)
		r.lastWarning = last
	})
}

// postponeEvents delays the next read of a backing claim's events, with jitter so that not
// all claims are read at the same time.
func (m *memory) postponeEvents(claim, b types.UID, now time.Time) {
	m.update(claim, func(r *remembered) {
		last := r.warningOf(b)
		last.Again = now.Add(wait.Jitter(readEventsSoon/2, 1))
		r.lastWarning = last
	})
}

// dropLastWarning drops the last warning about a backing claim that no longer waits.
func (m *memory) dropLastWarning(claim types.UID) {
	m.update(claim, func(r *remembered) { r.lastWarning = nil })
}

// warning returns the last warning about the backing claim, nil if its events were not
// read.
func (f facts) warning() *steps.LastWarning {
	if f.lastWarning == nil {
		return nil
	}
	return &f.lastWarning.LastWarning
}
