package pods

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/lru"

	"github.com/lodestone-storage/lodestone/pkg/backing"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/virtualnode/translate"
)

// maxClaims is of how many claims of a remote cluster it is remembered which of home they are for. The
// others are read again.
const maxClaims = 1000

// remoteClaims are the claims of a remote cluster of which events were seen lately. It is safe for
// concurrent use.
type remoteClaims struct {
	byUID *lru.Cache
	// ofHome has what limits the events of a claim of home, by its UID: the cluster may say of any number of claims that they are for it.
	ofHome *lru.Cache
}

func newRemoteClaims() remoteClaims {
	return remoteClaims{byUID: lru.New(maxClaims), ofHome: lru.New(maxClaims)}
}

// remoteClaim is one of them.
type remoteClaim struct {
	// told limits its events.
	told *rate.Limiter
	// home is the claim of home that it is for, nil while that is not known; none has an empty name.
	home atomic.Pointer[homeClaim]
}

type homeClaim struct {
	name string
	uid  types.UID
}

// of returns what is known of a claim, by its UID.
func (c remoteClaims) of(there types.UID) *remoteClaim {
	if known, ok := c.byUID.Get(there); ok {
		if claim, ok := known.(*remoteClaim); ok {
			return claim
		}
	}
	claim := &remoteClaim{told: rate.NewLimiter(rate.Every(podEventEvery), podEvents)}
	c.byUID.Add(there, claim)
	return claim
}

// mayTellOf reports whether one more event may be shown on a claim of home, whichever claim of the cluster it is about, and counts it.
func (c remoteClaims) mayTellOf(home types.UID, warning bool, now time.Time) bool {
	known, _ := c.ofHome.Get(home)
	told, ok := known.(*rate.Limiter)
	if !ok {
		told = rate.NewLimiter(rate.Every(podEventEvery), podEvents)
		c.ofHome.Add(home, told)
	}
	return mayTell(told, warning, now)
}

// claimEvent returns the event of home for one about a claim; false if none is to be shown. Which claim
// of home it is for is found out by putClaim.
func (r *runner) claimEvent(there *corev1.Event, now time.Time) (remoteEvent, bool) {
	namespace := r.homeNamespaceAt(there.InvolvedObject.Namespace)
	if namespace == "" {
		return remoteEvent{}, false
	}
	event, ok := translate.ClaimEvent(r.session.Cluster, namespace, there, metav1.NewTime(now))
	if !ok {
		return remoteEvent{}, false
	}
	about := event.InvolvedObject
	return remoteEvent{event: event, of: key{namespace: r.session.Namespace(namespace), name: about.Name}, there: about.UID, seen: now}, true
}

// putClaim has an event be about the claim of home that the claim there is for; false if it is for none.
func (r *runner) putClaim(ctx context.Context, told remoteEvent) (bool, error) {
	known := r.claims.of(told.there)
	home := known.home.Load()
	if home == nil {
		found, err := r.homeClaimOf(ctx, told)
		if err != nil {
			return false, err
		}
		home = &found
		known.home.Store(home)
	}
	told.event.InvolvedObject.Name, told.event.InvolvedObject.UID = home.name, home.uid
	return home.name != "", nil
}

// homeClaimOf asks both clusters which claim of home an event is about; empty for none. Others may have
// written the labels of the claim there, so the claim of home must have the namespace, the name and the
// UID that they say.
func (r *runner) homeClaimOf(ctx context.Context, told remoteEvent) (homeClaim, error) {
	there, err := r.session.Client.CoreV1().PersistentVolumeClaims(told.of.namespace).Get(ctx, told.of.name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return homeClaim{}, nil
	case err != nil:
		return homeClaim{}, fmt.Errorf("get claim %s of cluster %s: %w", told.of, r.session.Cluster, err)
	}
	owner, ok := backing.Place{HomeID: r.session.HomeID}.OwnerOf(there)
	if !ok || there.UID != told.there || owner.Namespace != told.event.Namespace {
		return homeClaim{}, nil
	}
	claim, err := r.config.Home.CoreV1().PersistentVolumeClaims(owner.Namespace).Get(ctx, owner.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return homeClaim{}, nil
	case err != nil:
		return homeClaim{}, fmt.Errorf("get claim %s: %w", owner, err)
	case string(claim.UID) != there.Labels[keys.ClaimUID]:
		return homeClaim{}, nil
	}
	return homeClaim{name: claim.Name, uid: claim.UID}, nil
}
