package moves

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/moves/steps"
)

func TestAPodIsHeldBackOnlyIfTheAPIServerSaysSo(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	proof := func(says string) error {
		return apierrors.NewForbidden(pods, "", errors.New("ValidatingAdmissionPolicy 'lodestone-move-proof' with binding "+
			"'lodestone-move-proof' denied request: "+says))
	}
	gated := func(pod *corev1.Pod) { pod.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: keys.MovingGate}} }
	for name, row := range map[string]struct {
		answer   error
		mutate   func(*corev1.Pod) // what admission makes of the pod that is tried
		phase    v1alpha1.MovePhase
		unlocked bool
		held     bool
		why      string // why it is not; empty if that is not asked
		fails    bool
	}{
		"our policy refuses it with the gate": {answer: proof("a new pod waits at the gate"), held: true},
		"our policy refuses it without the gate": {answer: proof("nothing gave it the scheduling gate lodestone.dev/moving"),
			why: "nothing gave it the scheduling gate"},
		"a policy of somebody else says the same": {answer: apierrors.NewForbidden(pods, "", errors.New("a new pod waits at the gate")),
			why: "waits at the gate"},
		"our policy is missing, the gate is not": {mutate: gated, held: true},
		"both are missing":                       {why: "nothing gave it the scheduling gate"},
		"the namespace is gone": {answer: apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, "shop"),
			why: "not found"},
		"the API server does not answer": {answer: errors.New("connection refused"), fails: true},
		"a claim is not locked yet":      {answer: proof("a new pod waits at the gate"), unlocked: true},
		"no pod is to be stopped yet":    {answer: proof("a new pod waits at the gate"), phase: v1alpha1.MovePreCopy},
	} {
		t.Run(name, func(t *testing.T) {
			client, asked := fake.NewClientset(), 0
			client.PrependReactor("create", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
				asked++
				create := action.(clienttesting.CreateActionImpl)
				assert.Equal(t, []string{metav1.DryRunAll}, create.CreateOptions.DryRun, "no pod is made")
				pod := create.Object.(*corev1.Pod).DeepCopy()
				assert.Empty(t, pod.Spec.NodeName, "such a pod gets no gate")
				assert.Equal(t, "db", pod.Labels["app"], "policies and webhooks look at it")
				if row.mutate != nil {
					row.mutate(pod)
				}
				return true, pod, row.answer
			})
			r := recordIn(v1alpha1.MoveQuiesce)
			if row.phase != "" {
				r = recordIn(row.phase)
			}
			claim := &corev1.PersistentVolumeClaim{}
			if !row.unlocked {
				claim.Labels, claim.Annotations = map[string]string{keys.Moving: keys.MovingNow}, map[string]string{keys.Move: string(r.UID)}
			}
			ended := &corev1.Pod{}
			live := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "db-0", Labels: map[string]string{"app": "db"}},
				Spec: corev1.PodSpec{NodeName: "home-1"}}
			o := steps.Observation{Record: r, Claims: []steps.Claim{{Claim: claim}},
				Pods: []steps.Pod{{Name: "ended", Owned: true, Bound: true, Finished: true}, {Name: "db-0", Owned: true, Bound: true}}}
			err := New(Config{Client: client}).observeGate(t.Context(), &o, []*corev1.Pod{ended, live})
			if row.fails {
				require.Error(t, err)
				assert.False(t, o.Pods[1].Held)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, row.held, o.Pods[1].Held)
			assert.Contains(t, o.Pods[1].NotHeld, row.why)
			assert.False(t, o.Pods[0].Held)
			if row.unlocked || row.phase != "" {
				assert.Zero(t, asked, "the answer would not be that of the stop")
			}
		})
	}
}
