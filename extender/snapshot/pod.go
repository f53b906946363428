package snapshot

// Pod is a pod that waits for a node.
type Pod struct {
	Namespace string
	Name      string
	UID       string
	// Volumes are those of its volumes that use a claim.
	Volumes []PodVolume
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

// Node is a node that a pod may be put on.
type Node struct {
	Name string
	// Cluster is the ID of the cluster that the node stands for.
	Cluster string
	// Known is false when the node has not been seen yet, and Cluster is empty.
	Known bool
}

// Node returns what is known of the node of that name.
func (s *Snapshot) Node(name string) Node {
	cluster, known := s.Nodes.Get(name)
	return Node{Name: name, Cluster: cluster, Known: known}
}

// ClaimsOf returns the claims that the pod mounts, each once. Those that are not
// known are left out.
func (s *Snapshot) ClaimsOf(pod Pod) []*Claim {
	var claims []*Claim
	for i, volume := range pod.Volumes {
		if mounted(pod.Volumes[:i], volume.ClaimName) {
			continue
		}
		if claim, ok := s.claimOf(pod, volume); ok {
			claims = append(claims, claim)
		}
	}
	return claims
}

// KnowsClaimsOf says whether all claims that the pod mounts are known.
// kube-scheduler calls an extender only when it knows them all.
func (s *Snapshot) KnowsClaimsOf(pod Pod) bool {
	for _, volume := range pod.Volumes {
		if _, ok := s.claimOf(pod, volume); !ok {
			return false
		}
	}
	return true
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
