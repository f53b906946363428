package decide_test

import (
	"math/rand/v2"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/decide"
)

// state is what an API server holds of one claim, or what a cache shows of it.
type state struct {
	backing *corev1.PersistentVolumeClaim
	real    *corev1.PersistentVolume
	// claim and volume are the virtual ones, at home.
	claim  *corev1.PersistentVolumeClaim
	volume *corev1.PersistentVolume
}

// copied returns a state that changes no more.
func (s state) copied() state {
	return state{s.backing.DeepCopy(), s.real.DeepCopy(), s.claim.DeepCopy(), s.volume.DeepCopy()}
}

// site is one cluster.
type site struct {
	state
	id   string
	seen state
	// away: no request gets there; noticed: home knows, since when.
	away, noticed bool
	since         time.Time
	skew          time.Duration
	backup        *state
}

// world is a home cluster and two remote ones in which the life of one claim takes
// place, with all others who write its objects: scheduler, real provisioners, pods,
// kube-controller-manager, the user. Time passes as the walk wants.
type world struct {
	*rand.Rand
	now     time.Time
	sites   map[string]*site
	base    decide.Observation
	version int

	// What the provisioner remembers.
	unsent, gone, handedOut bool

	// faulty: requests fail, caches lag, clusters go away.
	faulty bool
	// deleted: the user deleted the claim. restored: a cluster went back in time.
	deleted, restored, retained bool
	told                        string
	trace                       []string
}

func newWorld(seed uint64) *world {
	w := &world{Rand: rand.New(rand.NewPCG(seed, 2)), now: now, faulty: true, sites: map[string]*site{}}
	for _, id := range []string{keys.Home, "west", "east"} {
		w.sites[id] = &site{id: id, skew: time.Duration(w.IntN(7201)-3600) * time.Second}
	}
	w.sites[keys.Home].skew = 0
	w.base = observe(parameter(keys.RemoteClass, []string{"wait", "now", "roomy"}[w.IntN(3)]), parameter(keys.LocalClass, []string{"wait", "now", "roomy"}[w.IntN(3)]))
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

// observe is what the provisioner sees in its caches.
func (w *world) observe() decide.Observation {
	o := w.base
	home := w.sites[keys.Home]
	seen := home.seen.copied()
	o.Now, o.Claim, o.Volume, o.Real = w.now, seen.claim, seen.volume, seen.real
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
			bound := b.real
			if bound != nil && (bound.Spec.ClaimRef.UID != b.backing.UID || b.backing.Spec.VolumeName != bound.Name) {
				bound = nil
			}
			o.Backings = append(o.Backings, decide.Backing{Cluster: id, Claim: b.backing, Volume: bound})
		}
	}
	o.Cluster = func(id string) decide.Cluster {
		c := good()
		if s := w.sites[id]; s != nil && s.noticed {
			c.Usable, c.Seen, c.Reason, c.Message, c.Since = false, false, "NotReachable", "no answer", s.since
		}
		return c
	}
	return o
}

// refresh has the caches show what is so now; where a cluster cannot be reached
// they stay behind.
func (w *world) refresh() {
	for _, s := range w.sites {
		if !s.away {
			s.seen = s.copied()
		}
	}
}

// others lets everybody else do one thing.
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

// schedule is kube-scheduler: it chooses any node where none is chosen.
func (w *world) schedule(home *site) {
	c := home.claim
	switch {
	case c == nil || home.volume != nil:
		return
	case c.Annotations[keys.SelectedNode] != "":
		if w.faulty && w.chance(10) {
			// The node went away: others take it off the claim without a word to us.
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

// controllers is kube-controller-manager: it binds claim and volume, and releases
// the volume whose claim is gone.
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

// provision is the real provisioner of a cluster, with its garbage collection.
func (w *world) provision(s *site) {
	b := s.backing
	if b != nil && b.DeletionTimestamp != nil && len(b.Finalizers) == 0 {
		s.backing, b = nil, nil
	}
	if s.real != nil && b == nil {
		s.real.Status.Phase = corev1.VolumeReleased
		if w.chance(70) {
			s.real = nil
		}
	}
	if b == nil {
		return
	}
	switch {
	case b.Status.Phase == corev1.ClaimPending && (*b.Spec.StorageClassName != "wait" || b.Annotations[keys.SelectedNode] != ""):
		s.real = &corev1.PersistentVolume{
			ObjectMeta: metav1.ObjectMeta{Name: "real-" + string(b.UID), UID: types.UID("r-" + string(b.UID)), Annotations: map[string]string{}},
			Spec: corev1.PersistentVolumeSpec{Capacity: b.Spec.Resources.Requests.DeepCopy(), ClaimRef: &corev1.ObjectReference{UID: b.UID},
				PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete},
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

// pod is a pod of the claim: once that is bound it runs where the data is and
// writes.
func (w *world) pod(home *site) {
	if home.claim == nil || home.claim.Spec.VolumeName == "" || home.volume == nil {
		return
	}
	s := w.sites[refOf(home.volume).Cluster]
	if s.backing == nil || s.backing.UID != refOf(home.volume).UID {
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
