package decide_test

import (
	"math/rand/v2"

	corev1 "k8s.io/api/core/v1"

	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/backing"
	"github.com/lodestone-storage/lodestone/provisioner/decide"
)

// randomUse returns a claim that is bound to a volume with a backing claim in a
// cluster, all of them of any size.
func randomUse(r *rand.Rand, cluster string) []change {
	size := func() string { return []string{"1Gi", "2Gi", "3Gi"}[r.IntN(3)] }
	behind := append(randomBacking(r), published, asks(size(), size()))
	if r.IntN(100) < 80 {
		behind = append(behind, pvcBound)
	}
	if r.IntN(100) < 40 {
		behind = append(behind, says(corev1.PersistentVolumeClaimFileSystemResizePending, "start a pod"))
	}
	if r.IntN(100) < 60 {
		behind = append(behind, of([]string{"now", "roomy", "gone"}[r.IntN(3)]))
	}
	changes := []change{volume(cluster, randomVolume(r)...), have(cluster, behind...), inUse(size(), size())}
	if r.IntN(100) < 30 {
		changes = append(changes, declined(size()))
	}
	if r.IntN(100) < 30 {
		changes = append(changes, growing)
	}
	if r.IntN(100) < 30 {
		changes = append(changes, annotated(keys.FixedSize, "it is of stone"))
	}
	return changes
}

// harmToSize says what is wrong with a step that changes what a claim asks for or
// says of its size; empty if nothing.
func harmToSize(o decide.Observation, step decide.Step) string {
	if o.Claim == nil || o.Volume == nil || o.Claim.Spec.VolumeName != o.Volume.Name {
		return "a size of a claim that is not bound to the volume"
	}
	if step.Verb == decide.Fix {
		if step.Fixed == o.Claim.Annotations[keys.FixedSize] {
			return "a write that changes nothing"
		}
		return ""
	}
	ours, reached := decide.KeepsSize(o.Volume), o.Claim.Status.Capacity.Storage()
	if step.Verb == decide.Expand {
		b := step.Backing.Claim
		have, has := b.Spec.Resources.Requests.Storage(), b.Status.Capacity.Storage()
		switch {
		case refUID(o) != string(b.UID) || b.DeletionTimestamp != nil || b.Status.Phase != corev1.ClaimBound:
			return "a size of a claim that is not in use behind the volume"
		case step.Size.Cmp(*have) == 0 || step.Size.Cmp(*has) <= 0 && step.Size.Cmp(*have) < 0:
			return "a size that is there already, or that Kubernetes refuses"
		case ours && !step.Size.Equal(*o.Claim.Spec.Resources.Requests.Storage()):
			return "a size that nobody asked for"
		case !ours && !step.Size.Equal(*reached):
			return "a twin larger than its driver has made the volume"
		case o.Declined != nil && o.Declined.Size.Equal(step.Size):
			return "a size that was refused just now"
		}
		return ""
	}
	status := step.Status
	switch {
	case step.Backing.Cluster != keys.Home && o.QuietUntil.After(o.Now):
		return "a write of what a cluster says that has said too much"
	case step.On == o.Claim && status.ModifyVolumeStatus != nil && status.ModifyVolumeStatus.TargetVolumeAttributesClassName != backing.Attributes(o.Claim):
		return "a change of attributes told that nobody asked for"
	case step.Cluster != keys.Home:
		return "a status written in a cluster that keeps its own"
	case step.On == o.Claim && !ours:
		return "a status written that the driver and kubelet keep"
	case step.On == o.Claim && status.Capacity.Storage().Cmp(*reached) < 0:
		return "a claim that shrinks"
	case step.On == o.Claim && status.Capacity.Storage().Cmp(*reached) > 0 && status.Capacity.Storage().Cmp(*o.Volume.Spec.Capacity.Storage()) > 0:
		return "a claim that is larger than its volume"
	case step.On == o.Claim && status.AllocatedResources.Storage().Cmp(*o.Claim.Spec.Resources.Requests.Storage()) > 0:
		return "more of the quota taken than was asked for"
	case step.On != o.Claim && (ours || !status.Capacity.Storage().Equal(*reached)):
		return "a twin that says other than kubelet said"
	}
	return ""
}
