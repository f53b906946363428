package decide

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
)

const (
	// firstYield is for how long a mover that made way is not made again, so that pods get
	// the volume first. It doubles up to longestYield.
	firstYield   = 5 * time.Second
	longestYield = 2 * time.Minute
)

// yielded is the step of a mover at the source that keeps a volume on its node while the
// pods that use it are on others; false where it is in nobody's way. It is made again where
// the pods are. Once pods are stopped for the move none can be in the way.
func yielded(o Observation, i int) (Step, bool) {
	known, seen := o.Record.Claims[i], o.Claims[i]
	if !record.Before(o.Record.Phase, v1alpha1.MoveQuiesce) {
		return Step{}, false
	}
	m := seen.Source.Mover
	if !m.Exists {
		left := known.Yielded.Add(yieldFor(known.Yields)).Sub(o.Now)
		if known.Yields == 0 || left <= 0 {
			return Step{}, false
		}
		return wait(min(left, soon), fmt.Sprintf("the mover of claim %s at the source made way for pods on %s, and is made again there", known.Name, nodes(seen.On))), true
	}
	if m.Node == "" || len(seen.On) == 0 || slices.Contains(seen.On, m.Node) || shared(seen.Claim) {
		return Step{}, false
	}
	say := fmt.Sprintf("the mover of claim %s makes way for pods on %s, since the volume can be used on one node at a time", known.Name, nodes(seen.On))
	switch {
	case m.Leaving:
		return wait(soon, say), true
	case known.YieldedBy == m.Pod:
		return Step{Verb: DropMover, Claim: i, End: record.Source, Say: say}, true
	}
	step := change(o, i, func(c *record.Claim) {
		c.Yields, c.Yielded, c.YieldedBy = c.Yields+1, o.Now, m.Pod
	})
	step.Say = say
	return step, true
}

// yieldFor is for how long a mover stays away that made way so many times.
func yieldFor(times int) time.Duration {
	return min(firstYield<<min(max(times-1, 0), 8), longestYield)
}

func nodes(names []string) string {
	if len(names) == 0 {
		return "another node"
	}
	return "node " + strings.Join(names, ", ")
}

// shared says whether several nodes may have the volume of a claim.
func shared(claim *corev1.PersistentVolumeClaim) bool {
	return claim == nil || slices.ContainsFunc(claim.Spec.AccessModes, func(mode corev1.PersistentVolumeAccessMode) bool {
		return mode == corev1.ReadWriteMany || mode == corev1.ReadOnlyMany
	})
}
