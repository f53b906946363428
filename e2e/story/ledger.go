package story

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"text/tabwriter"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// ledger watches the claims of the home cluster and notes when each got its node
// and its volume.
type ledger struct {
	mu     sync.Mutex
	times  map[types.UID]*times
	claims corelisters.PersistentVolumeClaimLister
	cancel context.CancelFunc
	wait   func()
}

// times are when a claim was first seen, got its node and was bound.
type times struct{ seen, scheduled, bound time.Time }

func newLedger() *ledger {
	return &ledger{times: map[types.UID]*times{}, cancel: func() {}, wait: func() {}}
}

// start begins to watch, until stop is called or ctx ends.
func (l *ledger) start(ctx context.Context, client kubernetes.Interface) error {
	ctx, l.cancel = context.WithCancel(ctx)
	factory := informers.NewSharedInformerFactory(client, 0)
	claims := factory.Core().V1().PersistentVolumeClaims()
	_, err := claims.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    l.note,
		UpdateFunc: func(_, obj any) { l.note(obj) },
	})
	if err != nil {
		return fmt.Errorf("watch claims: %w", err)
	}
	l.claims = claims.Lister()
	factory.StartWithContext(ctx)
	l.wait = factory.Shutdown
	if !cache.WaitForCacheSync(ctx.Done(), claims.Informer().HasSynced) {
		return fmt.Errorf("read the claims: %w", ctx.Err())
	}
	return nil
}

func (l *ledger) stop() {
	l.cancel()
	l.wait()
}

func (l *ledger) note(obj any) {
	claim, ok := obj.(*corev1.PersistentVolumeClaim)
	if !ok || claim.Labels[keys.ClaimUID] != "" {
		return // not a virtual claim, but one behind it
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	at := time.Now()
	t := l.times[claim.UID]
	if t == nil {
		t = &times{seen: at}
		l.times[claim.UID] = t
	}
	if t.scheduled.IsZero() && claim.Annotations[keys.SelectedNode] != "" {
		t.scheduled = at
	}
	if t.bound.IsZero() && claim.Status.Phase == corev1.ClaimBound {
		t.bound = at
	}
}

// len returns how many claims were ever seen.
func (l *ledger) len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.times)
}

func (l *ledger) of(claim types.UID) times {
	l.mu.Lock()
	defer l.mu.Unlock()
	if t := l.times[claim]; t != nil {
		return *t
	}
	return times{}
}

// row is what the table tells of a claim.
type row struct {
	claim, cluster, backing, node string
	times
}

// print writes the table.
func (s *story) print(rows []row) {
	slices.SortFunc(rows, func(a, b row) int { return cmp.Compare(a.claim, b.claim) })
	s.console.mu.Lock()
	defer s.console.mu.Unlock()
	fmt.Fprintln(s.console.out)
	w := tabwriter.NewWriter(s.console.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "CLAIM\tCLUSTER\tBACKING CLAIM\tNODE\tTIME TO BOUND\tSINCE ITS NODE WAS CHOSEN")
	for _, r := range rows {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", r.claim, r.cluster, r.backing, r.node, span(r.seen, r.bound), span(r.scheduled, r.bound))
	}
	_ = w.Flush()
}

func span(from, to time.Time) string {
	if from.IsZero() || to.IsZero() {
		return "-"
	}
	return fmt.Sprintf("%.2f s", to.Sub(from).Seconds())
}
