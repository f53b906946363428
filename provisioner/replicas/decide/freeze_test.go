package decide_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/provisioner/replicas/decide"
	"github.com/lodestone-storage/lodestone/provisioner/replicas/record"
)

// frozenWorld is an application of some pods that is frozen for each point. A volume is written to while a pod runs that is not frozen.
type frozenWorld struct {
	pods []*frozenPod
	// asked and taken are what was written when the snapshot was asked for, and when it was taken; rested says that no pod ran then.
	asked, taken int
	rested       bool
	// hung is how often a freeze hung, late how often it froze after all, and made counts versions by how they are made.
	hung, late int
	made       map[v1alpha1.VersionConsistency]int
	// deaths is how often the provisioner died.
	deaths int
}

type frozenPod struct {
	name     string
	uid      types.UID
	restarts int
	frozen   bool
	// freezes is when a freeze that hung freezes after all; zero: never.
	freezes time.Time
}

func (f *frozenWorld) writes() bool {
	for _, pod := range f.pods {
		if !pod.frozen {
			return true
		}
	}
	return false
}

// named is the pod that has a name now, nil for none.
func (f *frozenWorld) named(name string) *frozenPod {
	for _, pod := range f.pods {
		if pod.name == name {
			return pod
		}
	}
	return nil
}

func (w *world) useFreeze() {
	w.frozen = &frozenWorld{made: map[v1alpha1.VersionConsistency]int{}}
	for i := range 2 {
		w.frozen.pods = append(w.frozen.pods, &frozenPod{name: fmt.Sprintf("db-%d", i), uid: w.uid()})
	}
}

// die has another process follow. Meanwhile a pod came, wrote and went, which nobody has seen.
func (w *world) die() {
	w.o.Hold = decide.Unknown
	w.source++
	w.frozen.deaths++
}

// stateOf is what a pod is seen to be.
func stateOf(pod *frozenPod) string { return fmt.Sprint(pod.restarts) }

// happenFrozen lets pods come, go and restart, freezes end late, and the provisioner die.
func (w *world) happenFrozen() {
	f, o := w.frozen, &w.o
	for _, pod := range f.pods {
		if !pod.freezes.IsZero() && !o.Now.Before(pod.freezes) {
			pod.frozen, pod.freezes = true, time.Time{}
			f.late++
		}
	}
	if w.failing {
		switch w.random.IntN(60) {
		case 0:
			w.die()
		case 1, 2:
			if len(f.pods) > 0 {
				// It restarts: what was frozen is not, or still is.
				pod := f.pods[w.random.IntN(len(f.pods))]
				pod.restarts++
				pod.frozen = pod.frozen && w.random.IntN(2) == 0
			}
		case 3, 4:
			if len(f.pods) > 0 {
				// It is replaced by another of its name, as one of a StatefulSet.
				i := w.random.IntN(len(f.pods))
				f.pods[i] = &frozenPod{name: f.pods[i].name, uid: w.uid()}
			}
		case 5:
			f.pods = nil
		case 6:
			if len(f.pods) < 2 {
				f.pods = append(f.pods, &frozenPod{name: fmt.Sprintf("new-%s", w.uid()), uid: w.uid()})
			}
		case 7:
			// Somebody deletes the snapshot, and nothing is left of it.
			if p := o.Record; p != nil && p.Point != nil && p.Point.Stage == record.Cut {
				o.Claims[0].Snapshot, o.Group = decide.Snapshot{}, decide.Group{}
			}
		}
	}
	o.Users = nil
	for _, pod := range f.pods {
		o.Users = append(o.Users, decide.User{Name: pod.name, UID: pod.uid, State: stateOf(pod)})
	}
}

// beginFrozen finds out which pods are to be frozen.
func (w *world) beginFrozen(p *record.Point) {
	p.Stage, p.Freeze = record.Freezing, &record.Freeze{Thaw: []string{"thaw"}, Since: w.o.Now, Limit: 30 * time.Second}
	for _, pod := range w.frozen.pods {
		p.Freeze.Pods = append(p.Freeze.Pods, record.FrozenPod{Name: pod.name, UID: pod.uid, State: stateOf(pod)})
	}
	w.o.Hold = decide.Fresh
}

// freeze calls the freeze in each pod that has the name of one, as the provisioner does.
func (w *world) freeze() {
	f, o := w.frozen, &w.o
	require.Equal(w.t, decide.Fresh, o.Hold, "it is called once")
	var outcomes []decide.Outcome
	for _, known := range o.Record.Point.Freeze.Pods {
		pod := f.named(known.Name)
		fails := w.failing && w.random.IntN(4) == 0
		switch {
		case pod == nil:
			outcomes = append(outcomes, decide.Outcome{Refused: true, Why: "there is no such pod"})
		case !fails:
			pod.frozen = true
			outcomes = append(outcomes, decide.Outcome{Ended: true})
		case w.random.IntN(3) == 0:
			outcomes = append(outcomes, decide.Outcome{Refused: true, Why: "forbidden"})
		case w.random.IntN(2) == 0:
			pod.frozen = w.random.IntN(2) == 0
			outcomes = append(outcomes, decide.Outcome{Ended: true, Why: "it exited with code 1"})
		default:
			// It hangs, and freezes the pod when nobody waits for it any more.
			f.hung++
			pod.freezes = o.Now.Add(o.Record.Point.Freeze.Limit + time.Duration(w.random.IntN(60))*time.Second)
			o.Now = o.Now.Add(o.Record.Point.Freeze.Limit)
			outcomes = append(outcomes, decide.Outcome{Why: "it did not end"})
		}
	}
	o.Hold = decide.Unknown
	if w.failing && w.random.IntN(6) == 0 {
		w.die()
		return
	}
	step := decide.AfterFreeze(o.Record, o.Now, outcomes)
	o.Record = step.Action.(decide.Save).Record
	if step.Reason == "" {
		o.Hold = decide.Holds
	}
}

// thaw calls the thaw in each pod for which it is time.
func (w *world) thaw() {
	o := &w.o
	outcomes := map[types.UID]decide.Outcome{}
	for _, known := range o.Record.Point.Freeze.Pods {
		pod := w.frozen.named(known.Name)
		switch {
		case !decide.MustThaw(known, o.Now):
		case pod == nil:
			outcomes[known.UID] = decide.Outcome{Refused: true, Why: "there is no such pod"}
		case w.failing && w.random.IntN(3) == 0:
			pod.frozen = pod.frozen && w.random.IntN(2) == 0
			outcomes[known.UID] = decide.Outcome{Why: "no answer"}
		default:
			pod.frozen = false
			outcomes[known.UID] = decide.Outcome{Ended: true}
		}
	}
	require.NotEmpty(w.t, outcomes)
	if w.failing && w.random.IntN(6) == 0 {
		w.die()
		return
	}
	o.Record = decide.AfterThaw(o.Record, o.Now, outcomes).Action.(decide.Save).Record
}

// checkMade checks of each version that is sealed that it is what it says.
func (w *world) checkMade(next *record.Record) {
	f := w.frozen
	if len(next.Sealed) <= len(w.o.Record.Sealed) || next.Sealed[len(next.Sealed)-1].Going {
		return
	}
	version := next.Sealed[len(next.Sealed)-1]
	f.made[version.Made]++
	require.Contains(w.t, []v1alpha1.VersionConsistency{v1alpha1.VersionFrozen, v1alpha1.VersionAtRest}, version.Made)
	require.Equal(w.t, f.asked, f.taken, "nothing was written between when the snapshot was asked for and taken")
	require.Equal(w.t, version.Made == v1alpha1.VersionAtRest, f.rested)
	require.Equal(w.t, fmt.Sprint(f.taken), version.Root, "and that is what is sealed")
}

// checkFrozen checks that no pod is frozen of which the record does not say that it is to be thawed, and none for too long.
func (w *world) checkFrozen() {
	p := (*record.Point)(nil)
	if w.o.Record != nil {
		p = w.o.Record.Point
	}
	for _, pod := range w.frozen.pods {
		if pod.frozen || !pod.freezes.IsZero() {
			require.True(w.t, p != nil && p.Owed(), "pod %s stays frozen: %+v", pod.name, p)
		}
	}
	if p != nil && p.Held() && p.Stage == record.Cut {
		require.Less(w.t, w.o.Now.Sub(p.Freeze.Since), p.Freeze.Limit+30*time.Second, "it is frozen no longer than it may be")
	}
}

// TestNoApplicationStaysFrozenWhateverHappens has applications frozen for points while freezes and thaws fail, hang and take effect late,
// pods come, go and restart, and the provisioner dies at any call. No pod stays frozen, and no version says of itself what is not so.
func TestNoApplicationStaysFrozenWhateverHappens(t *testing.T) {
	made, deaths, hung, late := map[v1alpha1.VersionConsistency]int{}, 0, 0, 0
	for seed := range uint64(40) {
		w := newWorld(t, seed, 1+int(seed%2))
		w.useFreeze()
		for range 1500 {
			w.step()
		}
		w.failing = false
		before := w.o.Record.Last
		for range 2500 {
			w.step()
		}
		require.Greater(t, w.o.Record.Last, before+1, "it goes on: %+v", w.o.Record)
		require.Zero(t, w.o.Record.Failures, w.o.Record.Why)
		w.o.Replica.DeletionTimestamp = &metav1.Time{Time: w.o.Now}
		for range 1000 {
			if w.o.Replica == nil {
				break
			}
			w.step()
		}
		require.Nil(t, w.o.Replica, "%+v", w.o.Record)
		for _, pod := range w.frozen.pods {
			require.False(t, pod.frozen)
		}
		for how, n := range w.frozen.made {
			made[how] += n
		}
		deaths, hung, late = deaths+w.frozen.deaths, hung+w.frozen.hung, late+w.frozen.late
	}
	t.Log(made, deaths, "deaths", hung, "hung", late, "late")
	require.Greater(t, made[v1alpha1.VersionFrozen], 100)
	require.Greater(t, made[v1alpha1.VersionAtRest], 20)
	require.Greater(t, min(deaths, hung, late), 20, "what is to go wrong does")
}

// held is an observation of a point while its application is frozen.
func held(tune ...func(*decide.Observation)) decide.Observation {
	o := observation(1)
	o.Hold, o.Now = decide.Holds, noon.Add(2*time.Second)
	o.Record.Point = &record.Point{Number: 2, Stage: record.Cut, Since: noon, Cut: noon, Freeze: &record.Freeze{Thaw: []string{"thaw", "it"},
		Since: noon, Limit: 10 * time.Second, Pods: []record.FrozenPod{{Name: "db-0", UID: "p0", State: "a", Container: "db", Ended: true}}}}
	w := newWorld(nil, 1, 1)
	o.Record.Point.Source.UID = sourceUID(0)
	o.Claims[0].Origin = w.o.Claims[0].Origin
	o.Claims[0].Snapshot = decide.Snapshot{Exists: true, UID: "s", Taken: true}
	o.Users = []decide.User{{Name: "db-0", UID: "p0", State: "a"}}
	for _, change := range tune {
		change(&o)
	}
	return o
}

func TestAPointIsFrozenOnlyIfTheFreezeHeldAroundItsSnapshot(t *testing.T) {
	for name, row := range map[string]struct {
		tune func(*decide.Observation)
		why  string
	}{
		"it held": {tune: func(*decide.Observation) {}},
		"the provisioner restarted": {tune: func(o *decide.Observation) { o.Hold = decide.Unknown },
			why: "the provisioner restarted while the application was frozen"},
		"it was thawed, for the record could not be written": {tune: func(o *decide.Observation) { o.Hold = decide.Thawed },
			why: "the record could not be written while the application was frozen, so that was thawed: see whether home's API server takes"},
		"it may be frozen, and the record could not be written": {tune: func(o *decide.Observation) { o.Hold = decide.Unsaved },
			why: "the record could not be written while the application was frozen"},
		"the snapshot takes too long": {tune: func(o *decide.Observation) { o.Now = noon.Add(11 * time.Second) },
			why: "the snapshot was not taken within 10s, and the application may be frozen no longer: raise spec.hooks.timeout"},
		"its cluster does not answer": {tune: func(o *decide.Observation) { o.Source.Unusable = "cluster west does not answer" },
			why: "cluster west does not answer"},
		"a container restarted": {tune: func(o *decide.Observation) { o.Users[0].State = "b" },
			why: "pod db-0 ended, or one of its containers restarted, while the snapshot was taken"},
		"a pod ended": {tune: func(o *decide.Observation) { o.Users[0].Ended = true }, why: "pod db-0 ended"},
		"a pod went": {tune: func(o *decide.Observation) { o.Users = nil },
			why: "a pod ended while the snapshot was taken, which was frozen: db-0"},
		"a pod came": {tune: func(o *decide.Observation) { o.Users = append(o.Users, decide.User{Name: "job", UID: "j"}) },
			why: "pod job started while the snapshot was taken, and was not frozen"},
		"a pod came and ended": {tune: func(o *decide.Observation) {
			o.Users = append(o.Users, decide.User{Name: "job", UID: "j", Ended: true})
		},
			why: "pod job ran while the snapshot was taken, and was not frozen"},
		"one had ended long ago": {tune: func(o *decide.Observation) {
			o.Users = append(o.Users, decide.User{Name: "job", UID: "j", Ended: true})
			o.Record.Point.Freeze.Rested = []types.UID{"j"}
		}},
		"the snapshot is of another volume": {tune: func(o *decide.Observation) {
			o.Claims[0].Snapshot.Wrong, o.Claims[0].Snapshot.Problem = true, "it is of another volume"
		}, why: "it is of another volume"},
		"the replica was deleted": {tune: func(o *decide.Observation) { o.Replica.DeletionTimestamp = &metav1.Time{Time: noon} },
			why: "the VolumeReplica was deleted"},
	} {
		t.Run(name, func(t *testing.T) {
			step := decide.Next(held(row.tune))
			save, ok := step.Action.(decide.Save)
			require.True(t, ok, "%+v", step)
			assert.Equal(t, record.Thaw, save.Record.Point.Stage, "it is thawed first")
			assert.Contains(t, save.Record.Point.Why, row.why)
			assert.Equal(t, row.why == "", save.Record.Point.Why == "", save.Record.Point.Why)
		})
	}
}

func TestAThawIsCalledUntilItEndsWell(t *testing.T) {
	o := held(func(o *decide.Observation) { o.Record.Point.Stage, o.Record.Point.Freeze.Taken = record.Thaw, noon })
	assert.Equal(t, decide.Thaw{}, decide.Next(o).Action)
	pauses := []time.Duration{}
	for range 9 {
		step := decide.AfterThaw(o.Record, o.Now, map[types.UID]decide.Outcome{"p0": {Why: "no\nanswer"}})
		assert.Equal(t, decide.ThawFailed, step.Reason)
		assert.Equal(t, "pod db-0 may still be frozen, for its thaw failed, and is tried again: no answer; if that goes on, run it yourself "+
			"(kubectl exec db-0 -c db -- thaw it), or delete the pod", step.Say)
		o.Record = step.Action.(decide.Save).Record
		wait := decide.Next(o)
		assert.Nil(t, wait.Action)
		assert.Equal(t, decide.ThawFailed, wait.Reason)
		pauses = append(pauses, wait.After/time.Second)
		o.Now = o.Now.Add(wait.After)
	}
	assert.Equal(t, []time.Duration{1, 2, 4, 8, 16, 32, 60, 60, 60}, pauses)
	o.Record = decide.AfterThaw(o.Record, o.Now, map[types.UID]decide.Outcome{"p0": {Ended: true}}).Action.(decide.Save).Record
	assert.True(t, o.Record.Point.Freeze.Pods[0].Thawed)
	o.Claims[0].Snapshot.UID, o.Record.Point.Freeze.Snapshot = "s", "s"
	save, ok := decide.Next(o).Action.(decide.Save)
	require.True(t, ok)
	assert.Equal(t, record.Cut, save.Record.Point.Stage)
	assert.True(t, save.Record.Point.Freeze.Over)
	assert.Equal(t, v1alpha1.VersionFrozen, save.Record.Point.Made())

	// The pod is gone: nothing is to be thawed. One of its name may be what was frozen.
	o = held(func(o *decide.Observation) {
		o.Record.Point.Stage, o.Record.Point.Why, o.Users = record.Thaw, "no", nil
	})
	save, ok = decide.Next(o).Action.(decide.Save)
	require.True(t, ok)
	assert.Equal(t, record.Clean, save.Record.Point.Stage)
	o.Users = []decide.User{{Name: "db-0", UID: "p1"}}
	assert.Equal(t, decide.Thaw{}, decide.Next(o).Action)
}

func TestAFreezeThatHangsIsThawedUntilItCanHaveEnded(t *testing.T) {
	o := held(func(o *decide.Observation) { o.Record.Point.Stage, o.Hold = record.Freezing, decide.Fresh })
	assert.Equal(t, decide.Freeze{}, decide.Next(o).Action)
	step := decide.AfterFreeze(o.Record, noon.Add(10*time.Second), []decide.Outcome{{Why: `"freeze" did not end within 10s`}})
	assert.Equal(t, decide.PointFailed, step.Reason)
	o.Record, o.Now = step.Action.(decide.Save).Record, noon.Add(10*time.Second)
	assert.Equal(t, `pod db-0 could not be frozen: "freeze" did not end within 10s`, o.Record.Point.Why)
	first := o.Now
	for {
		step = decide.Next(o)
		if save, ok := step.Action.(decide.Save); ok {
			assert.Equal(t, record.Clean, save.Record.Point.Stage)
			break
		}
		if step.Action == nil {
			o.Now = o.Now.Add(step.After)
			continue
		}
		require.Equal(t, decide.Thaw{}, step.Action)
		o.Record = decide.AfterThaw(o.Record, o.Now, map[types.UID]decide.Outcome{"p0": {Ended: true}}).Action.(decide.Save).Record
	}
	assert.Equal(t, 3, o.Record.Point.Freeze.Pods[0].Thaws)
	assert.Equal(t, 70*time.Second, o.Now.Sub(first))

	// What was refused was never frozen, and one try is enough.
	o = held()
	step = decide.AfterFreeze(o.Record, o.Now, []decide.Outcome{{Refused: true, Why: "forbidden"}})
	step = decide.AfterThaw(step.Action.(decide.Save).Record, o.Now, map[types.UID]decide.Outcome{"p0": {Refused: true, Why: "forbidden"}})
	assert.Empty(t, step.Reason)
	assert.True(t, step.Action.(decide.Save).Record.Point.Freeze.Pods[0].Thawed)
}
