package decide

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/virtualnode/translate"
)

// world is a home and a remote cluster with one name for a pod, as their API
// servers have it. A controller of home makes a new pod once the name is free,
// now at home, now on the virtual node.
type world struct {
	rand   *rand.Rand
	serial int
	home   *corev1.Pod               // the home pod of the name
	shadow *remotev1alpha1.ShadowPod // the ShadowPod of the name
	remote *corev1.Pod               // the pod of the name in the remote cluster

	flying []func() error // requests that were given up and may still arrive
	calm   bool           // no more faults
	ran    map[types.UID]bool
}

var errRequest = errors.New("request failed")

func (w *world) next() string { w.serial++; return strconv.Itoa(w.serial) }

func (w *world) chance(percent int) bool { return w.rand.IntN(100) < percent }

// send takes a request to an API server: it may fail, its answer may be lost, or
// it may arrive much later.
func (w *world) send(request func() error) error {
	switch {
	case w.calm || w.chance(85):
		return request()
	case w.chance(30):
		return errRequest
	case w.chance(50):
		_ = request()
		return errRequest
	}
	w.flying = append(w.flying, request)
	return errRequest
}

// land executes a request that was given up earlier.
func (w *world) land() {
	if len(w.flying) > 0 {
		i := w.rand.IntN(len(w.flying))
		request := w.flying[i]
		w.flying = slices.Delete(w.flying, i, i+1)
		_ = request()
	}
}

// running counts the copies of the pod that may be running.
func (w *world) running() int {
	n := 0
	if w.remote != nil {
		n++
	}
	if w.home != nil && w.home.Spec.NodeName == "home-1" {
		n++
	}
	return n
}

// change changes the home pod as a request does that names its UID and, unless
// empty, its resource version.
func (w *world) change(uid types.UID, version string, alter func(*corev1.Pod)) error {
	if w.home == nil || w.home.UID != uid || (version != "" && w.home.ResourceVersion != version) {
		return errRequest
	}
	pod := w.home.DeepCopy()
	alter(pod)
	pod.ResourceVersion = w.next()
	w.home = pod
	if pod.DeletionTimestamp != nil && len(pod.Finalizers) == 0 && *pod.DeletionGracePeriodSeconds == 0 {
		w.home = nil
	}
	return nil
}

func (w *world) deleteHome(uid types.UID, grace int64) error {
	return w.change(uid, "", func(p *corev1.Pod) {
		p.DeletionTimestamp, p.DeletionGracePeriodSeconds = ptr.To(now), &grace
	})
}

// changeShadow does the same with the ShadowPod; an empty UID means any.
func (w *world) changeShadow(uid types.UID, alter func(*remotev1alpha1.ShadowPod)) error {
	if w.shadow == nil || (uid != "" && w.shadow.UID != uid) {
		return errRequest
	}
	changed := w.shadow.DeepCopy()
	alter(changed)
	changed.ResourceVersion = w.next()
	w.shadow = changed
	return nil
}

func (w *world) createShadow(o Observation) error {
	if w.shadow != nil {
		return errRequest
	}
	w.shadow = &remotev1alpha1.ShadowPod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db-0", UID: types.UID("s" + w.next()), ResourceVersion: w.next()},
		Spec:       remotev1alpha1.ShadowPodSpec{Home: remotev1alpha1.HomePod{UID: o.Pod.UID}, Pod: o.Template},
	}
	return nil
}

// controller does what a StatefulSet does: it deletes a pod that ended, and makes
// a new one when the name is free.
func (w *world) controller() {
	switch {
	case w.home == nil:
		o := observe()
		w.home = o.Pod
		w.home.UID, w.home.ResourceVersion = types.UID("u"+w.next()), w.next()
		if w.chance(40) {
			w.home.Spec.NodeName = "home-1"
		}
	case Ended(w.home) && w.home.DeletionTimestamp == nil:
		_ = w.deleteHome(w.home.UID, 0)
	}
}

// kubelet ends a pod of home.
func (w *world) kubelet() {
	if w.home != nil && w.home.Spec.NodeName == "home-1" && w.home.DeletionTimestamp != nil {
		_ = w.deleteHome(w.home.UID, 0)
	}
}

// agent is the remote agent and the kubelet there.
func (w *world) agent() {
	shadow := w.shadow
	switch {
	case shadow == nil:
		w.remote = nil // the garbage collector
	case shadow.DeletionTimestamp != nil && w.remote != nil:
		w.remote = nil
	case shadow.DeletionTimestamp != nil:
		w.shadow = nil
	case !shadow.Spec.Start || shadow.Status.Phase == remotev1alpha1.ShadowPodLost || (w.remote != nil && Ended(w.remote)):
	case w.remote != nil:
		_ = w.changeShadow("", func(s *remotev1alpha1.ShadowPod) { s.Status.Phase = remotev1alpha1.ShadowPodCreated })
	case shadow.Status.Phase == remotev1alpha1.ShadowPodCreated && w.chance(50):
		_ = w.changeShadow("", lost)
	default:
		w.remote = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID("r" + w.next()),
			Labels: map[string]string{keys.PodUID: string(shadow.Spec.Home.UID)}}}
		w.remote.Status.Phase = corev1.PodRunning
		w.ran[shadow.Spec.Home.UID] = true
	}
}

// trouble does what users and administrators of both clusters may do.
func (w *world) trouble() {
	switch w.rand.IntN(8) {
	case 0:
		if w.home != nil {
			_ = w.deleteHome(w.home.UID, 30)
		}
	case 1:
		if w.home != nil {
			_ = w.deleteHome(w.home.UID, 0)
		}
	case 2: // the node was deleted, or the pod evicted
		if w.home != nil {
			_ = w.change(w.home.UID, "", func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed })
			_ = w.deleteHome(w.home.UID, 0)
		}
	case 3:
		_ = w.changeShadow("", going)
	case 4:
		w.remote = nil
	case 5:
		if w.remote != nil {
			w.remote = w.remote.DeepCopy()
			w.remote.Status.Phase = corev1.PodFailed
		}
	case 6: // somebody there takes off the finalizer
		if w.shadow != nil && w.shadow.DeletionTimestamp != nil {
			w.shadow = nil
		}
	}
}

func (w *world) String() string {
	text := ""
	if w.home != nil {
		text += fmt.Sprintf("home %s on %s, %s, finalizers %v, annotations %v, deleted %v; ", w.home.UID, w.home.Spec.NodeName,
			w.home.Status.Phase, w.home.Finalizers, w.home.Annotations, w.home.DeletionTimestamp != nil)
	}
	if w.shadow != nil {
		text += fmt.Sprintf("shadow %s of %s, start %v, deleted %v, %s; ", w.shadow.UID, w.shadow.Spec.Home.UID, w.shadow.Spec.Start,
			w.shadow.DeletionTimestamp != nil, w.shadow.Status.Phase)
	}
	if w.remote != nil {
		text += fmt.Sprintf("remote %s of %s", w.remote.UID, w.remote.Labels[keys.PodUID])
	}
	return text
}

// TestNoSecondCopyEverRuns walks through histories in which two programs work at
// once on what may be old, requests fail, lose their answers or arrive late,
// programs restart, and people delete things on both sides. There is never more
// than one copy of the pod, and once the trouble ends everything settles.
func TestNoSecondCopyEverRuns(t *testing.T) {
	const walks = 400
	restarts, ran := 0, 0
	for seed := range walks {
		w := &world{rand: rand.New(rand.NewPCG(uint64(seed), 1)), ran: map[types.UID]bool{}}
		actors := []*actor{{world: w}, {world: w}}
		for range 1500 {
			a := actors[w.rand.IntN(len(actors))]
			switch w.rand.IntN(32) {
			case 0:
				w.controller()
			case 1:
				if w.chance(35) {
					w.trouble()
				}
			case 2, 3:
				w.agent()
			case 4:
				w.land()
			case 5:
				w.kubelet()
			case 6:
				if w.chance(20) {
					a.restart()
					restarts++
				}
			case 7, 8, 9, 10, 11, 12, 13, 14, 15, 16:
				a.see()
			default:
				a.act()
			}
			require.LessOrEqual(t, w.running(), 1, "seed %d: two copies: %v", seed, w)
		}
		settle(t, seed, w, actors)
		ran += len(w.ran)
	}
	require.Positive(t, restarts)
	require.Greater(t, ran, 2*walks, "pods ran in the remote cluster")
}

// settle ends the trouble: one program is left, and whatever is under way comes
// to its end.
func settle(t *testing.T, seed int, w *world, actors []*actor) {
	t.Helper()
	for len(w.flying) > 0 {
		w.land()
		require.LessOrEqual(t, w.running(), 1, "seed %d: two copies: %v", seed, w)
	}
	w.calm = true
	a := actors[0]
	a.restart()
	for range 300 {
		a.seenHome, a.seenShadow, a.seenRemote = w.home, w.shadow, w.remote
		for a.act(); len(a.plan) > 0; {
			a.act()
		}
		w.controller()
		w.kubelet()
		w.agent()
		require.LessOrEqual(t, w.running(), 1, "seed %d: two copies: %v", seed, w)
	}
	require.NotNil(t, w.home, "seed %d: %v", seed, w)
	require.Nil(t, w.home.DeletionTimestamp, "seed %d: it never ends: %v", seed, w)
	require.Equal(t, 1, w.running(), "seed %d: it runs somewhere: %v", seed, w)
	if w.home.Spec.NodeName == "west" {
		require.Equal(t, string(w.home.UID), w.remote.Labels[keys.PodUID], "seed %d: %v", seed, w)
	} else {
		require.Nil(t, w.shadow, "seed %d: a ShadowPod is left: %v", seed, w)
	}
}

// actor is one virtual node program: what it sees may be old, and it takes a step
// in several requests, between which anything may happen.
type actor struct {
	*world
	seenHome   *corev1.Pod
	seenShadow *remotev1alpha1.ShadowPod
	seenRemote *corev1.Pod
	plan       []func() bool // what is left of the step; false ends it
}

// see updates one of the watches.
func (a *actor) see() {
	switch a.rand.IntN(3) {
	case 0:
		a.seenHome = a.home
	case 1:
		a.seenShadow = a.shadow
	case 2:
		a.seenRemote = a.remote
	}
}

// restart forgets everything and reads anew.
func (a *actor) restart() {
	a.plan = nil
	a.seenHome, a.seenShadow, a.seenRemote = a.home, a.shadow, a.remote
}

// act takes the next request of the step, or chooses a step.
func (a *actor) act() {
	if len(a.plan) > 0 {
		next := a.plan[0]
		a.plan = a.plan[1:]
		if !next() {
			a.plan = nil
		}
		return
	}
	uids := []types.UID{}
	if a.seenHome != nil && a.seenHome.Spec.NodeName == "west" {
		uids = append(uids, a.seenHome.UID)
	}
	if a.seenShadow != nil {
		uids = append(uids, a.seenShadow.Spec.Home.UID)
	}
	if len(uids) > 0 {
		o := a.observe(uids[a.rand.IntN(len(uids))])
		a.plan = a.requests(o, Next(o))
	}
}

func (a *actor) observe(uid types.UID) Observation {
	o := observe(noPod)
	o.Current = a.calm || a.chance(80)
	if a.seenHome != nil && a.seenHome.UID == uid && a.seenHome.Spec.NodeName == "west" {
		o.Pod = a.seenHome
		o.Template = observe(func(o *Observation) { o.Pod = a.seenHome.DeepCopy() }).Template
	}
	if a.seenShadow != nil {
		if a.seenShadow.Spec.Home.UID == uid {
			o.Shadow = a.seenShadow
		} else {
			o.Blocking = a.seenShadow
		}
	}
	if a.seenRemote != nil && a.seenRemote.Labels[keys.PodUID] == string(uid) {
		o.Remote = a.seenRemote
	}
	return o
}

// requests are what a step asks of the API servers.
func (a *actor) requests(o Observation, step Step) []func() bool {
	ask := func(request func() error) func() bool { return func() bool { return a.send(request) == nil } }
	guarded := func(alter func(*corev1.Pod)) []func() bool {
		uid, version := o.Pod.UID, o.Pod.ResourceVersion
		return []func() bool{ask(func() error { return a.change(uid, version, alter) })}
	}
	switch step.Verb {
	case Protect:
		return guarded(func(p *corev1.Pod) { p.Finalizers = []string{keys.RemotePodFinalizer} })
	case Create:
		return []func() bool{ask(func() error { return a.createShadow(o) })}
	case Record:
		return guarded(func(p *corev1.Pod) {
			p.Annotations = map[string]string{keys.RemoteCopy: Copy{ClusterUID: o.ClusterUID, ShadowUID: o.Shadow.UID,
				Namespace: o.Namespace.Name}.String()}
		})
	case Start:
		return []func() bool{ask(func() error { return a.changeShadow(o.Shadow.UID, started) })}
	case Report, Fail, Refuse:
		return guarded(func(p *corev1.Pod) { p.Status = step.Status })
	case Annotate:
		return guarded(func(p *corev1.Pod) { p.Annotations[keys.RemoteIP] = step.Address })
	case Lose:
		return append(a.proof(o), guarded(func(p *corev1.Pod) { p.Status = Failed(o.Pod, "RemotePodGone", "") })...)
	case End:
		return a.end(o)
	case Sweep:
		return append([]func() bool{func() bool { return a.home == nil || a.home.UID != o.Shadow.Spec.Home.UID }}, a.end(o)...)
	case Finish:
		return append(a.proof(o), a.release(o)...)
	case Release:
		return a.release(o)
	case Idle, Follow, Replace:
	}
	return nil
}

// proof asks whether ShadowPod and pod are gone; the plan ends if they are not.
func (a *actor) proof(o Observation) []func() bool {
	had, _ := CopyOf(o.Pod)
	uid := o.Pod.UID
	return []func() bool{
		func() bool {
			s := a.shadow
			return s == nil || s.Spec.Home.UID != uid || (s.UID != had.ShadowUID && !s.Spec.Start)
		},
		func() bool { return a.remote == nil || a.remote.Labels[keys.PodUID] != string(uid) },
	}
}

func (a *actor) end(o Observation) []func() bool {
	uid := o.Shadow.UID
	return []func() bool{func() bool { return a.send(func() error { return a.changeShadow(uid, going) }) == nil }}
}

func (a *actor) release(o Observation) []func() bool {
	uid := o.Pod.UID
	var plan []func() bool
	if slices.Contains(o.Pod.Finalizers, keys.RemotePodFinalizer) {
		plan = append(plan, func() bool {
			return a.send(func() error { return a.change(uid, "", func(p *corev1.Pod) { p.Finalizers = nil }) }) == nil
		})
	}
	if o.Pod.DeletionTimestamp != nil {
		plan = append(plan, func() bool { return a.send(func() error { return a.deleteHome(uid, 0) }) == nil })
	}
	return plan
}

// change alters an observation that a test starts from.
type change func(*Observation)

// observe returns what is known of a pod that a scheduler has just bound to
// a virtual node that works.
func observe(changes ...change) Observation {
	o := Observation{
		Cluster: "west", ClusterUID: "west-uid", Network: v1alpha1.Isolated,
		Pod: &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db-0", UID: "u1"},
			Spec:       corev1.PodSpec{NodeName: "west", Containers: []corev1.Container{{Name: "app", Image: "app:1"}}},
			Status: corev1.PodStatus{
				Phase: corev1.PodPending, HostIP: "10.9.0.1", HostIPs: []corev1.HostIP{{IP: "10.9.0.1"}},
				Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue}},
			},
		},
		Open: true, HostIP: "10.9.0.1", Current: true,
		Namespace: Namespace{Name: "shop", Given: true, Seen: true},
	}
	for _, c := range changes {
		c(&o)
	}
	if o.Pod != nil {
		o.Template = translate.Template(o.Pod, func(namespace string) string { return namespace }, "")
		if o.Shadow != nil && o.Shadow.Spec.Pod.Spec.Containers == nil {
			o.Shadow.Spec.Pod = o.Template
		}
	}
	return o
}

func homeChange(alter func(*corev1.Pod)) change {
	return func(o *Observation) { alter(o.Pod) }
}

var (
	protected = homeChange(func(p *corev1.Pod) { p.Finalizers = append(p.Finalizers, keys.RemotePodFinalizer) })
	recorded  = copyIs("west-uid", "s1")
	deleting  = graceful(30)
	failed    = phase(corev1.PodFailed)
	noPod     = change(func(o *Observation) { o.Pod = nil })
	unseen    = change(func(o *Observation) { o.Namespace.Seen = false })
	notGiven  = change(func(o *Observation) {
		o.Namespace.Given, o.Namespace.Message = false, "waiting until cluster west answers"
	})
	stale   = change(func(o *Observation) { o.Current = false })
	unknown = change(func(o *Observation) { o.ClusterUID = "" })
)

func phase(phase corev1.PodPhase) change {
	return homeChange(func(p *corev1.Pod) { p.Status.Phase = phase })
}

func graceful(seconds int64) change {
	return homeChange(func(p *corev1.Pod) {
		p.DeletionTimestamp, p.DeletionGracePeriodSeconds = ptr.To(metav1.Unix(1000, 0)), &seconds
	})
}

func copyIs(cluster, shadow types.UID) change {
	return homeChange(func(p *corev1.Pod) {
		p.Annotations = map[string]string{keys.RemoteCopy: Copy{ClusterUID: cluster, ShadowUID: shadow}.String()}
	})
}

// shadow adds the ShadowPod s1.
func shadow(changes ...func(*remotev1alpha1.ShadowPod)) change {
	return func(o *Observation) {
		o.Shadow = &remotev1alpha1.ShadowPod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db-0", UID: "s1"},
			Spec:       remotev1alpha1.ShadowPodSpec{Home: remotev1alpha1.HomePod{Cluster: "h1", Namespace: "shop", Name: "db-0", UID: "u1"}},
		}
		for _, c := range changes {
			c(o.Shadow)
		}
	}
}

func started(s *remotev1alpha1.ShadowPod) { s.Spec.Start = true }
func other(s *remotev1alpha1.ShadowPod)   { s.UID = "s2" }
func going(s *remotev1alpha1.ShadowPod)   { s.DeletionTimestamp = ptr.To(metav1.Unix(1000, 0)) }
func lost(s *remotev1alpha1.ShadowPod) {
	s.Status.Phase, s.Status.Message = remotev1alpha1.ShadowPodLost, "The pod was removed."
}

func refusedThere(s *remotev1alpha1.ShadowPod) {
	s.Status.Phase, s.Status.Reason, s.Status.Message = remotev1alpha1.ShadowPodPending, "NotAllowed", "There is no room."
}

func graceIs(seconds int64) func(*remotev1alpha1.ShadowPod) {
	return func(s *remotev1alpha1.ShadowPod) { s.Spec.GracePeriodSeconds = &seconds }
}

func older(s *remotev1alpha1.ShadowPod) {
	s.Spec.Pod.Spec.Containers = []corev1.Container{{Name: "app", Image: "app:0"}}
}

// remote adds the pod in the remote cluster.
func remote(phase corev1.PodPhase) change {
	return func(o *Observation) {
		o.Remote = &corev1.Pod{Status: corev1.PodStatus{Phase: phase, PodIPs: []corev1.PodIP{{IP: "10.1.0.1"}}}}
	}
}

// reported gives the home pod the status of the remote one.
func reported(o *Observation) {
	seen := translate.Seen{Home: o.Pod, Remote: o.Remote, HostIP: o.HostIP, Network: o.Network, Ranges: o.Ranges}
	o.Pod.Status = translate.Status(seen)
	if o.Pod.Annotations == nil {
		o.Pod.Annotations = map[string]string{}
	}
	o.Pod.Annotations[keys.RemoteIP] = "10.1.0.1"
}

func ownedBy(kind string) change {
	return homeChange(func(p *corev1.Pod) {
		p.OwnerReferences = []metav1.OwnerReference{{Kind: kind, Name: "owner", Controller: ptr.To(true)}}
	})
}

var (
	now    = metav1.Unix(1000, 0)
	closed = change(func(o *Observation) { o.Open = false })
)
