package why

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"

	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/sentence"
)

// fromWest is an event that came home from cluster west.
func fromWest(kind, reason, message string, ago time.Duration) corev1.Event {
	e := event(reason, sentence.Of("west", message), ago)
	e.Type, e.Labels = kind, map[string]string{keys.Cluster: "west"}
	return e
}

func status(reason, message string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Status.Reason, p.Status.Message = reason, message }
}

func unready(p *corev1.Pod) {
	p.Status.Phase = corev1.PodRunning
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse,
		Message: "containers with unready status: [app]"}}
}

func TestWhyAPodThatHasANodeDoesNotStart(t *testing.T) {
	const warning, normal = corev1.EventTypeWarning, corev1.EventTypeNormal
	pending := said("BackingPending",
		`real claim shop/data in cluster west is not bound yet: ProvisioningFailed says "NodePath only supports ReadWriteOnce"`)
	for name, test := range map[string]struct {
		pod  Pod
		want string
	}{
		"its volume cannot be made there": {
			pod: Pod{
				Pod:    pod(on("west"), held, status(corev1.PodReasonUnschedulable, "not scheduled in the remote cluster: 0/3 nodes are available")),
				Events: []corev1.Event{fromWest(warning, "FailedScheduling", "0/3 nodes are available", time.Minute)},
				Claims: []Claim{claim(boundIn("west"), pending)}},
			want: `pod "web-1" cannot start in cluster "west", for claim "data" is bound, but real claim shop/data in cluster west is not bound yet: ProvisioningFailed says "NodePath only supports ReadWriteOnce"`,
		},
		"its claim is only not expanded": {
			pod: Pod{Pod: pod(on("west"), held), Claims: []Claim{claim(boundIn("west"), func(c *Claim) {
				c.Claim.Status.Conditions = []corev1.PersistentVolumeClaimCondition{{Type: corev1.PersistentVolumeClaimControllerResizeError,
					Status: corev1.ConditionTrue, Message: "no room"}}
			})}},
			want: `pod "web-1" is being started in cluster "west"`,
		},
		"it finds no node there": {
			pod: Pod{Pod: pod(on("west"), held, status(corev1.PodReasonUnschedulable,
				"not scheduled in the remote cluster: 0/3 nodes are available: 3 Insufficient cpu."))},
			want: `pod "web-1" is in cluster "west", where it fits no node: of 3 nodes, 3 have too little cpu left; free some, or have the pod ask for less`,
		},
		"it found none there, but has one now": {
			pod: Pod{Pod: pod(on("west"), held), Events: []corev1.Event{fromWest(warning, "FailedScheduling", "0/3 nodes are available",
				time.Minute)}},
			want: `pod "web-1" is being started in cluster "west"`,
		},
		"the kubelet there cannot mount its volume": {
			pod: Pod{Pod: pod(on("west"), held, waitingFor("ContainerCreating", "")), Events: []corev1.Event{
				fromWest(normal, "SuccessfulAttachVolume", "it is attached", 2*time.Minute),
				fromWest(warning, "FailedMount", "MountVolume.SetUp failed: no such device", time.Minute)}},
			want: `pod "web-1" is in cluster "west": MountVolume.SetUp failed: no such device`,
		},
		"it could not, but has gone on": {
			pod: Pod{Pod: pod(on("west"), held), Events: []corev1.Event{
				fromWest(warning, "FailedMount", "MountVolume.SetUp failed: no such device", 2*time.Minute),
				fromWest(normal, "Pulling", `Pulling image "shop/web:2"`, time.Minute)}},
			want: `pod "web-1" is being started in cluster "west": Pulling image "shop/web:2"`,
		},
		"it could not long ago": {
			pod:  Pod{Pod: pod(on("west"), held), Events: []corev1.Event{fromWest(warning, "FailedMount", "no such device", time.Hour)}},
			want: `pod "web-1" is being started in cluster "west"`,
		},
		"the virtual node says what it waits for": {
			pod:  Pod{Pod: pod(on("west"), held, status("NamespaceNotGiven", "waiting until cluster west gives namespace \"shop\""))},
			want: `pod "web-1" is in cluster "west": waiting until cluster west gives namespace "shop"`,
		},
		"what the virtual node said is over": {
			pod: Pod{Pod: pod(on("west"), held), Events: []corev1.Event{
				event("RemotePodPending", "cluster west has not made the pod yet: exceeded quota", 2*time.Minute),
				fromWest(warning, "FailedMount", "no such device", time.Minute)}},
			want: `pod "web-1" is in cluster "west": no such device`,
		},
		"a remote cluster uses a word of the virtual node": {
			pod: Pod{Pod: pod(on("west"), held), Claims: []Claim{claim(boundIn("west"), pending)}, Events: []corev1.Event{
				fromWest(warning, "OtherCluster", "run kubectl delete namespace shop", time.Minute)}},
			want: `pod "web-1" cannot start in cluster "west", for claim "data" is bound, but real claim shop/data in cluster west is not bound yet: ProvisioningFailed says "NodePath only supports ReadWriteOnce"`,
		},
		"a remote cluster says something after the virtual node has said that it is another cluster": {
			pod: Pod{Pod: pod(on("west"), held), Events: []corev1.Event{
				event("OtherCluster", "the kubeconfig leads to another cluster", 2*time.Minute),
				fromWest(normal, "Pulled", "pulled", time.Minute)}},
			want: `pod "web-1" is in cluster "west": the kubeconfig leads to another cluster`,
		},
		"a remote cluster uses a word of the virtual node on a pod that is being deleted": {
			pod: Pod{Pod: pod(on("west"), held, going), Events: []corev1.Event{
				fromWest(warning, "OtherCluster", "run kubectl delete namespace shop", time.Minute)}},
			want: `pod "web-1" is being deleted and waits until its copy in cluster "west" has ended`,
		},
		"the kubelet there has no words": {
			pod:  Pod{Pod: pod(on("west"), held), Events: []corev1.Event{fromWest(warning, "FailedMount", "", time.Minute)}},
			want: `pod "web-1" is in cluster "west": FailedMount`,
		},
		"its probe fails there": {
			pod: Pod{Pod: pod(on("west"), held, unready), Events: []corev1.Event{
				fromWest(warning, "Unhealthy", "Readiness probe failed: HTTP probe failed with statuscode: 503", time.Minute)}},
			want: `pod "web-1" runs in cluster "west" but is not Ready: Readiness probe failed: HTTP probe failed with statuscode: 503`,
		},
		"it uses more memory than it may": {
			pod: Pod{Pod: pod(on("west"), held, waitingFor("CrashLoopBackOff", "back-off 20s"), func(p *corev1.Pod) {
				p.Status.ContainerStatuses[0].LastTerminationState.Terminated = &corev1.ContainerStateTerminated{Reason: "OOMKilled", ExitCode: 137}
			})},
			want: `pod "web-1" is in cluster "west": container "app" waits (CrashLoopBackOff): back-off 20s; its last run was ended because it used more memory than it may: raise resources.limits.memory`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			answer := test.pod.Of(setting())
			assert.Equal(t, test.want, answer.Sentence)
			assert.True(t, answer.Waiting)
		})
	}
}
