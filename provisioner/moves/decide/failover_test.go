package decide_test

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/backing"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/podlease"
	"github.com/lodestone-storage/lodestone/provisioner/moves/decide"
	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
	"github.com/lodestone-storage/lodestone/provisioner/moves/steps"
	"github.com/lodestone-storage/lodestone/provisioner/witness/proof"
)

// lostCluster is where the source of a failover is.
const lostCluster = "east"

// version is what is different where a claim gets a version of a replica.
type version struct {
	content int
	// declared says that somebody vouches for the source, and lost that its cluster never answers. deferred says that the storage of
	// the target waits for a pod.
	declared, lost, deferred bool
	// lease says that the remote agent at the source has promised to end pods there, and heard when home was heard there last.
	lease bool
	heard time.Time
	// aliens says that some pods at the source are not made by that agent, which does not end them.
	aliens bool
	// slots says that the replica keeps its versions in real claims, and overwritten that it does not count this one any more.
	slots, overwritten bool
	// released counts pods that were given up.
	released int
}

// slotOf is the real claim in which a replica keeps the version of a claim.
func slotOf(i int) *corev1.PersistentVolumeClaim {
	b := copyOf(i)
	b.Labels = map[string]string{keys.ReplicaOf: "r1"}
	return b
}

// first adds what is recorded of a claim first.
func (v *version) first(r *record.Record, c *claim, target backing.Ref) {
	r.Passes = 0
	i := len(r.Claims)
	has := record.Sealed{Version: fmt.Sprint("v1-", i), UID: "s1", Deferred: v.deferred}
	if v.slots {
		has.UID = slotOf(i).UID
	}
	if i == 0 {
		r.Failover = &record.Failover{Replica: "data", Cut: start, Declared: v.declared, Lease: v.lease, Sealed: has}
		if v.slots {
			r.Failover.Slots = "r1"
		}
	} else {
		r.Failover.Others = append(r.Failover.Others, has)
	}
	source := ref(record.Source, i)
	source.Cluster = lostCluster
	r.Claims = append(r.Claims, record.Claim{Name: c.claim.Name, UID: c.claim.UID, Volume: c.volume, Generation: 2,
		Source: record.Copy{Ref: source}, Target: record.Copy{Ref: target}})
}

// checkVersion checks what must hold at every moment.
func (w *world) checkVersion(c *claim, at record.End) {
	s, d := c.at[record.Source], c.at[record.Target]
	asked := w.move != nil && w.move.Spec.Action != v1alpha1.ActionMove
	w.must(s.backing != nil || asked, "what was written after the version is removed, and nobody said so")
	w.must(at != record.Source || s.backing != nil, "the volume names a copy that was removed")
	w.must(at != record.Target || d.backing != nil && d.real != nil && d.content >= w.version.content, "the volume names what is no version")
	w.must(at != record.Target || !d.mover.Exists, "a mover beside pods")
	w.must(!s.mover.Exists, "something is to be copied")
}

// leased is the lease of a source whose agent has promised one.
const leased = time.Minute

// silence is what home knows of the source while that does not answer.
func (w *world) silence() podlease.Silence {
	if w.version == nil || !w.version.lease || !w.down[record.Source] {
		return podlease.Silence{Why: "nothing is promised"}
	}
	return podlease.Silence{Length: leased, Quiet: w.now.Sub(w.version.heard)}
}

// leaseLives has the agent at the source end the pods there once home is silent, also those that home knows nothing of any more.
func (w *world) leaseLives() {
	if !w.down[record.Source] {
		w.version.heard = w.now
	}
	if w.hasEnded() {
		w.forced.running = slices.DeleteFunc(w.forced.running, func(s *straggler) bool { return !s.alien })
	}
}

// hasEnded says whether the agent has kept its promise: it takes some seconds, and so does a kubelet.
func (w *world) hasEnded() bool {
	return w.version.lease && w.now.Sub(w.version.heard) >= leased+grace*time.Second+20*time.Second
}

// release gives up a pod, which goes on where nobody sees it, unless it has ended there.
func (w *world) release(uid types.UID) {
	p := w.find(uid)
	w.must(w.version != nil && (w.version.declared || w.hasEnded() && p.Hosted), "a pod is given up, and nobody vouches for it")
	w.must(p.Leaving && w.reading(p), "a pod is given up that runs elsewhere, or is in use")
	w.pods = slices.DeleteFunc(w.pods, func(other *pod) bool { return other == p })
	if w.version.declared {
		w.forced.running = append(w.forced.running, &straggler{left: time.Minute})
	}
	w.version.released++
}

// TestAFailoverNeverHarms gives claims versions, with lost requests, clusters that do not answer for a while or for ever, pods that run
// on, and users who change their mind.
func TestAFailoverNeverHarms(t *testing.T) {
	ends, released, given, waited := map[v1alpha1.MovePhase]int{}, 0, 0, 0
	for seed := range uint64(450) {
		w := newWorld(t, seed, 1+int(seed/2%3))
		choice := rand.New(rand.NewPCG(seed, 11))
		w.group = nil
		for i, c := range w.claims {
			c.single, c.snap, c.attaches = false, nil, false
			c.at[record.Source].real = nil
			w.truth[i] = 1_000_000
		}
		w.version = &version{content: w.truth[0], declared: seed%2 == 0, lease: seed%4 == 1, heard: w.now,
			lost: seed%6 == 0 || seed%12 == 1, deferred: choice.IntN(2) == 0,
			slots: seed >= 300, overwritten: seed%13 == 0}
		w.version.aliens = w.version.lease && !w.version.lost && choice.IntN(2) == 0
		for i, c := range w.claims {
			if d := c.at[record.Target]; w.version.slots {
				d.backing, d.real, d.content = slotOf(i), &corev1.PersistentVolume{}, w.version.content
			}
		}
		meddleAt, wish := choice.IntN(150), choice.IntN(5)
		turn := 0
		for ; ; turn++ {
			require.Less(t, turn, 3000, "seed %d: it does not end: %+v\n%v", seed, decide.Next(w.observe()), w.log)
			w.live()
			w.leaseLives()
			for _, c := range w.claims {
				if d := c.at[record.Target]; d.backing != nil && d.real == nil && !w.version.deferred && w.r.IntN(2) == 0 {
					d.real = &corev1.PersistentVolume{}
				}
			}
			if turn == meddleAt && w.move.Spec.Action == v1alpha1.ActionMove {
				switch wish {
				case 0:
					w.move.Spec.Action = v1alpha1.ActionAbort
				case 1:
					w.move.Spec.Action = v1alpha1.ActionGiveUp
				}
			}
			if turn == 300 {
				w.calm = true
				clear(w.down)
			}
			switch action := &w.move.Spec.Action; {
			case turn == 400 && *action == v1alpha1.ActionMove:
				*action = v1alpha1.ActionFinalize
			case turn == 400 && *action == v1alpha1.ActionAbort:
				// It came too late, and cannot be taken back.
				w.move.DeletionTimestamp = &metav1.Time{Time: w.now}
			}
			if turn == 500 && w.version.lost {
				w.move.Spec.Action = v1alpha1.ActionGiveUp
			}
			w.down[record.Source] = w.down[record.Source] || w.version.lost
			w.check()
			o := w.observe()
			if o.Record != nil && o.Record.Over() {
				break
			}
			if !w.calm && !w.down[record.Source] && w.r.IntN(10) == 0 {
				// It answers, but for one request.
				o.Source.Unusable = "a request failed"
			}
			step := decide.Next(o)
			if save, is := step.Action.(steps.Save); is && o.Record.Phase != v1alpha1.MoveCommit && save.Record.Phase == v1alpha1.MoveCommit {
				fence := save.Record.Failover.Fence
				w.must(w.down[record.Source] == (fence != v1alpha1.FenceProven), "fence %s of a source that is away: %t", fence,
					w.down[record.Source])
				w.must(fence != v1alpha1.FenceLease || w.hasEnded(), "home has not waited for the pods at the source")
				alien := func(p *pod) bool { return w.reading(p) && !p.Hosted }
				w.must(fence != v1alpha1.FenceLease || !slices.ContainsFunc(w.pods, alien), "a pod at the source was not promised to end")
			}
			w.must(!w.down[record.Target] || !strings.Contains(step.Say, "cannot be used"), "who cannot look goes back: %s", step.Say)
			for _, one := range step.Each() {
				end := one.Subject().End
				w.must(end == "" || !w.down[end], "a request to a cluster that does not answer: %s", one.Verb())
				if w.calm || w.r.IntN(100) >= 15 {
					w.apply(one)
				}
				w.check()
			}
		}
		r := w.decoded()
		ends[r.Phase]++
		released += w.version.released
		stays := r.GaveUp(record.Source) || w.move.DeletionTimestamp != nil
		for i, c := range w.claims {
			require.Empty(t, c.claim.Finalizers, "seed %d", seed)
			require.Empty(t, c.claim.Labels[keys.Moving], "seed %d: pods wait for ever", seed)
			if r.Phase != v1alpha1.MoveDone {
				require.Equal(t, record.Source, c.current(i), "seed %d", seed)
				if w.version.slots {
					require.True(t, r.GaveUp(record.Target) || reflect.DeepEqual(slotOf(i), c.at[record.Target].backing),
						"seed %d: the replica has its slot again", seed)
					continue
				}
				require.True(t, c.at[record.Target].backing == nil || r.GaveUp(record.Target), "seed %d: something is left at the target", seed)
				continue
			}
			require.Equal(t, record.Target, c.current(i), "seed %d: all get the version, or none", seed)
			if !r.GaveUp(record.Source) || len(w.claims) == 1 {
				// Of several some may have gone before their cluster was given up.
				require.Equal(t, stays, c.at[record.Source].backing != nil, "seed %d", seed)
			}
		}
		if r.Phase != v1alpha1.MoveDone {
			continue
		}
		require.NotEmpty(t, r.Failover.Fence)
		switch r.Failover.Fence {
		case v1alpha1.FenceDeclared:
			require.True(t, w.version.declared, "seed %d", seed)
			given++
		case v1alpha1.FenceLease:
			require.True(t, w.version.lease, "seed %d", seed)
			waited++
		default:
		}
	}
	for _, phase := range []v1alpha1.MovePhase{v1alpha1.MoveDone, v1alpha1.MoveAborted} {
		require.Greater(t, ends[phase], 20, "too few end as %s to say anything: %v", phase, ends)
	}
	require.Greater(t, released, 20, "too few pods were given up to say anything")
	require.Greater(t, given, 20, "too few sources were vouched for to say anything")
	require.Greater(t, waited, 10, "too few leases were waited for to say anything")
}

func TestALeaseCountsOnlyForPodsThatTheRemoteAgentHasMade(t *testing.T) {
	of := func(cluster string, hosted bool) steps.Pod {
		return steps.Pod{Name: "db-0", UID: "d", Cluster: cluster, Owned: true, Bound: true, Leaving: true, Hosted: hosted}
	}
	known := func(hosted bool) proof.Pod {
		return proof.Pod{Cluster: lostCluster, UID: "k", Name: "tool", Node: "n", Hosted: hosted}
	}
	for name, row := range map[string]struct {
		declared bool
		pods     []steps.Pod
		known    []proof.Pod
		unended  []proof.Pod
		verb     string
		need     steps.Need
		say      string
	}{
		"its own is given up": {pods: []steps.Pod{of(lostCluster, true)}, verb: "ReleasePod", say: "as the remote agent there has promised"},
		"that of another program is waited for": {pods: []steps.Pod{of(lostCluster, false)}, verb: "Idle", need: steps.ClusterAway,
			say: "pod db-0 has no finalizer lodestone.dev/remote-pod, so the remote agent of cluster east has not made it"},
		"which is given up where somebody vouches for it": {declared: true, pods: []steps.Pod{of(lostCluster, false)}, verb: "ReleasePod",
			say: "its successor may run beside it"},
		"one elsewhere ends there": {pods: []steps.Pod{of("south", false)}, verb: "Idle", say: "waiting until the volume is free of pod db-0"},
		"one of that cluster's own users that was seen is waited for": {known: []proof.Pod{known(false)}, verb: "Idle", need: steps.NodeAway,
			say: "waiting until it is known that nobody writes on node n of east"},
		"… and one that was missed": {unended: []proof.Pod{known(false)}, verb: "Idle", need: steps.NodeAway,
			say: "waiting until it is known that nobody writes on node n of east"},
		"… unless somebody vouches for it": {declared: true, known: []proof.Pod{known(false)}, unended: []proof.Pod{known(false)},
			verb: "DeleteVolume"},
		"its own that was seen, and of which nothing is left at home, is given its grace period": {known: []proof.Pod{{Cluster: lostCluster,
			UID: "k", Node: "n", Grace: 7200, Hosted: true}}, verb: "Idle", say: "its remote agent ends the pods there, and it is waited until"},
		"its own that was seen is not": {known: []proof.Pod{known(true)}, unended: []proof.Pod{known(true)}, verb: "DeleteVolume"},
	} {
		t.Run(name, func(t *testing.T) {
			o := in(v1alpha1.MoveFence)
			o.Record.Failover = &record.Failover{Replica: "data", Declared: row.declared, Lease: !row.declared, Grace: 30}
			o.Record.Claims[0].Source.Ref.Cluster = lostCluster
			o.Source = steps.Cluster{Unusable: "cluster east does not answer", Away: true,
				Silence: podlease.Silence{Length: leased, Quiet: time.Hour}}
			o.Pods, o.Record.Pods, o.Unended = row.pods, row.known, row.unended
			o.Nodes = map[proof.Node]proof.Absence{{Cluster: lostCluster, Name: "n"}: {Why: "cluster east does not answer"}}
			o.Record.Known = proof.Next(o.Record.Known, o.Now, o.Seen, true)
			step := decide.Next(o)
			if save, is := step.Action.(steps.Save); is {
				o.Record = save.Record
				step = decide.Next(o)
			}
			assert.Equal(t, row.verb, step.Verb(), step.Say)
			assert.Equal(t, row.need, step.Need)
			assert.Contains(t, step.Say, row.say)
		})
	}
}
