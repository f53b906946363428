package decide_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/backing"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/claims/decide"
	"github.com/lodestone-storage/lodestone/provisioner/claims/steps"
)

// outages are how long west is unreachable; 0: only that one request is lost.
var outages = []time.Duration{0, time.Second, 30 * time.Second, 2 * time.Minute, 10 * time.Minute}

// requests is the most requests that one step makes in west.
const requests = 2

// TestOutagesAtEachStep makes west unreachable at each step of each scenario that involves
// it: before each request of the step, after it with its answer lost, and in each second of
// the scenario. Whenever west comes back, the scenario must end as its user asked.
//
// Without E2E_LONG only two of the durations are tried.
func TestOutagesAtEachStep(t *testing.T) {
	t.Parallel()
	outages := outages
	if os.Getenv("E2E_LONG") == "" {
		outages = []time.Duration{0, 2 * time.Minute}
	}
	var text strings.Builder
	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	head := "flow\twest goes away at"
	for _, length := range outages {
		head += "\t" + length.String()
	}
	fmt.Fprintln(table, head)
	tried := 0
	for _, flow := range outageFlows() {
		usual := play(t, flow, outage{step: -1, second: -1})
		row := func(name string, cases []outage) {
			line := flow.name + "\t" + name
			for _, length := range outages {
				count, slowest := 0, time.Duration(0)
				for _, c := range cases {
					c.length = length
					if x := play(t, flow, c); x.met {
						count++
						slowest = max(slowest, x.worked.Sub(x.back))
					}
				}
				line += fmt.Sprintf("\t%d, %v", count, slowest)
				tried += count
			}
			fmt.Fprintln(table, line)
		}
		for n, step := range usual.steps {
			var cases []outage
			for cut := range requests + 1 {
				if cut == 0 || step.Cluster() == "west" {
					cases = append(cases, outage{step: n, cut: cut, second: -1})
				}
			}
			row(fmt.Sprintf("%d %s, %s", n+1, step.Verb(), step.Cluster()), cases)
		}
		var cases []outage
		for second := time.Duration(0); second <= max(0, usual.worked.Sub(usual.acted))+2*time.Second; second += time.Second {
			cases = append(cases, outage{step: -1, second: second})
		}
		row("any second", cases)
		row("before it begins", []outage{{step: -1, second: -1, early: true}})
	}
	require.NoError(t, table.Flush())
	t.Logf("cases that ended well, and how long after west was back the slowest did:\n%s\n%d cases tried, all survived", text.String(), tried)
	require.Greater(t, tried, 120*len(outages))
}

const (
	// notice is how long home needs to notice that a cluster is unreachable or back.
	notice = 5 * time.Second
	// rest is for how long a finished scenario must have no further step; patient is how
	// long it may take to finish after west is back.
	rest, patient = 10 * time.Second, 5 * time.Minute
)

// outage is one run of a scenario.
type outage struct {
	*world
	t    *testing.T
	flow outageFlow
	// step is the number of the step at which west becomes unreachable, -1 for none; cut is
	// how many of its requests take effect before. With second, west becomes unreachable
	// that long after the user's action instead.
	step, cut int
	second    time.Duration
	// early: west is unreachable, and home knows it, before the user acts.
	early  bool
	length time.Duration

	acted, begun, back time.Time
	// real is the real volume that exists before the user acts.
	real types.UID
	// steps are the steps since the user's action.
	steps []steps.Step
	// worked is when the last step was taken; met: the step made that many requests.
	worked time.Time
	met    bool
}

// play simulates one run, and fails if it does not end well.
func play(t *testing.T, flow outageFlow, o outage) outage {
	t.Helper()
	w := newWorld(1)
	x := o
	x.world, x.t, x.flow = w, t, flow
	w.Rand = rand.New(rand.NewPCG(7, 7))
	w.faulty = false
	for _, s := range w.sites {
		s.skew = 0
	}
	w.base.Class.Parameters = map[string]string{keys.RemoteClass: flow.real, keys.LocalClass: "now", keys.Carry: "team"}
	w.base.Class.ReclaimPolicy, w.retained = nil, false
	if flow.retained {
		retain(&w.base)
		w.retained = true
	}
	w.sites["west"].stuck = flow.stuck
	if flow.from != nil {
		flow.from(&w.base)
	}
	w.selects("west-1")
	w.refresh()
	for !x.done() {
		x.tick()
	}
	return x
}

// done says whether the run is over.
func (x *outage) done() bool {
	x.t.Helper()
	wrong := x.flow.want(x.world)
	since := x.worked
	for _, at := range []time.Time{x.acted, x.back} {
		if at.After(since) {
			since = at
		}
	}
	planned := x.step >= 0 || x.second >= 0 || x.early
	if x.flow.served && wrong == "" && !x.acted.IsZero() && x.sites["west"].real != nil && x.sites["west"].real.UID != x.real {
		wrong = "the real volume is another"
	}
	resting := !x.acted.IsZero() && x.now.Sub(since) >= rest
	switch {
	case x.made > x.flow.most:
		require.Fail(x.t, "too many backing claims were made", x.about(wrong))
	case resting && wrong == "" && (!planned || !x.back.IsZero()):
		return true
	case !x.acted.IsZero() && x.now.Sub(since) > patient && (x.back.IsZero() != planned):
		require.Fail(x.t, "it does not end well", x.about(wrong))
	case x.now.Sub(now) > time.Hour:
		require.Fail(x.t, "it does not end", x.about(wrong))
	}
	return false
}

func (x *outage) about(wrong string) string {
	return fmt.Sprintf("%s, away for %v from step %d on, after %d of its requests, or after %v: %s; told %s\n%s",
		x.flow.name, x.length, x.step+1, x.cut, x.second, wrong, x.told, strings.Join(x.trace, "\n"))
}

// tick advances the time.
func (x *outage) tick() {
	moment := time.Second
	if !x.begun.IsZero() && x.back.IsZero() && x.now.Sub(x.worked) > 10*time.Second && x.length-x.now.Sub(x.begun) > 10*time.Second {
		// Nothing happens during the outage, so take longer steps.
		moment = 5 * time.Second
	}
	x.now = x.now.Add(moment)
	x.turn()
	home := x.sites[keys.Home]
	x.schedule(home)
	x.controllers(home)
	for _, id := range []string{keys.Home, "west", "east"} {
		x.provision(x.sites[id])
	}
	x.pod(home)
	if x.flow.play != nil && !x.acted.IsZero() {
		x.flow.play(x.world)
	}
	x.refresh()
	if x.acted.IsZero() && x.ready() {
		x.acted = x.now
		if x.flow.served {
			x.real = x.sites["west"].real.UID
		}
		if x.early {
			x.leave()
			west := x.sites["west"]
			west.away, west.noticed, west.since, x.met = true, true, x.now, true
		}
		if x.flow.act != nil {
			x.flow.act(x.world)
			x.refresh()
		}
	}
	for steps := 0; x.takeStep(); steps++ {
		require.Less(x.t, steps, 20, "it does not come to rest: %s", x.about(""))
		x.refresh()
	}
	x.store()
	x.refresh()
}

// ready says whether the user may act.
func (x *outage) ready() bool {
	switch {
	case x.flow.served:
		return x.served("west") == "" && decide.Next(x.observe()).Verb() == "Idle"
	case x.flow.stuck:
		return x.sites["west"].backing != nil
	}
	return true
}

// turn makes west unreachable and reachable again, and home notice that.
func (x *outage) turn() {
	west := x.sites["west"]
	if x.second >= 0 && x.begun.IsZero() && !x.acted.IsZero() && x.now.Sub(x.acted) >= x.second {
		x.leave()
		west.away, x.met = true, true
	}
	if x.begun.IsZero() {
		return
	}
	if x.back.IsZero() && x.now.Sub(x.begun) >= x.length {
		x.arrive()
	}
	gone := x.back.IsZero()
	if gone && !west.noticed && x.now.Sub(x.begun) >= notice || !gone && west.noticed && x.now.Sub(x.back) >= notice {
		west.noticed, west.since = gone, x.now
	}
}

func (x *outage) leave() {
	x.begun = x.now
	x.trace = append(x.trace, x.now.Format(time.TimeOnly)+" west is away")
}

func (x *outage) arrive() {
	home, wrong := x.sites[keys.Home], x.flow.want(x.world)
	// A claim without a volume or a volume whose claim is gone waits for west; otherwise
	// the user has what they need.
	waits := (home.claim == nil) != (home.volume == nil)
	if x.length >= 30*time.Second && waits && wrong != "" && x.told == "" {
		require.Fail(x.t, "the user is not told what is waited for", x.about(wrong))
	}
	x.sites["west"].away = false
	x.back = x.now
	x.trace = append(x.trace, x.now.Format(time.TimeOnly)+" west is back")
}

// takeStep takes the next step, and says whether another one may follow at once.
func (x *outage) takeStep() bool {
	o := x.observe()
	step := decide.Next(o)
	if broken := harm(o, step); broken != "" {
		require.Fail(x.t, broken, x.about(fmt.Sprintf("step %+v", step)))
	}
	switch c := x.sites[keys.Home].claim; {
	case step.Tell != nil:
		x.told = step.Tell.Reason
	case c != nil && c.Annotations[keys.Refused] != "" && c.Annotations[keys.SelectedNode] == "":
		// The event was written when the last cluster refused the claim.
	default:
		x.told = ""
	}
	if step.Verb() == "Idle" {
		return false
	}
	x.trace = append(x.trace, fmt.Sprintf("%s %s %s", x.now.Format(time.TimeOnly), step.Verb(), step.Cluster()))
	strikes := !x.acted.IsZero() && x.begun.IsZero() && x.step == len(x.steps)
	if strikes {
		x.leave()
		x.cutting, x.world.cut = true, x.cut
	}
	if !x.acted.IsZero() {
		x.steps, x.worked = append(x.steps, step), x.now
	}
	data, had := x.data(), x.claims()
	err := x.act(o, step)
	x.lost(x.t, 1, data)
	if now := x.claims(); now > had && now > 1 {
		require.Fail(x.t, "a second backing claim that may hold data", x.about(""))
	}
	for _, s := range x.sites {
		// The API server itself deletes it.
		if b := s.backing; b != nil && b.DeletionTimestamp != nil && len(b.Finalizers) == 0 {
			s.backing = nil
		}
	}
	if strikes {
		// A step at home sends no request to west.
		x.met = x.sites["west"].away || x.cut == 0
		x.sites["west"].away, x.cutting = true, false
		if x.length == 0 {
			x.arrive()
		}
	}
	// If it is not gone yet, the question is repeated later.
	return err == nil && (step.Verb() != "Confirm" || x.gone)
}

// outageFlow is a scenario: something a user asks for while west becomes unreachable and
// comes back.
type outageFlow struct {
	name string
	// real is the real class of west; retained: reclaim policy Retain; stuck: west creates
	// no volume.
	real            string
	retained, stuck bool
	// from sets a data source in west, nil for an empty volume.
	from change
	// served: the claim has its volume in west before act, the user's action.
	served bool
	act    func(w *world)
	// play is what other programs do in each tick, nil for nothing beyond the usual.
	play func(w *world)
	// want says what is wrong with the end state, empty for nothing.
	want func(w *world) string
	// most is how many backing claims may be created.
	most int
}

const storageAttributes = "gold"

func outageFlows() []outageFlow {
	anywhere := func(w *world) string { return w.served("") }
	there := func(w *world) string { return w.served("west") }
	return []outageFlow{
		{name: "provision-remote", real: "now", want: anywhere, most: 2},
		{name: "provision-remote-wait", real: "wait", want: anywhere, most: 2},
		{name: "provision-remote-retain", real: "now", retained: true, want: anywhere, most: 2},
		{name: "abandon-remote", real: "now", stuck: true, act: (*world).deleteClaim, want: (*world).empty, most: 1},
		{name: "reschedule-refused", real: "now", act: func(w *world) { w.sites["west"].full = true }, want: anywhere, most: 2},
		{name: "reschedule-moved", real: "now", stuck: true, act: func(w *world) { w.selects("home-1") }, want: anywhere, most: 2},
		{name: "copy-remote", real: "now", from: copyIn("west"), want: there, most: 1},
		{name: "copy-remote-wait", real: "wait", from: copyIn("west"), want: there, most: 1},
		{name: "restore-remote", real: "now", from: snapIn("west"), want: there, most: 1},
		{name: "delete-remote", real: "now", served: true, act: (*world).deleteClaim, want: (*world).empty, most: 1},
		{name: "retain-remote", real: "now", retained: true, served: true, act: (*world).deleteClaim, want: (*world).kept, most: 1},
		{name: "expand-remote", real: "roomy", served: true, most: 1,
			act: func(w *world) {
				w.sites[keys.Home].claim.Spec.Resources.Requests = storage("2Gi")
				w.touch(w.sites[keys.Home].claim)
			},
			want: func(w *world) string {
				home := w.sites[keys.Home]
				if home.claim.Status.Capacity.Storage().String() != "2Gi" || home.volume.Spec.Capacity.Storage().String() != "2Gi" {
					return "claim or volume have not grown"
				}
				return there(w)
			}},
		{name: "carry-remote", real: "now", served: true, most: 1,
			act: func(w *world) {
				w.sites[keys.Home].claim.Labels = map[string]string{"team": "b"}
				w.touch(w.sites[keys.Home].claim)
			},
			want: func(w *world) string {
				if b := w.sites["west"].backing; b == nil || b.Labels["team"] != "b" {
					return "the label is not carried"
				}
				return there(w)
			}},
		{name: "attributes-remote", real: "now", served: true, most: 1, play: (*world).modify,
			act: func(w *world) {
				w.sites[keys.Home].claim.Spec.VolumeAttributesClassName = ptr.To(storageAttributes)
				w.touch(w.sites[keys.Home].claim)
			},
			want: func(w *world) string {
				if ptr.Deref(w.sites[keys.Home].claim.Status.CurrentVolumeAttributesClassName, "") != storageAttributes {
					return "the claim does not have its attributes"
				}
				return there(w)
			}},
		{name: "heal-remote", real: "now", served: true, most: 1, play: (*world).agent,
			act: func(w *world) {
				b := w.sites["west"].backing
				b.DeletionTimestamp = &b.CreationTimestamp
			},
			want: func(w *world) string {
				if real := w.sites["west"].real; real == nil || real.Labels[keys.Healing] != "" {
					return "the agent is not done"
				}
				return there(w)
			}},
		{name: "lost-remote", real: "now", served: true, most: 1,
			act: func(w *world) {
				w.sites[keys.Home].volume.Annotations[keys.Lost] = "given up"
				w.deleteClaim()
			},
			want: (*world).forgotten},
	}
}

func (w *world) deleteClaim() {
	w.sites[keys.Home].claim, w.deleted = nil, true
}

func (w *world) selects(node string) {
	c := w.sites[keys.Home].claim
	c.Annotations[keys.SelectedNode] = node
	w.touch(c)
}

// served says what is wrong with a claim that must have its volume in a cluster; "" means
// any.
func (w *world) served(cluster string) string {
	home := w.sites[keys.Home]
	if home.claim == nil || home.volume == nil || home.claim.Spec.VolumeName != home.volume.Name {
		return "the claim is not bound"
	}
	ref, have := refOf(home.volume), w.have()
	if cluster != "" && ref.Cluster != cluster {
		return "the volume is in " + ref.Cluster
	}
	if !slices.Equal(have, []string{ref.Cluster}) {
		return fmt.Sprintf("the volume is in %s, backing claims are in %v", ref.Cluster, have)
	}
	b, real := w.sites[ref.Cluster].backing, w.sites[ref.Cluster].real
	switch {
	case b.UID != ref.UID || b.DeletionTimestamp != nil || backing.Unpublished(b) || !backing.Protected(b):
		return "the backing claim is another, deleted, not published or not protected"
	case b.Status.Phase != corev1.ClaimBound || real == nil || real.Spec.ClaimRef.UID != b.UID || real.Annotations["data"] == "":
		return "the backing claim has no real volume that a pod uses"
	case home.volume.Annotations[keys.BackingVolume] != real.Name:
		return "the volume names another real volume"
	}
	return ""
}

// have returns the clusters with backing claims.
func (w *world) have() (ids []string) {
	for _, id := range []string{keys.Home, "west", "east"} {
		if w.sites[id].backing != nil {
			ids = append(ids, id)
		}
	}
	return ids
}

// empty says what is left of a deleted claim; kept what is wrong with the objects that
// policy Retain keeps; forgotten the same for data that home gave up.
func (w *world) empty() string {
	if home := w.sites[keys.Home]; home.claim != nil || home.volume != nil {
		return "claim or volume are left"
	}
	for id, s := range w.sites {
		if s.backing != nil || s.real != nil {
			return "backing claim or real volume are left in " + id
		}
	}
	return ""
}

func (w *world) kept() string {
	home, b := w.sites[keys.Home], w.sites["west"].backing
	switch {
	case home.claim != nil || home.volume == nil || home.volume.Status.Phase != corev1.VolumeReleased:
		return "the volume is not released"
	case b == nil || b.UID != refOf(home.volume).UID || b.DeletionTimestamp != nil || w.sites["west"].real == nil:
		return "what is behind the volume is not kept"
	}
	return ""
}

func (w *world) forgotten() string {
	home, b := w.sites[keys.Home], w.sites["west"].backing
	switch {
	case home.claim != nil || home.volume != nil:
		return "claim or volume are left"
	case b == nil || b.DeletionTimestamp != nil || !backing.Protected(b) || w.sites["west"].real == nil:
		return "what was given up was touched"
	}
	return ""
}

// modify acts as the volume modifier of west's driver.
func (w *world) modify() {
	if b := w.sites["west"].backing; b != nil && b.Spec.VolumeAttributesClassName != nil && b.Status.CurrentVolumeAttributesClassName == nil {
		b.Status.CurrentVolumeAttributesClassName = b.Spec.VolumeAttributesClassName
		w.touch(b)
	}
}

// agent acts as the remote agent and Kubernetes: each call is one step towards a recreated
// backing claim.
func (w *world) agent() {
	s := w.sites["west"]
	b, real := s.backing, s.real
	healing := real.Labels[keys.Healing] != ""
	switch {
	case b != nil && b.DeletionTimestamp != nil && !healing:
		real.Labels = map[string]string{keys.Healing: place.HomeID}
		real.Annotations["shadow"] = b.Name
		real.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRetain
	case b != nil && b.DeletionTimestamp != nil:
		s.healed, s.backing = b, nil
		real.Status.Phase = corev1.VolumeReleased
	case b == nil && healing:
		b = s.healed.DeepCopy()
		w.version++
		b.UID, b.DeletionTimestamp = types.UID(fmt.Sprintf("b%d", w.version)), nil
		b.Status.Phase = corev1.ClaimPending
		s.backing = b
		w.touch(b)
	case healing && b.Status.Phase == corev1.ClaimPending:
		real.Spec.ClaimRef.UID, real.Status.Phase = b.UID, corev1.VolumeBound
		b.Status.Phase = corev1.ClaimBound
		w.touch(b)
	case healing:
		delete(real.Labels, keys.Healing)
		real.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimDelete
	}
}
