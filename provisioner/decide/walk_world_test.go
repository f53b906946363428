package decide_test

import (
	"math/rand/v2"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	// stuck: no real volume is ever made there. full: it refuses backing claims.
	stuck, full bool
	// healed is the shadow that the agent makes anew.
	healed *corev1.PersistentVolumeClaim
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
	carried                 time.Time

	// cutting: west goes away once it has carried out as many requests as cut says; the
	// answer to the last of them is lost.
	cutting bool
	cut     int
	// made is how many backing claims were ever made.
	made int

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
	o.Now, o.Claim, o.Volume, o.Real, o.Carried = w.now, seen.claim, seen.volume, seen.real, w.carried
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
			bound := b.real
			if bound != nil && (bound.Spec.ClaimRef.UID != b.backing.UID || b.backing.Spec.VolumeName != bound.Name) {
				bound = nil
			}
			o.Backings = append(o.Backings, decide.Backing{Cluster: id, Claim: b.backing, Volume: bound})
		}
	}
	o.Cluster = func(id string) decide.Cluster {
		c := good()
		for i := range c.Offered {
			c.Offered[i].Provisioner = driver
		}
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
