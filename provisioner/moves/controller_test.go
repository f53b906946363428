package moves

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/backing"
	"github.com/lodestone-storage/lodestone/pkg/controller"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/home"
	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
	"github.com/lodestone-storage/lodestone/provisioner/moves/steps"
	"github.com/lodestone-storage/lodestone/provisioner/moves/turns"
)

func TestAStepThatChangesNothingIsTakenEverMoreSeldom(t *testing.T) {
	var last repeated
	o := steps.Observation{Record: &record.Record{Phase: v1alpha1.MoveCommit}}
	drop := steps.Step{Action: steps.DropMover{End: record.Target}}
	assert.Equal(t, time.Nanosecond, last.pause(o, drop))
	assert.Equal(t, firstPause, last.pause(o, drop))
	assert.Equal(t, 2*firstPause, last.pause(o, drop))
	for range 100 {
		last.pause(o, drop)
	}
	assert.Equal(t, longestPause, last.pause(o, drop))
	assert.Equal(t, time.Nanosecond, last.pause(o, steps.Step{Action: steps.DropMover{End: record.Source}}), "another step")
	assert.Equal(t, time.Nanosecond, last.pause(o, drop), "something was done meanwhile")
	save := steps.Step{Action: steps.Save{Record: &record.Record{}}}
	for range 3 {
		assert.Equal(t, time.Nanosecond, last.pause(o, save), "a record that is saved is another one")
	}
}

func TestOnlyStepsThatFailInARowCount(t *testing.T) {
	var f failing
	began := time.Now()
	f.note(began, errors.New("first"))
	f.note(began.Add(time.Minute), errors.New("second"))
	assert.Equal(t, failing{since: began, why: "second"}, f)
	f.note(began.Add(2*time.Minute), nil)
	assert.Equal(t, failing{}, f)
}

func TestEventsWakeTheirMoveAlone(t *testing.T) {
	pod := func(namespace, name string, claims ...string) *home.Pod {
		return &home.Pod{Namespace: namespace, Name: name, Claims: claims}
	}
	volume := func(name string) *corev1.PersistentVolume {
		return &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}}
	}
	claim := func(uid, move string) *corev1.PersistentVolumeClaim {
		c := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "data"}}
		c.UID, c.Labels = recordIn("").Claims[0].UID, map[string]string{}
		if uid != "" {
			c.UID = "other"
		}
		if move != "" {
			c.Labels[keys.MoveOf] = move
		}
		return c
	}
	for _, test := range []struct {
		name  string
		event func(*Controller)
		wakes bool
	}{
		{name: "a pod that uses its claim", wakes: true, event: func(c *Controller) { c.podChanged(nil, pod("shop", "app", "shop/data")) }},
		{name: "a pod that uses another one", event: func(c *Controller) { c.podChanged(nil, pod("shop", "app", "shop/logs")) }},
		{name: "a pod of another namespace", event: func(c *Controller) { c.podChanged(nil, pod("other", "app", "other/data")) }},
		{name: "its mover", event: func(c *Controller) { c.podChanged(nil, pod("storage", "move-m1-0-source", "storage/x")) }, wakes: true},
		{name: "the mover of another move", event: func(c *Controller) { c.podChanged(nil, pod("storage", "move-m2-0-source", "storage/x")) }},
		{name: "its claim", event: func(c *Controller) { c.claimChanged(nil, claim("", "")) }, wakes: true},
		{name: "its real claim", event: func(c *Controller) { c.claimChanged(nil, claim("other", "m1")) }, wakes: true},
		{name: "another claim", event: func(c *Controller) { c.claimChanged(nil, claim("other", "m2")) }},
		{name: "its virtual volume", event: func(c *Controller) { c.volumeChanged(controller.PackVolume(volume("pvc-1"))) }, wakes: true},
		{name: "its virtual volume that is gone", wakes: true, event: func(c *Controller) {
			c.volumeChanged(cache.DeletedFinalStateUnknown{Key: "pvc-1", Obj: volume("pvc-1")})
		}},
		{name: "another volume", event: func(c *Controller) { c.volumeChanged(volume("pvc-2")) }},
		{name: "its mover in a remote cluster", wakes: true, event: func(c *Controller) {
			c.remotePodChanged("m1", pod("shop", "move-m1-0-target", "shop/x"))
		}},
		{name: "a pod there that uses its source", wakes: true, event: func(c *Controller) {
			c.remotePodChanged("m1", pod("n", "x", "lodestone-storage/pvc-u1"))
		}},
		{name: "another pod there", event: func(c *Controller) { c.remotePodChanged("m1", pod("n", "x", "n/other")) }},
		{name: "the cluster of its target", event: func(c *Controller) { c.ClusterChanged("west", true) }, wakes: true},
		{name: "another cluster", event: func(c *Controller) { c.ClusterChanged("east", true) }},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			c := New(Config{Records: NewRecords(), Place: backing.Place{StorageNamespace: "storage"}})
			r := recordIn(v1alpha1.MoveFence)
			// While its pods stand still it is woken at once.
			r.Namespace, r.Down, r.Claims[0].Volume = "shop", time.Now(), volume("pvc-1")
			c.Records.set("m1", r)
			over := recordIn(v1alpha1.MoveDone)
			over.UID, over.Namespace = "m3", "shop"
			c.Records.set("m3", over)
			active := c.moveOf(moveKey{uid: "m1"})
			test.event(c)
			assert.Equal(t, test.wakes, active.woken.Load())
			// Events of a remote cluster wake it a little later.
			c.queue.AddAfter(moveKey{uid: "last"}, 10*remoteWakePause)
			var woken []string
			ctx, stop := context.WithCancel(t.Context())
			c.queue.Run(ctx, 1, func(_ context.Context, key moveKey) (time.Duration, error) {
				if woken = append(woken, string(key.uid)); key.uid == "last" {
					stop()
				}
				return 0, nil
			})
			want := []string{"last"}
			if test.wakes {
				want = []string{"m1", "last"}
			}
			assert.Equal(t, want, woken)
		})
	}
}

func TestItsOwnStatusHasNoMoveLookedAtWhole(t *testing.T) {
	move := func(change func(*v1alpha1.VolumeMove)) *v1alpha1.VolumeMove {
		m := queuedMove("shop", 1, false)
		m.Generation, m.Status.Conditions = 1, []metav1.Condition{{Type: v1alpha1.MoveFinished, Status: metav1.ConditionTrue}}
		change(m)
		return m
	}
	same := func(*v1alpha1.VolumeMove) {}
	for name, test := range map[string]struct {
		now   *v1alpha1.VolumeMove
		whole bool
	}{
		"its status":   {move(func(m *v1alpha1.VolumeMove) { m.Status.Message = "copied 5 MiB" }), false},
		"its spec":     {move(func(m *v1alpha1.VolumeMove) { m.Generation = 2 }), true},
		"its deletion": {move(func(m *v1alpha1.VolumeMove) { m.DeletionTimestamp = &metav1.Time{Time: time.Now()} }), true},
		"its end":      {nil, true},
	} {
		c := New(Config{Records: NewRecords()})
		active := c.moveOf(moveKey{uid: "shop-1"})
		c.moveChanged(move(same), test.now)
		assert.Equal(t, test.whole, active.woken.Load(), name)
	}
}

func queuedMove(namespace string, n int, dry bool) *v1alpha1.VolumeMove {
	name := fmt.Sprintf("%s-%d", namespace, n)
	return &v1alpha1.VolumeMove{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(name),
			CreationTimestamp: metav1.NewTime(time.Unix(int64(n), 0))},
		Spec: v1alpha1.VolumeMoveSpec{DryRun: dry},
	}
}

func begun(l *line) (names []string) {
	for _, move := range l.advance() {
		names = append(names, move.Name)
	}
	return names
}

func recordFrom(namespace, name string, phase v1alpha1.MovePhase) *record.Record {
	return &record.Record{UID: types.UID(name), Namespace: namespace, Name: name, Phase: phase}
}

func TestMovesBeginInTurn(t *testing.T) {
	records := NewRecords()
	l := newLine(turns.Limits{Total: 3, PerNamespace: 2}, records)
	for n := range 5 {
		l.join(queuedMove("many", n, false))
	}
	assert.Equal(t, []string{"many-0", "many-1"}, begun(l))
	assert.Empty(t, begun(l), "they count before they have a record")
	l.join(queuedMove("one", 9, false))
	l.join(queuedMove("other", 8, false))
	assert.Equal(t, []string{"other-8"}, begun(l))
	assert.Equal(t, 4, l.waiting())

	records.set("many-0", recordFrom("many", "many-0", v1alpha1.MovePrepare))
	assert.Empty(t, begun(l), "with a record it counts once")
	l.leave("many-0")
	assert.Empty(t, begun(l))

	l.join(queuedMove("one", 10, true))
	assert.Equal(t, []string{"one-10"}, begun(l), "a dry run does not wait for moves")

	records.set("many-0", recordFrom("many", "many-0", v1alpha1.MoveRetain))
	assert.Equal(t, []string{"one-9"}, begun(l), "one that only keeps its source does not count, and the other namespace is next")
	l.leave("many-1")
	assert.Equal(t, []string{"many-2"}, begun(l), "one that was refused does not count")
}

func TestMovesUnderWayGoOnAboveALoweredLimit(t *testing.T) {
	records := NewRecords()
	for n := range 4 {
		name := fmt.Sprintf("many-%d", n)
		records.set(types.UID(name), recordFrom("many", name, v1alpha1.MovePreCopy))
	}
	l := newLine(turns.Limits{Total: 2, PerNamespace: 2}, records)
	l.join(queuedMove("one", 1, false))
	assert.Empty(t, begun(l))
	for n := range 3 {
		name := fmt.Sprintf("many-%d", n)
		records.set(types.UID(name), recordFrom("many", name, v1alpha1.MoveDone))
	}
	assert.Equal(t, []string{"one-1"}, begun(l))
}

func TestEachMoveIsToldOnceWhereItStands(t *testing.T) {
	l := newLine(turns.Limits{Total: 1, PerNamespace: 1}, NewRecords())
	for n := range 3 {
		l.join(queuedMove("a", n, false))
	}
	assert.Equal(t, []string{"a-0"}, begun(l))
	told := func() (said []string) {
		for {
			place, ok := l.untold()
			if !ok {
				return said
			}
			said = append(said, fmt.Sprintf("%s %d", place.Move.Name, place.Position))
		}
	}
	assert.Equal(t, []string{"a-1 1", "a-2 2"}, told())
	assert.Empty(t, told())
	l.leave("a-0")
	assert.Equal(t, []string{"a-1"}, begun(l))
	assert.Equal(t, []string{"a-2 1"}, told())

	// The write failed, as an event shows.
	again := queuedMove("a", 2, false)
	l.join(again)
	require.Equal(t, []string{"a-2 1"}, told())
	again.Status.Message = turns.Place{Position: 1, Full: true}.Say(l.limits)
	l.join(again)
	assert.Empty(t, told())
}
