package record

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
)

// Freeze is the stopping of an application while the snapshot of a point is taken. It is written before the first pod is frozen: from
// then on each of its pods is thawed, with the command that is written here, whatever becomes of the point.
type Freeze struct {
	// Command freezes a pod, Thaw thaws it: programs and their arguments.
	Command []string `json:"command"`
	Thaw    []string `json:"thaw"`
	// Since is when it began, by home's clock and rather too early; Limit is for how long pods may be frozen from then on.
	Since time.Time     `json:"since"`
	Limit time.Duration `json:"limit"`
	// Pods are those with the claims that ran when it began; none: nothing wrote.
	Pods []FrozenPod `json:"pods,omitempty"`
	// Rested are pods with the claims that had ended by then, and are still there.
	Rested []types.UID `json:"rested,omitempty"`
	// Taken is when the snapshot was seen to be taken, and Snapshot is its UID; zero: it was not.
	Taken    time.Time `json:"taken,omitzero"`
	Snapshot types.UID `json:"snapshot,omitempty"`
	// Over says that no pod is frozen any more.
	Over bool `json:"over,omitempty"`
}

// FrozenPod is a pod that is frozen, in one container.
type FrozenPod struct {
	Name      string    `json:"name"`
	UID       types.UID `json:"uid"`
	Container string    `json:"container"`
	// State tells the pod with its containers from what it is after one of them has restarted.
	State string `json:"state"`
	// Ended says that the end of Command was seen, so that it does nothing any more, and Refused that it was not let begin.
	Ended   bool `json:"ended,omitempty"`
	Refused bool `json:"refused,omitempty"`
	// Thaws is how often Thaw has ended well. Thawed says that it is not called any more.
	Thaws  int  `json:"thaws,omitempty"`
	Thawed bool `json:"thawed,omitempty"`
	// Failures counts calls of Thaw in a row that failed, Problem is why the last one did, and Next when it is called again.
	Failures int       `json:"failures,omitempty"`
	Problem  string    `json:"problem,omitempty"`
	Next     time.Time `json:"next,omitzero"`
}

func (f *Freeze) clone() *Freeze {
	if f == nil {
		return nil
	}
	own := *f
	own.Pods, own.Rested = slices.Clone(f.Pods), slices.Clone(f.Rested)
	return &own
}

// Owed says whether the point has to thaw something before anything else is done for it.
func (p *Point) Owed() bool { return p.Freeze != nil && !p.Freeze.Over && len(p.Freeze.Pods) > 0 }

// Held says whether the snapshot of the point is to be taken while an application is frozen, or rests, and that is not over.
func (p *Point) Held() bool { return p.Freeze != nil && !p.Freeze.Over }

// Made says how a version of the point is made.
func (p *Point) Made() v1alpha1.VersionConsistency {
	switch {
	case p.Freeze == nil:
		return v1alpha1.VersionCrash
	case len(p.Freeze.Pods) == 0:
		return v1alpha1.VersionAtRest
	}
	return v1alpha1.VersionFrozen
}
