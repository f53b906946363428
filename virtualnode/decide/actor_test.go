package decide

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// actor is one virtual node program: what it sees may be old, and it takes a step
// in several requests, between which anything may happen.
type actor struct {
	*world
	seenHome   *corev1.Pod
	seenShadow *remotev1alpha1.ShadowPod
	seenRemote *corev1.Pod
	plan       []func() bool // what is left of the step; false ends it
}

// see brings one of the watches up to date.
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
			p.Annotations = map[string]string{keys.RemoteCopy: Copy{ClusterUID: o.ClusterUID, ShadowUID: o.Shadow.UID, Namespace: o.Place.Name}.String()}
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
	case Idle, Follow:
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
