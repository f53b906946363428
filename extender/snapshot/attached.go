package snapshot

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/component-helpers/storage/ephemeral"

	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// Limits is how many volumes a node can have attached, by CSI driver; drivers
// without a limit are left out.
type Limits map[string]int

// FromCSINode returns the limits of a node; false when it has none.
func FromCSINode(node *storagev1.CSINode) (Limits, bool) {
	limits := Limits{}
	for _, driver := range node.Spec.Drivers {
		if driver.Allocatable != nil && driver.Allocatable.Count != nil {
			limits[intern(driver.Name)] = int(*driver.Allocatable.Count)
		}
	}
	return limits, len(limits) > 0
}

// maxClaims bounds the claims of one pod that count, and the claims of one node
// that are looked up for a decision: no node has nearly as many volumes.
const maxClaims = 512

// FromPod returns which claims a pod has in use on its node; false for a pod that
// has none, or is on no node, or has ended.
func FromPod(pod *corev1.Pod) (Use, bool) {
	if pod.Spec.NodeName == "" || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
		return Use{}, false
	}
	var claims []string
	for i := range pod.Spec.Volumes {
		volume := &pod.Spec.Volumes[i]
		var claim string
		switch {
		case volume.PersistentVolumeClaim != nil:
			claim = volume.PersistentVolumeClaim.ClaimName
		case volume.Ephemeral != nil:
			claim = ephemeral.VolumeClaimName(pod, volume)
		default:
			continue
		}
		if len(claim) > maxName {
			// There is no such claim, and the key would be large.
			continue
		}
		if key := ClaimKey(pod.Namespace, claim); len(claims) < maxClaims && !slices.Contains(claims, key) {
			claims = append(claims, key)
		}
	}
	return Use{Node: intern(pod.Spec.NodeName), Claims: slices.Clip(claims)}, len(claims) > 0
}

// HomeDriver returns the CSI driver that would make the volume of a claim of a
// virtual class at home; empty when that is not known.
func (s *Snapshot) HomeDriver(class *Class, claim *Claim) string {
	name, err := class.RealClassName(keys.Home, claim.Choice)
	if err != nil {
		return ""
	}
	real, _ := s.HomeClasses.Resolve(name)
	return real.Provisioner
}

// tally is which drivers the claims of a node have.
type tally struct {
	// drivers has the claims whose volume is of a CSI driver. That never changes.
	drivers map[string]string
	counts  map[string]int
	// rest are claims of which that could not be said for good.
	rest []string
}

// CanAttach says whether a node can have the volumes of these claims, given by
// their keys in ascending order, attached by a CSI driver, beside those that are
// there or are being made for it at now, as far as its limit goes.
func (s *Snapshot) CanAttach(node, driver string, wanted []string, now time.Time) bool {
	limits, limited := s.Limits.Get(node)
	if !limited {
		return true
	}
	limit, limited := limits[driver]
	if !limited {
		return true
	}
	if len(wanted) > limit {
		return false
	}
	if len(wanted)+s.Assigned.atMost()+s.InFlight.atMost() <= limit {
		return true
	}
	here, coming := s.Assigned.on(node), s.InFlight.on(node)
	most := len(wanted)
	if here != nil {
		most += here.claims
	}
	if coming != nil {
		most += coming.claims
	}
	// Which drivers they are of matters only on a node that has many.
	return most <= limit || len(wanted)+s.attached(here, coming, driver, wanted, now) <= limit
}

// attached returns how many claims other than own have a volume of a driver. What
// ends by itself counts until then.
func (s *Snapshot) attached(here, coming *nodeUse, driver string, own []string, now time.Time) int {
	count := 0
	var unsure []string
	var drivers map[string]string
	if here != nil {
		known := s.tallyOf(here)
		count, drivers, unsure = known.counts[driver], known.drivers, known.rest
		for _, key := range own {
			if drivers[key] == driver {
				count--
			}
		}
	}
	if coming != nil {
		// The tally's own list must stay as it is.
		unsure = slices.Clip(unsure)
		for _, user := range coming.users {
			if user.until.IsZero() || now.Before(user.until) {
				unsure = append(unsure, user.claims...)
			}
		}
	}
	var looked map[string]bool
	for _, key := range unsure[:min(len(unsure), maxClaims)] {
		if _, mine := slices.BinarySearch(own, key); mine || looked[key] {
			continue
		}
		if _, known := drivers[key]; known {
			continue
		}
		if looked == nil {
			looked = map[string]bool{}
		}
		looked[key] = true
		if found, _ := s.driverOf(key); found == driver {
			count++
		}
	}
	return count
}

// tallyOf returns the drivers of what pods use on a node, looked up once for each
// change of its pods.
func (s *Snapshot) tallyOf(node *nodeUse) *tally {
	if known := node.tally.Load(); known != nil {
		return known
	}
	t := &tally{drivers: map[string]string{}, counts: map[string]int{}}
	seen := make(map[string]bool, node.claims)
	for _, user := range node.users {
		for _, key := range user.claims {
			if seen[key] {
				continue
			}
			seen[key] = true
			driver, final := s.driverOf(key)
			switch {
			case !final:
				t.rest = append(t.rest, key)
			case driver != "":
				t.drivers[key] = driver
				t.counts[driver]++
			}
		}
	}
	node.tally.Store(t)
	return t
}

// driverOf returns the CSI driver of a claim's volume, of the one that it has or
// would get at home; empty when there is none. final: it will never be another.
func (s *Snapshot) driverOf(key string) (driver string, final bool) {
	claim, ok := s.Claims.Get(key)
	if !ok {
		return "", false
	}
	if volume, ok := s.VolumeOf(claim); ok {
		return volume.Driver, true
	}
	if claim.VolumeName != "" {
		return "", false
	}
	if class, ok := s.Classes.Get(claim.ClassName); ok {
		return s.HomeDriver(class, claim), false
	}
	if claim.ClassName == "" {
		return "", false
	}
	real, _ := s.HomeClasses.Resolve(claim.ClassName)
	return real.Provisioner, false
}
