package decide

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
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

// land has a request arrive that was given up.
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
		w.remote = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID("r" + w.next()), Labels: map[string]string{keys.PodUID: string(shadow.Spec.Home.UID)}}}
		w.remote.Status.Phase = corev1.PodRunning
		w.ran[shadow.Spec.Home.UID] = true
	}
}

// trouble is what users and administrators of both clusters do.
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
		text += fmt.Sprintf("home %s on %s, %s, finalizers %v, annotations %v, deleted %v; ", w.home.UID, w.home.Spec.NodeName, w.home.Status.Phase, w.home.Finalizers, w.home.Annotations, w.home.DeletionTimestamp != nil)
	}
	if w.shadow != nil {
		text += fmt.Sprintf("shadow %s of %s, start %v, deleted %v, %s; ", w.shadow.UID, w.shadow.Spec.Home.UID, w.shadow.Spec.Start, w.shadow.DeletionTimestamp != nil, w.shadow.Status.Phase)
	}
	if w.remote != nil {
		text += fmt.Sprintf("remote %s of %s", w.remote.UID, w.remote.Labels[keys.PodUID])
	}
	return text
}
