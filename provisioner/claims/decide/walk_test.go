// This simulation is one file on purpose: the histories (TestHistories), the simulated
// clusters, the provisioner's actions, the actions of other programs, and the faults.
package decide_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/backing"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/locality"
	"github.com/lodestone-storage/lodestone/provisioner/claims/decide"
	"github.com/lodestone-storage/lodestone/provisioner/claims/route"
	"github.com/lodestone-storage/lodestone/provisioner/claims/steps"
)

// TestHistories simulates many lives of a claim: it is provisioned, used, expanded and
// deleted, while clusters are unreachable for up to ten minutes, caches lag, answers are
// lost, the program is killed, clocks differ by up to an hour and clusters are restored
// from backups. In every case no data of a pod is lost and no step violates an invariant;
// and once all faults end, there is one backing claim and the claim is bound, or nothing is
// left of it.
func TestHistories(t *testing.T) {
	t.Parallel()
	const histories = 1200
	ends := map[string]int{}
	for seed := range uint64(histories) {
		w := newWorld(seed)
		w.live(t, seed)
		ends[w.end(t, seed)]++
	}
	t.Logf("%d histories: %v", histories, ends)
	for _, end := range []string{"bound at home", "bound in west", "bound in east", "deleted", "kept", "restored, with all data",
		"held, for its twin has another volume"} {
		require.Greater(t, ends[end], 10, "too few histories end %s to say anything", end)
	}
}

// live simulates a while of random events.
func (w *world) live(t *testing.T, seed uint64) {
	t.Helper()
	for range 60 + w.IntN(120) {
		w.now = w.now.Add(time.Duration(w.IntN(3000)) * time.Millisecond)
		switch w.IntN(16) {
		case 0:
			w.partition()
		case 1:
			w.kill()
		case 2:
			w.user()
		case 3:
			w.restore()
		case 4, 5, 6:
			w.refresh()
		case 7, 8, 9, 10:
			w.others()
		case 11:
			w.store()
		default:
			w.work(t, seed)
		}
	}
}

// work is one step of the provisioner.
func (w *world) work(t *testing.T, seed uint64) {
	t.Helper()
	o := w.observe()
	step := decide.Next(o)
	w.trace = append(w.trace, fmt.Sprintf("%s %s %s", w.now.Format(time.TimeOnly), step.Verb(), step.Cluster()))
	if broken := harm(o, step); broken != "" {
		require.Fail(t, broken, "history %d: step %+v\n%v", seed, step, w.trace)
	}
	if step.Tell != nil {
		w.told = step.Tell.Reason
	}
	data, had := w.data(), w.claims()
	if err := w.act(o, step); err == nil && w.chance(70) {
		w.refresh()
	}
	w.lost(t, seed, data)
	if now := w.claims(); now > had && now > 1 && !w.restored {
		require.Fail(t, "a second backing claim that may hold data", "history %d\n%v", seed, w.trace)
	}
}

// claims returns how many backing claims exist that nobody is deleting. A second one that
// was never published may exist for a while, created by a request whose answer was lost.
func (w *world) claims() int {
	n := 0
	for _, s := range w.sites {
		if s.backing != nil && s.backing.DeletionTimestamp == nil && !backing.Unpublished(s.backing) {
			n++
		}
	}
	return n
}

// data returns the real volumes that a pod wrote to.
func (w *world) data() map[string]bool {
	found := map[string]bool{}
	for id, s := range w.sites {
		if s.real != nil && s.real.Annotations["data"] != "" && s.backing != nil && s.backing.DeletionTimestamp == nil {
			found[id] = true
		}
	}
	return found
}

// lost fails if a step began to delete data of a pod that nobody asked to delete.
func (w *world) lost(t *testing.T, seed uint64, before map[string]bool) {
	t.Helper()
	now := w.data()
	for id := range before {
		if !now[id] && (!w.deleted || w.retained) {
			require.Fail(t, "data was lost", "history %d, in %s\n%v", seed, id, w.trace)
		}
	}
}

// end stops all faults and says how the history ended.
func (w *world) end(t *testing.T, seed uint64) string {
	t.Helper()
	const calm = 30
	w.faulty = false
	w.trace = append(w.trace, "all is well again")
	for _, s := range w.sites {
		s.away, s.noticed = false, false
	}
	// Refusals end after a minute, so a state that stays for longer is final.
	for range 600 {
		if len(w.trace) > calm && !slices.ContainsFunc(w.trace[len(w.trace)-calm:], func(s string) bool { return !strings.Contains(s, "Idle") }) {
			break
		}
		w.now = w.now.Add(5 * time.Second)
		for range 4 {
			w.others()
		}
		w.refresh()
		w.work(t, seed)
		w.store()
		w.refresh()
	}
	home, have := w.sites[keys.Home], []string{}
	for id, s := range w.sites {
		if s.backing != nil {
			have = append(have, id)
		}
	}
	about := fmt.Sprintf("history %d: told %s, backing claims in %v, restored %v\n%v", seed, w.told, have, w.restored, w.trace)
	switch {
	case w.restored:
		// A restored backup may contradict what home has; data stays all the same, and a
		// claim that has to wait has an event that says for what.
		require.True(t, home.claim == nil || home.claim.Spec.VolumeName != "" || w.told != "", about)
		return "restored, with all data"
	case home.claim == nil && w.retained && home.volume != nil:
		require.Equal(t, corev1.VolumeReleased, home.volume.Status.Phase, about)
		require.Len(t, have, 1, about)
		return "kept"
	case home.claim == nil:
		require.Nil(t, home.volume, about)
		for _, id := range have {
			require.False(t, backing.Unpublished(w.sites[id].backing), "a leak: %s", about)
			require.True(t, w.retained, "a leak: %s", about)
		}
		return "deleted"
	}
	if w.retained && home.volume == nil && w.told == "BackingHasData" {
		// It was about to be published and then rescheduled by others: the user gets an
		// event.
		require.Len(t, have, 1, about)
		return "waits for its user"
	}
	require.NotNil(t, home.volume, about)
	require.Equal(t, home.volume.Name, home.claim.Spec.VolumeName, about)
	ref := refOf(home.volume)
	require.Equal(t, []string{ref.Cluster}, have, about)
	b := w.sites[ref.Cluster].backing
	require.Equal(t, ref.UID, b.UID, about)
	require.Nil(t, b.DeletionTimestamp, about)
	if ref.Cluster == keys.Home && b.Spec.VolumeName != home.volume.Annotations[keys.BackingVolume] {
		require.True(t, backing.Misbound(home.volume, b), about)
		require.Equal(t, keys.NoMove, home.claim.Annotations[keys.Move], "new pods must wait: %s", about)
		require.Equal(t, "BackingMisbound", w.told, about)
		require.Empty(t, w.sites[keys.Home].real.Annotations["data"], about)
		return "held, for its twin has another volume"
	}
	require.False(t, backing.Unpublished(b), about)
	require.Empty(t, home.claim.Labels[keys.Moving], about)
	if ref.Cluster == keys.Home {
		return "bound at home"
	}
	return "bound in " + ref.Cluster
}

// state is what an API server, or a cache, has of one claim.
type state struct {
	backing *corev1.PersistentVolumeClaim
	real    *corev1.PersistentVolume
	// claim and volume are the virtual ones, at home.
	claim  *corev1.PersistentVolumeClaim
	volume *corev1.PersistentVolume
}

// copied returns an independent copy of a state.
func (s state) copied() state {
	return state{s.backing.DeepCopy(), s.real.DeepCopy(), s.claim.DeepCopy(), s.volume.DeepCopy()}
}

// site is one cluster.
type site struct {
	state
	id   string
	seen state
	// away: no request gets there; noticed: home knows it, since the time in since.
	away, noticed bool
	since         time.Time
	skew          time.Duration
	backup        *state
	// stuck: no real volume is ever created there. full: it refuses backing claims.
	stuck, full bool
	// healed is the remote backing claim that the agent recreates.
	healed *corev1.PersistentVolumeClaim
}

// world is a home cluster and two remote ones with one claim, and all other writers of its
// objects: scheduler, real provisioners, pods, kube-controller-manager, the user. The
// simulation advances the time.
type world struct {
	*rand.Rand
	now     time.Time
	sites   map[string]*site
	base    steps.Observation
	version int

	// The provisioner's memory.
	unsent, gone, handedOut bool
	carried                 time.Time

	// cutting: west becomes unreachable after it has carried out cut requests; the answer
	// to the last of them is lost.
	cutting bool
	cut     int
	// made is how many backing claims were created in all.
	made int

	// faulty: requests fail, caches lag, clusters become unreachable.
	faulty bool
	// deleted: the user deleted the claim. restored: a cluster was restored from a backup.
	deleted, restored, retained bool
	// reserved: an administrator has reserved another volume for the twin, which it is bound to.
	reserved bool
	told     string
	trace    []string
}

func newWorld(seed uint64) *world {
	w := &world{Rand: rand.New(rand.NewPCG(seed, 2)), now: now, faulty: true, sites: map[string]*site{}}
	for _, id := range []string{keys.Home, "west", "east"} {
		w.sites[id] = &site{id: id, skew: time.Duration(w.IntN(7201)-3600) * time.Second}
	}
	w.sites[keys.Home].skew = 0
	w.base = observe(parameter(keys.RemoteClass, []string{"wait", "now", "roomy"}[w.IntN(3)]),
		parameter(keys.LocalClass, []string{"wait", "wait", "now", "roomy"}[w.IntN(4)]))
	w.reserved = w.chance(50)
	if w.chance(30) {
		retain(&w.base)
		w.retained = true
	}
	w.base.Class.AllowVolumeExpansion = ptr.To(true)
	home := w.sites[keys.Home]
	home.claim = w.base.Claim
	home.claim.Spec.Resources.Requests = storage("1Gi")
	w.touch(home.claim)
	w.refresh()
	return w
}

func storage(size string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}
}

func (w *world) chance(percent int) bool { return w.IntN(100) < percent }

func (w *world) touch(object metav1.Object) {
	w.version++
	object.SetResourceVersion(strconv.Itoa(w.version))
}

// observe is the observation from the provisioner's caches.
func (w *world) observe() steps.Observation {
	o := w.base
	home := w.sites[keys.Home]
	seen := home.seen.copied()
	o.Now, o.Claim, o.Volume, o.Real, o.Synced = w.now, seen.claim, seen.volume, seen.real, w.carried
	if o.Volume != nil && refOf(o.Volume).Cluster != keys.Home {
		o.Real = w.sites[refOf(o.Volume).Cluster].seen.copied().real
	}
	o.Unsent, o.Gone, o.HandedOut = w.unsent, w.gone, w.handedOut
	o.Backings, o.Node = nil, nil
	if o.Claim != nil {
		if at := o.Claim.Annotations[keys.SelectedNode]; at != "" {
			o.Node = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: at}}
			if at != "home-1" {
				o.Node.Labels = map[string]string{keys.Cluster: at[:len(at)-2]}
			}
		}
	}
	for _, id := range []string{keys.Home, "west", "east"} {
		if b := w.sites[id].seen.copied(); b.backing != nil {
			bound, made := b.real, b.real
			if bound != nil && (bound.Spec.ClaimRef.UID != b.backing.UID || b.backing.Spec.VolumeName != bound.Name) {
				bound = nil
			}
			if id != keys.Home || b.backing.Spec.VolumeName != "" || made != nil && made.Name != "pvc-"+string(b.backing.UID) {
				made = nil
			}
			o.Backings = append(o.Backings, steps.Backing{Cluster: id, Claim: b.backing, Volume: bound, Made: made})
		}
	}
	o.Cluster = func(id string) steps.Cluster {
		c := good()
		for i := range c.Offered {
			c.Offered[i].Provisioner = driver
		}
		if s := w.sites[id]; s != nil && s.noticed {
			c.Usable, c.Seen, c.Message, c.Since = false, false, "no answer", s.since
		}
		return c
	}
	return o
}

// refresh updates the caches; those of an unreachable cluster stay as they are.
func (w *world) refresh() {
	for _, s := range w.sites {
		if !s.away {
			s.seen = s.copied()
		}
	}
}

var (
	errFault   = errors.New("no answer")
	errRefused = errors.New("there is no room")
)

// place is where backing claims are.
var place = backing.Place{HomeID: "here", StorageNamespace: "lodestone-storage"}

// call makes a request: it may fail before it takes effect, or its answer may be lost.
func (w *world) call(id string, effect func() error) error {
	if !w.sends(id) || w.faulty && w.chance(8) {
		return errFault
	}
	err := effect()
	if !w.answers(id) || w.faulty && w.chance(8) {
		return errFault
	}
	return err
}

// sends says whether a request reaches a cluster.
func (w *world) sends(id string) bool {
	s := w.sites[id]
	if w.cutting && id == "west" && w.cut == 0 {
		s.away = true
	}
	return !s.away
}

// answers says whether the answer to a request arrives.
func (w *world) answers(id string) bool {
	if !w.cutting || id != "west" || w.sites[id].away {
		return !w.sites[id].away
	}
	w.cut--
	w.sites[id].away = w.cut == 0
	return !w.sites[id].away
}

// act takes a step as package claims does, with the same checks against API servers.
func (w *world) act(o steps.Observation, step steps.Step) error {
	home := w.sites[keys.Home]
	switch a := step.Action.(type) {
	case nil:
	case steps.RecordCluster:
		err := w.annotate(o, map[string]string{keys.Routed: a.To})
		if err == nil {
			w.unsent = true
		}
		return err
	case steps.CreateBacking:
		err := w.create(o, a)
		if errors.Is(err, errRefused) {
			return w.reschedule(o, &steps.Refusal{Cluster: step.Cluster(), Reason: "QuotaExceeded"})
		}
		return err
	case steps.CreateVolume:
		w.handedOut = true
	case steps.MarkPublished:
		return w.write(step, func(b *corev1.PersistentVolumeClaim) { delete(b.Annotations, keys.Unpublished) })
	case steps.RemoveBacking:
		return w.remove(o, a)
	case steps.Reschedule:
		return w.reschedule(o, a.Refusal)
	case steps.RequeuePods:
		return w.annotate(o, map[string]string{keys.Refused: ""})
	case steps.ReleaseBacking:
		return w.call(keys.Home, func() error {
			if v := home.volume; v == nil || v.UID != o.Volume.UID || v.Status.Phase != corev1.VolumeReleased {
				return errFault
			}
			if err := w.drop(a.Backing, false); err != nil || !w.answers(step.Cluster()) {
				return errFault
			}
			return nil
		})
	case steps.ConfirmGone:
		return w.call(step.Cluster(), func() error {
			s := w.sites[step.Cluster()]
			claimed := s.backing != nil && s.backing.UID == a.Ref.UID
			w.gone = w.gone || !claimed && (s.real == nil || s.real.Spec.ClaimRef.UID != a.Ref.UID)
			return nil
		})
	case steps.FinishVolume:
		return w.call(keys.Home, func() error { home.volume = nil; return nil })
	case steps.UpdateVolume:
		return w.call(keys.Home, func() error {
			if home.volume != nil && home.volume.UID == o.Volume.UID {
				home.volume.Annotations[keys.BackingVolume] = a.Backing.Volume.Name
				home.volume.Spec.Capacity = a.Backing.Volume.Spec.Capacity.DeepCopy()
				if decide.AttributesApplied(o, a.Backing) {
					home.volume.Spec.VolumeAttributesClassName = o.Claim.Spec.VolumeAttributesClassName
					home.claim.Status.CurrentVolumeAttributesClassName = o.Claim.Spec.VolumeAttributesClassName
					w.touch(home.claim)
				}
				w.touch(home.volume)
			}
			return nil
		})
	case steps.ExpandBacking:
		return w.write(step, func(b *corev1.PersistentVolumeClaim) { b.Spec.Resources.Requests[corev1.ResourceStorage] = a.Size })
	case steps.UpdateClaimStatus:
		return w.call(keys.Home, func() error {
			return w.onClaim(o, func(c *corev1.PersistentVolumeClaim) { c.Status = *a.Status.DeepCopy() })
		})
	case steps.MarkFixedSize:
		return w.annotate(o, map[string]string{keys.FixedSize: a.Why})
	case steps.RecordSource:
		return w.annotate(o, map[string]string{keys.SourceCluster: a.In})
	case steps.ReadEvents:
		return w.call(step.Cluster(), func() error {
			w.base.LastWarning = &steps.LastWarning{Backing: a.Backing.Claim.UID, Again: w.now.Add(time.Minute)}
			return nil
		})
	case steps.ModifyBacking:
		return w.write(step, func(b *corev1.PersistentVolumeClaim) {
			b.Spec.VolumeAttributesClassName = o.Claim.Spec.VolumeAttributesClassName
		})
	case steps.SyncMetadata:
		w.carried = w.now
		return w.write(step, func(b *corev1.PersistentVolumeClaim) {
			syncMetadata(&b.Labels, a.Labels)
			syncMetadata(&b.Annotations, a.Annotations)
		})
	case steps.LockClaim:
		return w.call(keys.Home, func() error {
			return w.onClaim(o, func(c *corev1.PersistentVolumeClaim) {
				c.Labels, c.Annotations[keys.Move] = map[string]string{keys.Moving: keys.MovingNow}, keys.NoMove
			})
		})
	case steps.HealBacking:
		if a.Cure != steps.Adopt {
			return fmt.Errorf("nobody asked for cure %s", a.Cure)
		}
		return w.call(keys.Home, func() error {
			home.volume.Annotations[keys.Backing] = backing.RefTo(a.Ref.Cluster, a.Backing.Claim).String()
			w.touch(home.volume)
			return nil
		})
	default:
		return fmt.Errorf("nobody asked for %s", step.Verb())
	}
	return nil
}

// syncMetadata sets and removes keys.
func syncMetadata(on *map[string]string, changes map[string]any) {
	for key, value := range changes {
		if text, ok := value.(string); ok {
			if *on == nil {
				*on = map[string]string{}
			}
			(*on)[key] = text
		} else {
			delete(*on, key)
		}
	}
}

// onClaim changes the virtual claim if its resource version is unchanged.
func (w *world) onClaim(o steps.Observation, change func(*corev1.PersistentVolumeClaim)) error {
	c := w.sites[keys.Home].claim
	if c == nil || c.ResourceVersion != o.Claim.ResourceVersion {
		return errFault
	}
	change(c)
	w.touch(c)
	return nil
}

func (w *world) annotate(o steps.Observation, changes map[string]string) error {
	return w.call(keys.Home, func() error {
		return w.onClaim(o, func(c *corev1.PersistentVolumeClaim) {
			for key, value := range changes {
				if c.Annotations[key] = value; value == "" {
					delete(c.Annotations, key)
				}
			}
		})
	})
}

func (w *world) reschedule(o steps.Observation, refused *steps.Refusal) error {
	changes := map[string]string{keys.SelectedNode: "", keys.Routed: ""}
	if refused != nil {
		changes[keys.Refused] = encode(locality.AddRefusal(locality.DecodeRefusals(o.Claim.Annotations[keys.Refused]),
			locality.Refusal{Cluster: refused.Cluster, Node: refused.Node, Until: o.Now.Add(time.Minute)}, o.Now)...)
	}
	return w.annotate(o, changes)
}

func (w *world) refuses(c *corev1.PersistentVolumeClaim, id string) bool {
	_, refused := locality.RefusalOf(locality.DecodeRefusals(c.Annotations[keys.Refused]), id, "", w.now)
	return refused
}

func (w *world) create(o steps.Observation, step steps.CreateBacking) error {
	s := w.sites[step.Route.Cluster]
	w.unsent = false
	return w.call(step.Route.Cluster, func() error {
		if s.full {
			return errRefused
		}
		if s.backing != nil {
			return nil // it is ours, whatever its state: it will be observed
		}
		w.version++
		b := route.BackingClaim(o.Claim, step.Route, place.Of(step.Route.Cluster, "", types.NamespacedName{Namespace: "shop", Name: "data"},
			uid), place.HomeID)
		b.UID, b.CreationTimestamp = types.UID(fmt.Sprintf("b%d", w.version)), metav1.NewTime(w.now.Add(s.skew))
		b.Status.Phase = corev1.ClaimPending
		w.touch(b)
		s.backing = b
		w.made++
		return nil
	})
}

// write changes the backing claim with the observed UID.
func (w *world) write(step steps.Step, change func(*corev1.PersistentVolumeClaim)) error {
	return w.call(step.Cluster(), func() error {
		b := w.sites[step.Cluster()].backing
		if b == nil || b.UID != backingOf(step).Claim.UID {
			return errFault
		}
		change(b)
		w.touch(b)
		return nil
	})
}

func (w *world) remove(o steps.Observation, step steps.RemoveBacking) error {
	home := w.sites[keys.Home]
	w.handedOut = false
	err := w.call(keys.Home, func() error {
		if home.volume != nil && o.Volume == nil || o.Claim == nil && home.claim != nil {
			return errFault
		}
		return nil
	})
	if err == nil {
		err = w.call(step.Backing.Cluster, func() error { return w.drop(step.Backing, true) })
	}
	if err == nil && step.Refusal != nil {
		err = w.reschedule(o, step.Refusal)
	}
	return err
}

// drop deletes a backing claim and removes our finalizer; with exact only at the observed
// resource version.
func (w *world) drop(of steps.Backing, exact bool) error {
	s, seen := w.sites[of.Cluster], of.Claim
	if !w.sends(of.Cluster) {
		return errFault
	}
	b := s.backing
	if b == nil || b.UID != seen.UID || exact && seen.DeletionTimestamp == nil && b.ResourceVersion != seen.ResourceVersion {
		return errFault
	}
	b.DeletionTimestamp = ptr.To(metav1.NewTime(w.now.Add(s.skew)))
	w.touch(b)
	if !w.answers(of.Cluster) || w.faulty && w.chance(8) {
		return errFault
	}
	b.Finalizers = nil
	return nil
}

// store acts as pvcontroller: it creates the virtual volume that was handed over, if that
// is still right.
func (w *world) store() {
	home := w.sites[keys.Home]
	if !w.handedOut {
		return
	}
	w.handedOut = false
	o := w.observe()
	step, may := decide.Next(o).Action.(steps.CreateVolume)
	if !may || home.volume != nil {
		return
	}
	_ = w.call(keys.Home, func() error {
		v := &corev1.PersistentVolume{
			ObjectMeta: metav1.ObjectMeta{Name: "pvc-u1", UID: "v1", Labels: map[string]string{keys.Cluster: step.Route.Cluster},
				CreationTimestamp: metav1.NewTime(w.now),
				Annotations:       map[string]string{keys.Backing: backing.RefTo(step.Route.Cluster, step.Backing.Claim).String()}},
			Spec: corev1.PersistentVolumeSpec{Capacity: o.Claim.Spec.Resources.Requests.DeepCopy(),
				ClaimRef:                      &corev1.ObjectReference{Namespace: "shop", Name: "data", UID: uid},
				PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete},
			Status: corev1.PersistentVolumeStatus{Phase: corev1.VolumeBound},
		}
		if w.retained {
			v.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRetain
		}
		if step.Backing.Volume != nil {
			v.Annotations[keys.BackingVolume] = step.Backing.Volume.Name
		}
		w.touch(v)
		home.volume = v
		return nil
	})
}

// others makes each other program do one thing.
func (w *world) others() {
	home := w.sites[keys.Home]
	switch w.IntN(4) {
	case 0:
		w.schedule(home)
	case 1:
		w.controllers(home)
	case 2:
		for _, s := range w.sites {
			w.provision(s)
		}
	case 3:
		w.pod(home)
	}
}

// schedule acts as kube-scheduler: it selects any node if none is selected.
func (w *world) schedule(home *site) {
	c := home.claim
	switch {
	case c == nil || home.volume != nil:
		return
	case c.Annotations[keys.SelectedNode] != "":
		if w.faulty && w.chance(10) {
			// The node is gone: others remove it from the claim without an event for us.
			delete(c.Annotations, keys.SelectedNode)
			w.touch(c)
		}
		return
	}
	for _, id := range w.Perm(3) {
		place := []string{keys.Home, "west", "east"}[id]
		if !w.refuses(c, place) && (w.faulty || !w.sites[place].away) {
			c.Annotations[keys.SelectedNode] = place + "-1"
			w.touch(c)
			return
		}
	}
}

// controllers acts as kube-controller-manager: it binds claim and volume, and releases the
// volume whose claim is gone.
func (w *world) controllers(home *site) {
	v := home.volume
	switch {
	case v == nil:
	case home.claim == nil && v.Status.Phase != corev1.VolumeReleased:
		v.Status.Phase = corev1.VolumeReleased
		w.touch(v)
	case home.claim != nil && home.claim.Spec.VolumeName == "":
		home.claim.Spec.VolumeName, home.claim.Status.Phase = v.Name, corev1.ClaimBound
		home.claim.Status.Capacity = v.Spec.Capacity.DeepCopy()
		v.Status.Phase = corev1.VolumeBound
		w.touch(home.claim)
		w.touch(v)
	}
}

// provision acts as the real provisioner of a cluster, deletion included.
func (w *world) provision(s *site) {
	b := s.backing
	if b != nil && b.DeletionTimestamp != nil && len(b.Finalizers) == 0 {
		s.backing, b = nil, nil
	}
	if s.real != nil && b == nil && s.real.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimDelete {
		s.real.Status.Phase = corev1.VolumeReleased
		if w.chance(70) {
			s.real = nil
		}
	}
	if b == nil {
		return
	}
	switch {
	case s.makes(b):
		s.real = &corev1.PersistentVolume{
			ObjectMeta: metav1.ObjectMeta{Name: "pvc-" + string(b.UID), UID: types.UID("r-" + string(b.UID)),
				Annotations: map[string]string{"pv.kubernetes.io/provisioned-by": driver}},
			Spec: corev1.PersistentVolumeSpec{Capacity: b.Spec.Resources.Requests.DeepCopy(),
				ClaimRef:                      &corev1.ObjectReference{Namespace: b.Namespace, Name: b.Name, UID: b.UID},
				StorageClassName:              *b.Spec.StorageClassName,
				VolumeAttributesClassName:     b.Spec.VolumeAttributesClassName,
				PersistentVolumeSource:        corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: driver}},
				PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete},
		}
	case s.real != nil && b.Spec.VolumeName == "" && s.real.Spec.ClaimRef.UID == b.UID:
		if w.faulty && w.chance(60) {
			// kube-controller-manager has much to do.
			return
		}
		if s.id == keys.Home && w.reserved && s.real.Annotations["data"] == "" {
			s.real = s.real.DeepCopy()
			s.real.Name, s.real.UID, s.real.Annotations = "other", "r-other", map[string]string{}
		}
		b.Status.Phase, b.Status.Capacity, b.Spec.VolumeName = corev1.ClaimBound, b.Spec.Resources.Requests.DeepCopy(), s.real.Name
		w.touch(b)
	case s.real != nil && b.Status.Phase == corev1.ClaimBound:
		asked, have := b.Spec.Resources.Requests[corev1.ResourceStorage], s.real.Spec.Capacity[corev1.ResourceStorage]
		if asked.Cmp(have) > 0 {
			s.real.Spec.Capacity, b.Status.Capacity = b.Spec.Resources.Requests.DeepCopy(), b.Spec.Resources.Requests.DeepCopy()
			w.touch(b)
		}
	}
}

// makes says whether the real provisioner makes the volume of a backing claim now.
func (s *site) makes(b *corev1.PersistentVolumeClaim) bool {
	return b.Spec.VolumeName == "" && (s.real == nil || s.real.Spec.ClaimRef.UID != b.UID) && !s.stuck &&
		(*b.Spec.StorageClassName != "wait" || b.Annotations[keys.SelectedNode] != "")
}

// pod acts as a pod of the claim: once that is bound it runs where the data is, and writes.
func (w *world) pod(home *site) {
	if home.claim == nil || home.claim.Spec.VolumeName == "" || home.volume == nil || home.claim.Labels[keys.Moving] != "" {
		return
	}
	s := w.sites[refOf(home.volume).Cluster]
	switch {
	case s.backing == nil || s.backing.UID != refOf(home.volume).UID:
		return
	case s == home && s.real != nil && s.real.Name != home.volume.Annotations[keys.BackingVolume]:
		// The volume that it would write to is none that a backing claim has.
		return
	case s != home && s.real != nil && s.backing.Spec.VolumeName == "":
		return
	}
	if s.real == nil && s.backing.Annotations[keys.SelectedNode] == "" {
		s.backing.Annotations[keys.SelectedNode] = "there"
		w.touch(s.backing)
	}
	if s.real != nil {
		s.real.Annotations["data"] = "yes"
	}
}

// partition makes a remote cluster unreachable or reachable; home notices later.
func (w *world) partition() {
	s := w.sites[[]string{"west", "east"}[w.IntN(2)]]
	switch {
	case s.away != s.noticed:
		s.noticed, s.since = s.away, w.now
	case s.away:
		w.now = w.now.Add(time.Duration(w.IntN(600)) * time.Second)
		s.away = false
	default:
		s.away = true
	}
}

// kill restarts the program: its memory is lost.
func (w *world) kill() {
	w.unsent, w.gone, w.handedOut = false, false, false
	w.refresh()
}

// user deletes the claim, or requests a larger size.
func (w *world) user() {
	home := w.sites[keys.Home]
	c := home.claim
	switch {
	case c == nil:
	case w.chance(8):
		home.claim, w.deleted = nil, true
	case c.Spec.VolumeName != "":
		c.Spec.Resources.Requests = storage("2Gi")
		w.touch(c)
	}
}

// restore makes a backup of a cluster, or restores it. The volumes' data stays as it is,
// since a backup has objects only.
func (w *world) restore() {
	s := w.sites[[]string{keys.Home, "west", "east"}[w.IntN(3)]]
	if s.backup == nil {
		backup := s.copied()
		if s.id == keys.Home && w.chance(30) {
			// The backup is from before the claim was created.
			backup = state{}
		}
		s.backup = &backup
		return
	}
	if !w.chance(5) || s.id == keys.Home && slices.ContainsFunc([]string{keys.Home, "west", "east"}, w.unmarked) {
		// Not covered: a backup of home that is restored between the first write of a pod
		// and the removal of the mark on its backing claim, and one from before its virtual volume, with which the
		// mark of a twin comes back.
		return
	}
	wrote := s.real != nil && s.real.Annotations["data"] != ""
	before := s.real
	s.state = s.backup.copied()
	if s.id == keys.Home {
		w.deleted = false
	}
	if s.real != nil && before != nil && before.UID == s.real.UID && wrote {
		s.real.Annotations["data"] = "yes"
	}
	w.restored = true
}

// unmarked says whether a pod wrote to a volume whose backing claim is not marked as
// published yet or, at home, would not be and would have no virtual volume once that is restored.
func (w *world) unmarked(id string) bool {
	s := w.sites[id]
	b := s.backing
	if id == keys.Home {
		if b = s.backup.backing; s.backup.volume != nil {
			return false
		}
	}
	return s.real != nil && s.real.Annotations["data"] != "" && b != nil && backing.Unpublished(b)
}
