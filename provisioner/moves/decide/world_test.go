package decide_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/movecontrol"
	"github.com/lodestone-storage/lodestone/provisioner/backing"
	"github.com/lodestone-storage/lodestone/provisioner/moves/decide"
	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
)

const moveUID = types.UID("m1")

// world is a model of all that a move touches: the objects, what the two copies hold,
// and those who act by themselves.
type world struct {
	t      *testing.T
	r      *rand.Rand
	now    time.Time
	move   *v1alpha1.VolumeMove
	record []byte
	// last is what read, an earlier record, holds.
	read   []byte
	last   *record.Record
	claims []*claim
	pods   []*pod
	made   int
	down   map[record.End]bool
	// gone are clusters that were removed.
	gone map[record.End]bool
	// truth is what the application wrote last, for each claim.
	truth  []int
	log    []string
	calm   bool
	forced forced
	// within: both copies are in one remote cluster.
	within bool
}

type claim struct {
	claim  *corev1.PersistentVolumeClaim
	volume *corev1.PersistentVolume
	at     map[record.End]*side
	mover  movecontrol.Status
	alive  bool
	// single: it is ReadWriteOncePod. Snapshots of it can be taken where snap is not nil.
	single bool
	snap   *snap
}

type side struct {
	backing *corev1.PersistentVolumeClaim
	real    *corev1.PersistentVolume
	content int
	mover   decide.Mover
}

// pod runs at an end of all claims once it is bound.
type pod struct {
	decide.Pod
	at record.End
}

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func newWorld(t *testing.T, seed uint64, claims int) *world {
	t.Helper()
	w := &world{t: t, r: rand.New(rand.NewPCG(seed, 7)), now: start, down: map[record.End]bool{}}
	w.move = &v1alpha1.VolumeMove{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "m", UID: moveUID}, Spec: v1alpha1.VolumeMoveSpec{Action: v1alpha1.ActionMove}}
	for i := range claims {
		w.claims = append(w.claims, newClaim(i))
		w.claims[i].single = (seed/3+uint64(i))%3 == 1
		if w.claims[i].single && seed%4 > 0 {
			w.claims[i].snap = &snap{}
		}
		w.truth = append(w.truth, 0)
	}
	return w
}

func ref(end record.End, i int) backing.Ref {
	return backing.Ref{Cluster: map[record.End]string{record.Source: keys.Home, record.Target: "west"}[end], Namespace: "n", Name: fmt.Sprintf("%s-%d", end, i), UID: types.UID(fmt.Sprintf("%s-%d", end, i))}
}

func virtual(i int, end record.End) *corev1.PersistentVolume {
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("pvc-u%d", i), Annotations: map[string]string{keys.Backing: ref(end, i).String()}},
		Spec:       corev1.PersistentVolumeSpec{ClaimRef: &corev1.ObjectReference{UID: types.UID(fmt.Sprintf("u%d", i))}},
	}
}

func newClaim(i int) *claim {
	c := &claim{at: map[record.End]*side{record.Source: {}, record.Target: {content: -1}, record.Snapped: {content: -1}}}
	c.claim = &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("data-%d", i), UID: types.UID(fmt.Sprintf("u%d", i)), Labels: map[string]string{}, Annotations: map[string]string{}}}
	c.claim.Status.Phase = corev1.ClaimBound
	c.volume = virtual(i, record.Source)
	c.volume.UID, c.volume.Status.Phase = "v0", corev1.VolumeBound
	s := c.at[record.Source]
	s.backing = &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: ref(record.Source, i).Name, UID: ref(record.Source, i).UID, Labels: map[string]string{}, Finalizers: []string{keys.BackingFinalizer}}}
	s.real = &corev1.PersistentVolume{Spec: corev1.PersistentVolumeSpec{PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete}}
	return c
}

func (w *world) decoded() *record.Record {
	if w.record == nil {
		return nil
	}
	if !bytes.Equal(w.record, w.read) {
		r, err := record.Decode(w.record)
		require.NoError(w.t, err)
		w.read, w.last = w.record, r
	}
	return w.last
}

func (w *world) observe() decide.Observation {
	o := decide.Observation{Now: w.now, Settling: 10 * time.Second, Record: w.decoded(), Unusable: map[record.End]string{}, Gone: w.gone}
	if w.move != nil {
		o.Move = w.move.DeepCopy()
	}
	for end, down := range w.down {
		if down {
			o.Unusable[end] = "it does not answer"
		}
	}
	if o.Record == nil {
		return o
	}
	for i, c := range w.claims {
		seen := decide.Claim{Source: w.side(c, record.Source), Target: w.side(c, record.Target), New: virtual(i, record.Target)}
		if c.claim != nil {
			seen.Claim = c.claim.DeepCopy()
		}
		if c.volume != nil {
			seen.Volume = c.volume.DeepCopy()
		}
		seen.Snapshot = w.seeSnapshot(o.Record, i)
		o.Claims = append(o.Claims, seen)
		if c.alive && c.at[record.Source].mover.Running && !w.down[record.Source] && decide.Reads(o, i) == record.Source {
			o.Claims[i].Copy = w.said(c, c.mover)
		}
		if c.snap != nil && c.at[record.Snapped].mover.Running && !w.down[record.Source] && decide.Reads(o, i) == record.Snapped {
			o.Claims[i].Copy = w.said(c, c.snap.mover)
		}
	}
	for _, p := range w.pods {
		o.Pods = append(o.Pods, p.Pod)
	}
	w.seeForced(&o)
	return o
}

func (w *world) side(c *claim, end record.End) decide.Side {
	if w.down[end] {
		return decide.Side{}
	}
	s := c.at[end]
	seen := decide.Side{Mover: s.mover}
	if s.backing != nil {
		seen.Backing = s.backing.DeepCopy()
	}
	if s.real != nil {
		seen.Real = s.real.DeepCopy()
	}
	return seen
}

// current is the end that the virtual volume of a claim names; empty without one.
func (c *claim) current(i int) record.End {
	for _, end := range record.Ends {
		if c.volume != nil && c.volume.Annotations[keys.Backing] == ref(end, i).String() {
			return end
		}
	}
	return ""
}

// check says what must hold at every instant.
func (w *world) check() {
	r := w.decoded()
	for i, c := range w.claims {
		at := c.current(i)
		for _, p := range w.pods {
			if p.Bound && at != "" {
				w.must(p.at == at, "a pod runs on the %s copy while the volume is the %s one", p.at, at)
			}
			w.must(!c.single || !p.Bound || !c.at[p.at].mover.Running, "a mover at the %s beside the only pod that may use claim %d", p.at, i)
		}
		s, d := c.at[record.Source], c.at[record.Target]
		whole := s.backing != nil && s.content == w.truth[i] || d.backing != nil && d.content == w.truth[i]
		w.must(whole || c.claim == nil, "no complete copy of claim %d is left", i)
		w.must(at != record.Target || d.content == w.truth[i], "the volume names a copy that is not whole")
		// That at the source only reads, and may be left where the cluster is away.
		w.must(at != record.Target || !d.mover.Running || r == nil, "a mover writes to the volume that is in use")
		w.must(at != record.Source || s.backing != nil, "the volume names a copy that was removed")
	}
}

func (w *world) must(ok bool, format string, args ...any) {
	if !ok {
		tail := w.log[max(0, len(w.log)-60):]
		require.Fail(w.t, fmt.Sprintf(format, args...), "%v", tail)
	}
}
