package flow

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/backing"
	"github.com/lodestone-storage/lodestone/provisioner/decide"
)

// Conditions that say what is wrong with volumes are written showRate times in a
// second, showBurst at once, and so often are they taken off. A cluster that goes
// away takes the volumes of all its claims with it: of 10,000 claims the last says so
// 7 minutes after the first, and most of an outage that is shorter is never written;
// meanwhile the conditions of the RemoteCluster say it at once. What is taken off has
// a rate of its own: no claim is to be called broken for longer because others break.
const showRate, showBurst = 25, 50

// shows paces the writes of conditions.
type shows struct {
	mu sync.Mutex
	// on and off are the paces; waiting are the claims whose turn has not come.
	on, off flowcontrol.PassiveRateLimiter
	waiting map[types.UID]bool
}

func newShows() *shows {
	pace := func() flowcontrol.PassiveRateLimiter {
		return flowcontrol.NewTokenBucketPassiveRateLimiter(showRate, showBurst)
	}
	return &shows{on: pace(), off: pace(), waiting: map[types.UID]bool{}}
}

// turn returns 0 if the condition of a claim may be written now, else when to come
// again: the more claims wait, the later.
func (s *shows) turn(claim types.UID, on bool) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	pace := s.off
	if on {
		pace = s.on
	}
	if pace.TryAccept() {
		delete(s.waiting, claim)
		return 0
	}
	s.waiting[claim] = true
	return wait.Jitter(time.Duration(len(s.waiting))*time.Second/showRate, 1)
}

// drop notes that a claim waits for its turn no longer.
func (s *shows) drop(claim types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.waiting, claim)
}

// decide returns the next step for a claim, which may be to show what is wrong.
func (f *Flow) decide(o decide.Observation) decide.Step {
	step := decide.Next(o)
	wish, known := decide.Wished(o, step)
	if !known {
		return step
	}
	if wish == "" {
		f.shows.drop(o.UID)
	}
	return decide.Show(o, step, f.memory.wishedSince(o.UID, wish, o.Now))
}

// show writes the condition of a claim, or takes it off, and tells of a trouble that
// no event told of yet. The conditions of others stay: the patch names ours alone.
func (f *Flow) show(ctx context.Context, o decide.Observation, step decide.Step, result outcome) outcome {
	if later := f.shows.turn(o.UID, step.Condition != nil); later > 0 {
		result.after = later
		return result
	}
	patch, err := conditionPatch(o.Claim.UID, step.Condition)
	if err != nil {
		result.err = err
		return result
	}
	written, err := f.Client.CoreV1().PersistentVolumeClaims(o.Claim.Namespace).Patch(ctx, o.Claim.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	if err != nil {
		result.err = fmt.Errorf("show on claim %s/%s what is wrong with its volume: %w", o.Claim.Namespace, o.Claim.Name, err)
		return result
	}
	f.written.set(o.UID, virtualClaim, o.Claim, written)
	if dataAway(o, step) {
		f.memory.spend(o.UID, o.Now)
	}
	if step.Condition != nil && step.Tell == nil {
		f.tell(o, &decide.Message{Warning: true, Reason: step.Condition.Reason, Text: step.Condition.Message})
	}
	return result
}

// dataAway says whether the data of a claim is, or is to be, in a remote cluster.
func dataAway(o decide.Observation, step decide.Step) bool {
	if o.Volume == nil {
		return step.Backing.Cluster != "" && step.Backing.Cluster != keys.Home
	}
	ref, err := backing.RefOf(o.Volume)
	return err == nil && ref.Cluster != keys.Home
}

// conditionPatch names the condition of just this claim; nil takes it off.
func conditionPatch(claim types.UID, condition *corev1.PersistentVolumeClaimCondition) ([]byte, error) {
	var change any = map[string]any{"$patch": "delete", "type": keys.VolumeTrouble}
	if condition != nil {
		change = condition
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": claim},
		"status":   map[string]any{"conditions": []any{change}},
	})
	if err != nil {
		return nil, fmt.Errorf("encode condition: %w", err)
	}
	return patch, nil
}
