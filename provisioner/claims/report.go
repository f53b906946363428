// This file has what is reported of claims besides their events: metrics, leftovers of
// claims that are gone, and the condition of claims whose volume has a problem.

package claims

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/klog/v2"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/backing"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/sentence"
	"github.com/lodestone-storage/lodestone/provisioner/claims/steps"
)

// Metrics count the steps for claims.
type Metrics struct {
	steps     *prometheus.CounterVec
	refusals  *prometheus.CounterVec
	publish   *prometheus.HistogramVec
	troubles  *troubles
	leftovers *leftovers
}

// NewMetrics returns metrics that are registered with registerer.
func NewMetrics(registerer prometheus.Registerer) *Metrics {
	factory := promauto.With(registerer)
	return &Metrics{
		steps: factory.NewCounterVec(prometheus.CounterOpts{
			Name: "lodestone_provisioner_steps_total",
			Help: "Steps taken for virtual claims, by step, cluster and result.",
		}, []string{"step", "cluster", "result"}),
		refusals: factory.NewCounterVec(prometheus.CounterOpts{
			Name: "lodestone_provisioner_refusals_total",
			Help: "Virtual claims that a place refused, by cluster and reason.",
		}, []string{"cluster", "reason"}),
		publish: factory.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "lodestone_provisioner_publish_seconds",
			Help:    "Time from the selected node being seen to the virtual volume being made, by cluster.",
			Buckets: prometheus.ExponentialBuckets(0.005, 2, 16),
		}, []string{"cluster"}),
		troubles:  newTroubles(factory),
		leftovers: newLeftovers(factory),
	}
}

func (m *Metrics) step(step steps.Step, err error) {
	if step.Action == nil {
		return
	}
	result := "done"
	if err != nil {
		result = "error"
	}
	m.steps.WithLabelValues(step.Verb(), step.Cluster(), result).Inc()
}

func (m *Metrics) refused(r *steps.Refusal) {
	m.refusals.WithLabelValues(r.Cluster, r.Reason).Inc()
}

// troubles counts virtual volumes by health.
type troubles struct {
	gauge *prometheus.GaugeVec

	mu     sync.Mutex
	kept   map[types.UID]health
	counts map[health]int
}

// health is the health of a virtual volume.
type health struct {
	cluster string
	// phase is the phase of its backing claim; empty if there is none, unseen if it is not
	// known or there is no virtual volume yet.
	phase corev1.PersistentVolumeClaimPhase
	// reason is a CamelCase reason for what is wrong with it, empty for nothing.
	reason string
}

// unseen is the phase of a backing claim that was not observed yet.
const unseen corev1.PersistentVolumeClaimPhase = "?"

func newTroubles(factory promauto.Factory) *troubles {
	return &troubles{kept: map[types.UID]health{}, counts: map[health]int{}, gauge: factory.NewGaugeVec(prometheus.GaugeOpts{
		Name: "lodestone_provisioner_volumes_in_trouble",
		Help: "Virtual volumes with which something is wrong now, and claims whose volume is long in coming, by the cluster of their " +
			"data and reason.",
	}, []string{"cluster", "reason"})}
}

// observe records the health of a claim's volume, from its observation and next step. Where
// the state is unknown now, the last known state stays, except for a new reason.
func (m *Metrics) observe(o steps.Observation, step steps.Step) {
	if o.Volume != nil && step.Unknown && step.Trouble == "" {
		return
	}
	t := m.troubles
	t.mu.Lock()
	defer t.mu.Unlock()
	before, had := t.kept[o.UID]
	now, has := healthOf(o, step)
	switch {
	case o.Volume == nil || !step.Unknown:
	case had:
		now.phase = before.phase
	default:
		now.phase = unseen
	}
	if had == has && before == now {
		return
	}
	if had {
		t.add(before, -1)
		delete(t.kept, o.UID)
	}
	if has {
		t.kept[o.UID] = now
		t.add(now, 1)
	}
}

func healthOf(o steps.Observation, step steps.Step) (now health, has bool) {
	if o.Volume == nil {
		return health{cluster: step.TroubleIn, phase: unseen, reason: step.Trouble}, step.Trouble != ""
	}
	ref, err := backing.RefOf(o.Volume)
	if err != nil {
		return health{reason: step.Trouble}, step.Trouble != ""
	}
	now = health{cluster: ref.Cluster, reason: step.Trouble}
	for _, b := range o.Backings {
		if b.Cluster == ref.Cluster && b.Claim.UID == ref.UID {
			now.phase = b.Claim.Status.Phase
		}
	}
	return now, true
}

// add counts a volume more or less. The caller holds the lock.
func (t *troubles) add(h health, n int) {
	if t.counts[h] += n; t.counts[h] == 0 {
		delete(t.counts, h)
	}
	if h.reason != "" {
		t.gauge.WithLabelValues(h.cluster, h.reason).Add(float64(n))
	}
}

// Health returns the health of a cluster's volumes; nil until all of them, whose number is
// volumes, have been observed.
func (m *Metrics) Health(cluster string, volumes int) *v1alpha1.VolumeHealth {
	t := m.troubles
	t.mu.Lock()
	defer t.mu.Unlock()
	result, seen, wrong := &v1alpha1.VolumeHealth{}, 0, map[string]int{}
	for h, n := range t.counts {
		if h.cluster != cluster {
			continue
		}
		if h.phase != unseen {
			seen += n
		}
		switch h.phase {
		case corev1.ClaimBound:
			result.Bound += n
		case corev1.ClaimPending:
			result.Pending += n
		default:
			// It has a reason, which is counted below.
		}
		if h.reason != "" {
			wrong[h.reason] += n
		}
	}
	if seen < volumes {
		return nil
	}
	for reason, n := range wrong {
		result.Troubles = append(result.Troubles, v1alpha1.VolumeTrouble{Reason: reason, Volumes: n})
	}
	slices.SortFunc(result.Troubles, func(a, b v1alpha1.VolumeTrouble) int { return strings.Compare(a.Reason, b.Reason) })
	return result
}

// troubled returns the claims in a cluster whose volume has a problem although the backing
// claim is bound.
func (m *Metrics) troubled(cluster, reason string) []types.UID {
	t := m.troubles
	t.mu.Lock()
	defer t.mu.Unlock()
	var claims []types.UID
	if t.counts[health{cluster: cluster, phase: corev1.ClaimBound, reason: reason}] == 0 {
		return nil // the usual case
	}
	for claim, h := range t.kept {
		if h.cluster == cluster && h.reason == reason && h.phase == corev1.ClaimBound {
			claims = append(claims, claim)
		}
	}
	return claims
}

// leftovers has the backing claims that may have data while claim and volume at home are
// gone.
type leftovers struct {
	gauge *prometheus.GaugeVec

	mu   sync.Mutex
	kept map[types.UID]leftover
	// last is the number of the latest leftover.
	last     int
	reported map[string]reported
}

// leftover is one of them: at is its backing claim, home the home namespace that it belongs
// to, empty if it has no such label.
type leftover struct {
	cluster, home string
	at            types.NamespacedName
	number        int
}

func newLeftovers(factory promauto.Factory) *leftovers {
	return &leftovers{kept: map[types.UID]leftover{}, reported: map[string]reported{}, gauge: factory.NewGaugeVec(prometheus.GaugeOpts{
		Name: "lodestone_provisioner_backings_left",
		Help: "Backing claims that may hold data and have neither claim nor volume at home, by cluster: kept by policy Retain, or left by a " +
			"volume that was declared lost.",
	}, []string{"cluster"})}
}

// note records the leftover of a claim, nil for none, and says whether it is new.
func (l *leftovers) note(claim types.UID, now *leftover) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	before, had := l.kept[claim]
	if had && now != nil && before.cluster == now.cluster {
		return false
	}
	if had {
		l.gauge.WithLabelValues(before.cluster).Dec()
		delete(l.kept, claim)
	}
	if now == nil {
		return false
	}
	l.last++
	kept := *now
	kept.number = l.last
	l.kept[claim] = kept
	l.gauge.WithLabelValues(now.cluster).Inc()
	return true
}

// in returns the leftovers in a cluster, the latest first.
func (l *leftovers) in(cluster string) []leftover {
	l.mu.Lock()
	defer l.mu.Unlock()
	var there []leftover
	for _, one := range l.kept {
		if one.cluster == cluster {
			there = append(there, one)
		}
	}
	slices.SortFunc(there, func(a, b leftover) int { return cmp.Compare(b.number, a.number) })
	return there
}

// noteLeftover records the leftover of a claim and queues a report.
func (f *Controller) noteLeftover(ctx context.Context, claim types.UID, b *steps.Backing) {
	if b == nil {
		f.Metrics.leftovers.note(claim, nil)
		return
	}
	now := &leftover{cluster: b.Cluster, at: types.NamespacedName{Namespace: b.Claim.Namespace, Name: b.Claim.Name}}
	if owner, ok := f.Place.OwnerOf(b.Claim); ok {
		now.home = owner.Namespace
	}
	if !f.Metrics.leftovers.note(claim, now) {
		return
	}
	klog.FromContext(ctx).Info("No volume at home stands for a backing claim", "cluster", b.Cluster, "backing", now.at)
	if b.Cluster != keys.Home {
		f.leftovers.AddAfter(b.Cluster, f.Metrics.leftovers.pause(b.Cluster, time.Now()))
	}
}

// reportLeftovers writes an event on a RemoteCluster about its leftovers.
func (f *Controller) reportLeftovers(_ context.Context, cluster string) (time.Duration, error) {
	remote := f.Clusters.Object(cluster)
	if remote == nil {
		return 0, nil
	}
	if text := f.Metrics.leftovers.summary(cluster, time.Now()); text != "" {
		f.Recorder.Event(&corev1.ObjectReference{APIVersion: v1alpha1.GroupVersion.String(), Kind: "RemoteCluster", Name: remote.Name,
			UID: remote.UID}, corev1.EventTypeNormal, "BackingLeft", sentence.Cut(text, maxText))
	}
	return 0, nil
}

// listed is how many of them an event names; the log names all.
const listed = 3

// leftText describes the leftovers in a cluster, at least one. Only an administrator
// removes them, and they can be imported again.
func leftText(cluster string, there []leftover) string {
	names := make([]string, 0, listed+1)
	for _, one := range there[:min(len(there), listed)] {
		names = append(names, one.at.String())
	}
	if more := len(there) - listed; more > 0 {
		names = append(names, fmt.Sprintf("and %d more, which the log of the provisioner names", more))
	}
	what, them, one := "1 real claim is", "it", "it"
	if len(there) > 1 {
		what, them, one = fmt.Sprintf("%d real claims are", len(there)), "them", "the first"
	}
	home := cmp.Or(there[0].home, "NAMESPACE")
	return fmt.Sprintf("%s in cluster %s with data, and no volume at home stands for %s: %s; "+
		"kubectl lodestone import pvc %s -n %s --cluster %s --remote-context CONTEXT --class CLASS gives %s a claim again, with the kubeconfig "+
		"context of %s and a virtual storage class; "+
		"to be rid of %s, take finalizer %s off and then delete it there",
		what, cluster, them, strings.Join(names, ", "), there[0].at.Name, home, cluster, one, cluster, one, keys.BackingFinalizer)
}

// Leftovers of a cluster are reported some time after they were found, so that those found
// together are reported together. Between reports in a row that time doubles, up to
// leftSeldom; after leftRest it starts again. Events on one object are rate-limited, and
// others need them too.
const (
	leftSoon   = 10 * time.Second
	leftSeldom = 10 * time.Minute
	leftRest   = time.Hour
)

// reported is the state of a cluster's reports on leftovers.
type reported struct {
	// number is the number of the latest leftover that was reported.
	number int
	// row is how many reports were made in a row, when the time of the last.
	row  int
	when time.Time
}

// pause is how long until the leftovers of a cluster are to be reported.
func (l *leftovers) pause(cluster string, now time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	told := l.reported[cluster]
	if now.Sub(told.when) > leftRest {
		return leftSoon
	}
	return min(leftSoon<<min(told.row, 8), leftSeldom)
}

// summary is the text of a cluster's report; empty if there is no new leftover.
func (l *leftovers) summary(cluster string, now time.Time) string {
	there := l.in(cluster)
	l.mu.Lock()
	defer l.mu.Unlock()
	told := l.reported[cluster]
	if len(there) == 0 || there[0].number <= told.number {
		return ""
	}
	if now.Sub(told.when) > leftRest {
		told.row = 0
	}
	l.reported[cluster] = reported{number: there[0].number, row: told.row + 1, when: now}
	return leftText(cluster, there)
}

// The condition of volumes is set conditionRate times a second, conditionBurst at once, and
// removed at the same rate. A cluster that becomes unavailable affects all its claims: of
// 10,000 claims the last gets the condition 7 minutes after the first, and most conditions
// of a shorter outage are never written; meanwhile the conditions of the RemoteCluster show
// it at once. Removing has a rate of its own: no claim must show a problem for longer
// because others get one.
const conditionRate, conditionBurst = 25, 50

// conditionWrites limits the rate of condition writes.
type conditionWrites struct {
	mu sync.Mutex
	// on and off are the limits for setting and removing; waiting are the claims whose turn
	// has not come.
	on, off flowcontrol.PassiveRateLimiter
	waiting map[types.UID]bool
}

func newConditionWrites() *conditionWrites {
	pace := func() flowcontrol.PassiveRateLimiter {
		return flowcontrol.NewTokenBucketPassiveRateLimiter(conditionRate, conditionBurst)
	}
	return &conditionWrites{on: pace(), off: pace(), waiting: map[types.UID]bool{}}
}

// turn returns 0 if the condition of a claim may be written now, else when to try again:
// the more claims wait, the later.
func (s *conditionWrites) turn(claim types.UID, on bool) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	pace := s.off
	if on {
		pace = s.on
	}
	if pace.TryAccept() {
		delete(s.waiting, claim)
		return 0
	}
	s.waiting[claim] = true
	return wait.Jitter(time.Duration(len(s.waiting))*time.Second/conditionRate, 1)
}

// drop records that a claim no longer waits for its turn.
func (s *conditionWrites) drop(claim types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.waiting, claim)
}

// showTrouble sets or removes the condition of a claim, and writes an event for a problem
// that had none. The patch contains our condition only, so others stay.
func (f *Controller) showTrouble(ctx context.Context, o steps.Observation, a steps.ShowTrouble, step steps.Step) outcome {
	if later := f.conditionWrites.turn(o.UID, a.Condition != nil); later > 0 {
		return outcome{after: later}
	}
	patch, err := conditionPatch(o.Claim.UID, a.Condition)
	if err != nil {
		return outcome{err: err}
	}
	written, err := f.Client.CoreV1().PersistentVolumeClaims(o.Claim.Namespace).Patch(ctx, o.Claim.Name, types.StrategicMergePatchType, patch,
		metav1.PatchOptions{}, "status")
	if err != nil {
		return outcome{err: fmt.Errorf("show on claim %s/%s what is wrong with its volume: %w", o.Claim.Namespace, o.Claim.Name, err)}
	}
	f.memory.setWritten(o.UID, virtualClaim, o.Claim, written)
	if dataAway(o, step) {
		f.memory.spend(o.UID, o.Now)
	}
	if a.Condition != nil && step.Tell == nil {
		f.event(o, &steps.Message{Warning: true, Reason: a.Condition.Reason, Text: a.Condition.Message})
	}
	return outcome{}
}

// dataAway says whether the data of a claim is, or is to be, in a remote cluster.
func dataAway(o steps.Observation, step steps.Step) bool {
	if o.Volume == nil {
		return step.TroubleIn != "" && step.TroubleIn != keys.Home
	}
	ref, err := backing.RefOf(o.Volume)
	return err == nil && ref.Cluster != keys.Home
}

// conditionPatch returns the patch of our condition for the claim with this UID; nil
// removes it.
func conditionPatch(claim types.UID, condition *corev1.PersistentVolumeClaimCondition) ([]byte, error) {
	var change any = map[string]any{"$patch": "delete", "type": keys.VolumeTrouble}
	if condition != nil {
		change = condition
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": claim},
		"status":   map[string]any{"conditions": []any{change}},
	})
	if err != nil {
		return nil, fmt.Errorf("encode condition: %w", err)
	}
	return patch, nil
}
