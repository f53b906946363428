package moves

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
	"github.com/lodestone-storage/lodestone/provisioner/moves/steps"
	"github.com/lodestone-storage/lodestone/provisioner/witness/proof"
)

// user is a pod that uses a claim on a node.
func user(namespace, name, claim, node string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: corev1.PodSpec{NodeName: node, Volumes: []corev1.Volume{
			{VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}},
		}}}
}

func TestTheMoverRunsWherePodsAreThatDoNotEnd(t *testing.T) {
	r := recordIn(v1alpha1.MovePreCopy)
	r.Namespace = "shop"
	ends := user("shop", "a-ends", "data", "home-1")
	ends.DeletionTimestamp, ends.Finalizers = &metav1.Time{Time: metav1.Now().Time}, []string{"x/y"}
	done := user("shop", "b-done", "data", "home-3")
	done.Status.Phase = corev1.PodSucceeded
	client := fake.NewClientset(ends, done, user("shop", "c-other", "log", "home-3"), user("shop", "d-waits", "data", ""),
		user("shop", "e-away", "data", "west-1"), user("lodestone-storage", r.MoverName(0, record.Source), "pvc-u1", "home-1"))
	c := New(Config{Client: client, Records: NewRecords(), Node: func(name string) *corev1.Node {
		labels := map[string]string{}
		if name == "west-1" {
			labels[keys.Cluster] = "west"
		}
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
	}})
	on := func() []string {
		o := steps.Observation{Record: r, Claims: make([]steps.Claim, 1)}
		require.NoError(t, c.observeUsers(t.Context(), &o))
		return o.Claims[0].On
	}
	assert.Empty(t, on())
	require.NoError(t, client.Tracker().Delete(corev1.SchemeGroupVersion.WithResource("pods"), "shop", "e-away"))
	node, err := c.nodeFor(t.Context(), c.sites.Home(), r, 0, record.Source)
	require.NoError(t, err)
	assert.Equal(t, "home-1", node, "the volume may still be there")

	require.NoError(t, client.Tracker().Add(user("shop", "f-new", "data", "home-2")))
	assert.Equal(t, []string{"home-2"}, on())
	node, err = c.nodeFor(t.Context(), c.sites.Home(), r, 0, record.Source)
	require.NoError(t, err)
	assert.Equal(t, "home-2", node)
}

func TestAPodThatHasEndedIsKnownToHaveWhileItStillExists(t *testing.T) {
	r := recordIn(v1alpha1.MoveQuiesce)
	r.Namespace = "shop"
	r.Pods = []proof.Pod{{UID: "u-done"}, {UID: "u-runs"}, {UID: "u-twin"}, {UID: "u-away", Cluster: "west"}}
	pod := func(namespace, name, claim string, phase corev1.PodPhase) *corev1.Pod {
		made := user(namespace, name, claim, "home-1")
		made.UID, made.Status.Phase = types.UID("u-"+name), phase
		return made
	}
	client := fake.NewClientset(pod("shop", "done", "data", corev1.PodSucceeded), pod("shop", "runs", "data", corev1.PodRunning),
		pod("lodestone-storage", "twin", "pvc-u1", corev1.PodFailed), pod("lodestone-storage", "away", "pvc-u1", corev1.PodFailed))
	c := New(Config{Client: client, Records: NewRecords(), Node: func(name string) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	}})
	o := steps.Observation{Record: r, Claims: make([]steps.Claim, 1)}
	require.NoError(t, c.observeUsers(t.Context(), &o))
	assert.Equal(t, map[types.UID]bool{"u-done": true, "u-twin": true}, o.Ended, "home says nothing of a pod in west")
}

func TestAPodThatHasTheFinalizerOfVirtualNodesIsOfARemoteAgent(t *testing.T) {
	pod := user("shop", "db-0", "data", "west")
	assert.False(t, podOf(pod).Hosted, "another program has made it")
	pod.Finalizers = []string{"x/y", keys.RemotePodFinalizer}
	assert.True(t, podOf(pod).Hosted)
}

func TestAttachmentsMatterOnceNobodyIsToHaveTheVolume(t *testing.T) {
	attachment := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: storagev1.VolumeAttachmentSpec{
		NodeName: "home-1", Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: ptr.To("pvc-u1")}}}
	for phase, attached := range map[v1alpha1.MovePhase]bool{v1alpha1.MovePreCopy: false, v1alpha1.MoveQuiesce: true} {
		for _, offline := range []bool{false, true} {
			r := recordIn(phase)
			r.Claims[0].Offline = offline
			r.Claims[0].Volume = &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pvc-u1"}}
			o := steps.Observation{Record: r, Claims: make([]steps.Claim, 1)}
			require.NoError(t, New(Config{Client: fake.NewClientset(attachment), Records: NewRecords()}).observeUsers(t.Context(), &o))
			assert.Equal(t, attached || offline, o.Claims[0].Attached, "%s, offline: %t", phase, offline)
			assert.Equal(t, attached || offline, len(o.Attachments) > 0, "%s, offline: %t", phase, offline)
		}
	}
}

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
		"the webhook does not answer": {answer: apierrors.NewInternalError(errors.New(`failed calling webhook "lodestone-move-gate"`)),
			why: "failed calling webhook"},
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

func TestTheLevelIsThatOfContainersThatUseTheClaim(t *testing.T) {
	for name, row := range map[string]struct {
		pod, container string
		want           []string
	}{
		"the pod's":           {"s0:c1,c2", "", []string{"s0:c1,c2"}},
		"the container's":     {"s0:c1,c2", "s0:c3", []string{"s0:c3"}},
		"none":                {"", "", nil},
		"one that is none":    {"spc_t", "", nil},
		"one without end":     {"s0:" + strings.Repeat("c1,", 100), "", nil},
		"one with a range":    {"s0-s0:c0.c1023", "", []string{"s0-s0:c0.c1023"}},
		"several in one text": {"s0:c1\ns0:c2", "", nil},
	} {
		t.Run(name, func(t *testing.T) {
			spec := stating(row.pod, row.container).Spec
			assert.Equal(t, row.want, selinuxLevels(&spec, "data"))
			assert.Empty(t, selinuxLevels(&spec, "log"))
		})
	}
	spec := stating("s0:c1", "").Spec
	spec.Containers[1].VolumeDevices, spec.Containers[1].VolumeMounts = []corev1.VolumeDevice{{Name: "files"}}, nil
	assert.Equal(t, []string{"s0:c1"}, selinuxLevels(&spec, "data"), "a block volume")
	assert.Empty(t, selinuxLevels(&user("shop", "a", "data", "n").Spec, "data"))
}
