package snapshot

import (
	"slices"

	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// Pod is a pod that waits for a node.
type Pod struct {
	Namespace string
	Name      string
	UID       string
	// Volumes are those of its volumes that use a claim.
	Volumes []PodVolume
	// Daemon: the pod belongs to a DaemonSet, which wants it on one node.
	Daemon bool
	// StatefulSet is the name of the StatefulSet (apps) that controls the pod;
	// empty if none does.
	StatefulSet string
	// Near names claims of the pod's namespace that it should run near without
	// mounting them.
	Near []string
}

// PodVolume is a volume of a pod that uses a claim.
type PodVolume struct {
	ClaimName string
	// Ephemeral: the claim is made for the pod and counts only if the pod owns
	// it.
	Ephemeral bool
}

// PodClaim is a claim of a pod, with what is known of it.
type PodClaim struct {
	Name string
	*Claim
	// Volume holds the claim's data; nil when there is none, or nothing is known
	// of it.
	Volume *Volume
	// Near: the pod does not mount the claim.
	Near bool
}

// DataIn returns the ID of the cluster that holds the claim's data, empty when
// there is no data or it may be anywhere. hard: the data is reachable in that
// cluster only, so a pod that mounts the claim has to run there; otherwise the
// cluster is what an administrator's label says, and the pod should run there.
func (c PodClaim) DataIn() (cluster string, hard bool) {
	if c.Volume == nil {
		return "", false
	}
	if c.Volume.Cluster != "" {
		return c.Volume.Cluster, true
	}
	return c.Volume.Prefers, false
}

// Node is a node that a pod may be put on.
type Node struct {
	Name string
	// Cluster is the ID of the cluster that the node stands for.
	Cluster string
	// Known is false when the node has not been seen yet, and Cluster is empty.
	Known bool
}

// EachNode calls with what is known of each of many nodes, in their order.
func (s *Snapshot) EachNode(names []string, with func(i int, node Node)) {
	s.Nodes.GetAll(names, func(i int, cluster string, known bool) {
		with(i, Node{Name: names[i], Cluster: cluster, Known: known})
	})
}

// ClaimsOf returns the claims that the pod mounts, each once. Those that are not
// known are left out.
func (s *Snapshot) ClaimsOf(pod Pod) []PodClaim {
	var claims []PodClaim
	var named names
	for _, volume := range pod.Volumes {
		if !named.add(volume.ClaimName) {
			continue
		}
		if claim, ok := s.claimOf(pod, volume); ok {
			claims = append(claims, s.podClaim(volume.ClaimName, claim))
		}
	}
	return claims
}

// ClaimsNear returns the claims that the pod wants to be near without mounting
// them, each once. Those that are not known are left out.
func (s *Snapshot) ClaimsNear(pod Pod) []PodClaim {
	var claims []PodClaim
	for i, name := range pod.Near {
		if mounted(pod.Volumes, name) || slices.Contains(pod.Near[:i], name) {
			continue
		}
		if claim, ok := s.Claims.Get(ClaimKey(pod.Namespace, name)); ok {
			near := s.podClaim(name, claim)
			near.Near = true
			claims = append(claims, near)
		}
	}
	return claims
}

func (s *Snapshot) podClaim(name string, claim *Claim) PodClaim {
	found := PodClaim{Name: name, Claim: claim}
	if volume, ok := s.VolumeOf(claim); ok {
		found.Volume = volume
	}
	return found
}

// SourceOf returns the claim of a namespace that another one is to be a copy of,
// and the ID of the cluster that holds its data. Data of which nobody says where
// it is is at home. The cluster is empty when there is no such claim, or it has no
// volume.
func (s *Snapshot) SourceOf(namespace string, of PodClaim) (source PodClaim, cluster string) {
	claim, ok := s.Claims.Get(ClaimKey(namespace, of.Source))
	if !ok {
		return PodClaim{}, ""
	}
	source = s.podClaim(of.Source, claim)
	if source.Volume == nil {
		return source, ""
	}
	if cluster, _ = source.DataIn(); cluster == "" {
		cluster = keys.Home
	}
	return source, cluster
}

// Knows says whether all claims that the pod mounts are known, with the volumes of
// those that are bound and the storage classes of the others, and where there are
// remote clusters its namespace too. kube-scheduler calls an extender only when it
// knows all of that, and a pod is made after its namespace.
func (s *Snapshot) Knows(pod Pod) bool {
	if _, ok := s.Namespaces.Get(pod.Namespace); !ok && s.Clusters.Len() > 0 {
		return false
	}
	for _, volume := range pod.Volumes {
		claim, ok := s.claimOf(pod, volume)
		if !ok || s.lags(claim) {
			return false
		}
		if claim.Source == "" {
			continue
		}
		if source, ok := s.Claims.Get(ClaimKey(pod.Namespace, claim.Source)); ok && source.Bound && s.lags(source) {
			return false
		}
	}
	return true
}

// lags says whether a claim is bound to a volume, or has a storage class, that is
// not known. Only Kubernetes says that a claim is bound; and it asks no extender
// about a claim whose class does not exist.
func (s *Snapshot) lags(claim *Claim) bool {
	if claim.Bound {
		_, known := s.Volumes.Get(claim.VolumeName)
		return !known
	}
	if claim.VolumeName != "" || claim.ClassName == "" {
		return false
	}
	if _, virtual := s.Classes.Get(claim.ClassName); virtual {
		return false
	}
	return !s.HomeClasses.Has(claim.ClassName)
}

func (s *Snapshot) claimOf(pod Pod, volume PodVolume) (*Claim, bool) {
	claim, ok := s.Claims.Get(ClaimKey(pod.Namespace, volume.ClaimName))
	if !ok || (volume.Ephemeral && (pod.UID == "" || claim.OwnerUID != pod.UID)) {
		return nil, false
	}
	return claim, true
}

func mounted(volumes []PodVolume, claimName string) bool {
	for _, volume := range volumes {
		if volume.ClaimName == claimName {
			return true
		}
	}
	return false
}
