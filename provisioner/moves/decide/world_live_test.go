package decide_test

import (
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/movecontrol"
	"github.com/lodestone-storage/lodestone/provisioner/moves/decide"
	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
)

// moverLives is the node of each mover, and the mover.
func (w *world) moverLives(i int, c *claim, chance func(int) bool) {
	w.snapshotLives(i, c, chance)
	for _, end := range []record.End{record.Source, record.Target, record.Snapped} {
		m := &c.at[end].mover
		switch {
		case m.Exists && m.Leaving && chance(50):
			*m = decide.Mover{}
			if end == record.Source {
				c.alive = false
			}
		case m.Exists && !m.Leaving && !m.Ended && !m.Unstarted && !m.Keyless && !m.Running && chance(60):
			m.Running = true
			if end == record.Target {
				// A class that binds with the first pod.
				c.at[end].real, m.Node = &corev1.PersistentVolume{}, "target-1"
			}
			if end == record.Snapped {
				c.snap.mover = movecontrol.Status{Instance: "snapshot"}
			}
			if end == record.Source {
				w.made++
				c.alive, c.mover = true, movecontrol.Status{Instance: fmt.Sprintf("i%d", w.made)}
			}
		}
	}
	task := c.mover.Task
	if !c.alive || task == nil || task.State != movecontrol.Running || !c.at[record.Source].mover.Running || !c.at[record.Target].mover.Running || chance(50) {
		return
	}
	s, d := c.at[record.Source], c.at[record.Target]
	task.State = movecontrol.Done
	switch task.Kind {
	case movecontrol.Prepare:
		task.Prepared = &movecontrol.Prepared{Bytes: 1, Source: sourceOf(i)}
	case movecontrol.Pass:
		d.content = s.content
		task.Passed = &movecontrol.Passed{}
	case movecontrol.Final:
		if r := w.decoded(); r == nil || r.Phase == v1alpha1.MoveRollBack {
			// Its result counts for nothing any more.
			return
		}
		for _, p := range w.pods {
			w.must(!p.Bound || p.at != record.Source, "the last pass while a pod writes")
		}
		w.must(c.volume == nil, "the last pass while the volume can be mounted")
		d.content = s.content
		if !w.calm && chance(10) {
			d.content = -2 // the disk lies
		}
	case movecontrol.Verify:
		task.Verified = &movecontrol.Verified{SourceRoot: fmt.Sprint(s.content), TargetRoot: fmt.Sprint(d.content), Equal: s.content == d.content}
	}
}

// sourceOf is what Prepare saw of the source of a claim.
func sourceOf(i int) json.RawMessage { return fmt.Appendf(nil, `{"entries":%d}`, i) }

// podsLive is the owner of the pods, the scheduler, which may not have heard of a lock
// yet, their nodes, and the application.
func (w *world) podsLive(chance func(int) bool) {
	here := false
	var kept []*pod
	for _, p := range w.pods {
		here = here || !p.Leaving
		if p.Leaving && (!p.Bound || chance(40) && !(w.reading(p) && w.forced.silent)) {
			w.goneWell(p)
			continue
		}
		kept = append(kept, p)
	}
	w.pods = kept
	stale := !w.calm && chance(10)
	if !here && chance(70) && w.claims[0].claim != nil {
		w.made++
		p := &pod{Pod: decide.Pod{Name: "db-0", UID: types.UID(fmt.Sprintf("p%d", w.made)), Owned: true}}
		for _, c := range w.claims {
			p.Gated = p.Gated || c.claim.Labels[keys.Moving] != "" && !stale
		}
		w.pods = append(w.pods, p)
	}
	for _, p := range w.pods {
		if !p.Bound && !p.Leaving && !p.Gated && chance(60) {
			w.schedule(p, stale)
		}
		if p.Bound && chance(80) {
			p.Ready = true
			for i, c := range w.claims {
				w.truth[i]++
				c.at[p.at].content = w.truth[i]
			}
		}
	}
}

func (w *world) schedule(p *pod, stale bool) {
	at := record.End("")
	for i, c := range w.claims {
		// What a node mounts, it looks at just before.
		if c.claim == nil || c.claim.Status.Phase != corev1.ClaimBound || c.volume == nil || c.volume.DeletionTimestamp != nil || c.claim.Annotations[keys.Move] != "" && !stale {
			return
		}
		if at != "" && at != c.current(i) {
			return
		}
		at = c.current(i)
		if m := c.at[at].mover; c.single && m.Exists && !m.Unstarted {
			return // the scheduler and the node keep a second pod out
		}
	}
	p.Bound, p.at = true, at
}
