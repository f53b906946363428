package why

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"

	"github.com/lodestone-storage/lodestone/pkg/keys"
)

func TestWhyAPodWaits(t *testing.T) {
	for name, test := range map[string]struct {
		pod     Pod
		setting Setting
		want    string
		fine    bool
	}{
		"no scheduler has seen it": {
			pod: Pod{Pod: pod()}, setting: setting(),
			want: `no scheduler has looked at pod "web-1" yet: see whether scheduler "default-scheduler" runs`,
		},
		"it is held back": {
			pod: Pod{Pod: pod(func(p *corev1.Pod) { p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "example.com/quota"}} })}, setting: setting(),
			want: `pod "web-1" is held back by scheduling gate "example.com/quota": whoever set it removes it`,
		},
		"it is held back by a move": {
			pod: Pod{Pod: pod(func(p *corev1.Pod) { p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: keys.MovingGate}} })}, setting: setting(),
			want: `pod "web-1" is held back by scheduling gate "lodestone.dev/moving" while the volume of a claim of it is moved: kubectl lodestone move status -n shop says how far that is`,
		},
		"no node has room": {
			pod: Pod{Pod: pod(unfit("0/2 nodes are available: 2 Insufficient cpu."))}, setting: setting(),
			want: `pod "web-1" fits no node: 0/2 nodes are available: 2 Insufficient cpu.`,
		},
		"its claim does not exist": {
			pod: Pod{Pod: pod(unfit(`persistentvolumeclaim "data" not found`)), Claims: []Claim{claim(absent)}}, setting: setting(),
			want: `pod "web-1" has no node, for claim "data" does not exist: create it`,
		},
		"west refused its claim": {
			pod:     Pod{Pod: pod(unfit("0/2 nodes are available")), Claims: []Claim{claim(refusedBy("west", "QuotaExceeded", "the quota leaves no room"))}},
			setting: setting(),
			want:    `pod "web-1" has no node yet, for claim "data" was refused by cluster "west": the quota leaves no room; that place is tried again after 03:05:05`,
		},
		"its claim waits for it and no node has room": {
			pod: Pod{Pod: pod(unfit("0/2 nodes are available: 2 Insufficient cpu.")), Claims: []Claim{claim()}}, setting: setting(),
			want: `pod "web-1" fits no node: 0/2 nodes are available: 2 Insufficient cpu.`,
		},
		"its data is in two clusters": {
			pod:     Pod{Pod: pod(unfit("0/2 nodes are available")), Claims: []Claim{claim(boundIn("west"), named("a")), claim(boundIn("home"), named("b"))}},
			setting: setting(),
			want:    `pod "web-1" has no node, for its data is in different clusters: claim "b" in the home cluster, claim "a" in cluster "west"; use claims of one cluster`,
		},
		"its data is in west, which does not answer": {
			pod: Pod{Pod: pod(unfit("0/2 nodes are available")), Claims: []Claim{claim(boundIn("west"))}}, setting: setting(partitioned),
			want: `pod "web-1" can run only in cluster "west", where the data of claim "data" is, but it does not answer: cluster west does not answer: connection refused`,
		},
		"its data is in west, which is full": {
			pod:     Pod{Pod: pod(unfit("0/2 nodes are available: 1 Insufficient cpu, 1 node(s) didn't match PersistentVolume's node affinity.")), Claims: []Claim{claim(boundIn("west"))}},
			setting: setting(),
			want:    `pod "web-1" can run only in cluster "west", where the data of claim "data" is, and no node of it takes the pod: 0/2 nodes are available: 1 Insufficient cpu, 1 node(s) didn't match PersistentVolume's node affinity.`,
		},
		"its data is in west, whose node is cordoned": {
			pod:     Pod{Pod: pod(unfit("0/2 nodes are available")), Claims: []Claim{claim(boundIn("west"))}},
			setting: setting(func(s *Setting) { s.Nodes[1].Spec.Unschedulable = true }),
			want:    `pod "web-1" can run only in cluster "west", where the data of claim "data" is, but its node "west" is cordoned: kubectl uncordon west`,
		},
		"its data is in west, which has no node": {
			pod:     Pod{Pod: pod(unfit("0/1 nodes are available")), Claims: []Claim{claim(boundIn("west"))}},
			setting: setting(func(s *Setting) { s.Nodes = s.Nodes[:1] }),
			want:    `pod "web-1" can run only in cluster "west", where the data of claim "data" is, but no node stands for it: see whether the program for virtual nodes runs (kubectl get pods -n lodestone-system)`,
		},
		"its data is in west, but its namespace was closed": {
			pod: Pod{Pod: pod(unfit("0/2 nodes are available")), Claims: []Claim{claim(boundIn("west"))}}, setting: setting(closed),
			want: `pod "web-1" can run only in cluster "west", where the data of claim "data" is, but namespace "shop" is not open to remote clusters: kubectl label namespace shop lodestone.dev/offload=enabled`,
		},
		"it asks for west, but its namespace is open to east alone": {
			pod: Pod{Pod: pod(toWest, unfit("0/2 nodes are available"))}, setting: setting(elsewhere),
			want: `pod "web-1" is to run in cluster "west", but namespace "shop" is not open to it: its annotation lodestone.dev/clusters lists "east"; add the cluster there`,
		},
		"it asks for west, but was made before its namespace was opened": {
			pod: Pod{Pod: pod(toWest, intolerant, unfit("0/2 nodes are available"))}, setting: setting(),
			want: `pod "web-1" is to run in cluster "west", but the pod does not tolerate taint lodestone.dev/remote=west of node "west": pods that are made after their namespace was opened do, so delete the pod and let it be made anew`,
		},
		"west has not made it for want of quota there": {
			pod: Pod{Pod: pod(on("west"), held), Events: []corev1.Event{
				event("Scheduled", "Successfully assigned shop/web-1 to west", 2*time.Minute),
				event("RemotePodPending", `cluster west has not made the pod yet: This cluster refused the pod: exceeded quota: home.`, time.Minute),
			}}, setting: setting(),
			want: `pod "web-1" is in cluster "west": cluster west has not made the pod yet: This cluster refused the pod: exceeded quota: home.`,
		},
		"its image cannot be pulled in west": {
			pod: Pod{Pod: pod(on("west"), held, waitingFor("ImagePullBackOff", `Back-off pulling image "shop/web:2"`))}, setting: setting(),
			want: `pod "web-1" is in cluster "west": container "app" waits (ImagePullBackOff): Back-off pulling image "shop/web:2"`,
		},
		"it crashes": {
			pod: Pod{Pod: pod(on("west"), held, waitingFor("CrashLoopBackOff", "back-off 20s"))}, setting: setting(),
			want: `pod "web-1" is in cluster "west": container "app" waits (CrashLoopBackOff): back-off 20s: kubectl logs web-1 -n shop -c app --previous`,
		},
		"it is being started in west": {
			pod: Pod{Pod: pod(on("west"), held, waitingFor("ContainerCreating", ""))}, setting: setting(),
			want: `pod "web-1" is being started in cluster "west"`,
		},
		"it is in west, which does not answer": {
			pod: Pod{Pod: pod(on("west"), held)}, setting: setting(partitioned),
			want: `pod "web-1" is in cluster "west", which does not answer: cluster west does not answer: connection refused; it may still run there`,
		},
		"its volume cannot be mounted at home": {
			pod: Pod{Pod: pod(on("home-1")), Events: []corev1.Event{event("FailedMount", "MountVolume.SetUp failed", time.Minute)}}, setting: setting(),
			want: `pod "web-1" is on node "home-1": MountVolume.SetUp failed`,
		},
		"it is being deleted and west does not answer": {
			pod: Pod{Pod: pod(on("west"), held, going)}, setting: setting(partitioned),
			want: `pod "web-1" is being deleted, but whether its copy in cluster "west" has ended cannot be seen (cluster west does not answer: connection refused): it goes by itself once that cluster answers; if that cluster is gone for ever: kubectl lodestone release pod web-1 -n shop`,
		},
		"it is being deleted and ends in west": {
			pod: Pod{Pod: pod(on("west"), held, going)}, setting: setting(),
			want: `pod "web-1" is being deleted and waits until its copy in cluster "west" has ended`,
		},
		"it is being deleted and somebody else holds it": {
			pod: Pod{Pod: pod(on("home-1"), going, func(p *corev1.Pod) { p.Finalizers = []string{"example.com/backup"} })}, setting: setting(),
			want: `pod "web-1" is being deleted and is held by example.com/backup`,
		},
		"it failed": {
			pod: Pod{Pod: pod(on("west"), func(p *corev1.Pod) {
				p.Status.Phase, p.Status.Reason, p.Status.Message = corev1.PodFailed, "RemotePodLost", "the pod is gone in cluster west"
			})}, setting: setting(),
			want: `pod "web-1" has failed: the pod is gone in cluster west`,
		},
		"it is not ready": {
			pod: Pod{Pod: pod(on("west"), held, func(p *corev1.Pod) {
				p.Status.Phase = corev1.PodRunning
				p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse, Message: "containers with unready status: [app]"}}
			})}, setting: setting(),
			want: `pod "web-1" runs in cluster "west" but is not Ready: containers with unready status: [app]`,
		},
		"it runs": {
			pod: Pod{Pod: pod(on("west"), held, func(p *corev1.Pod) { p.Status.Phase = corev1.PodRunning })}, setting: setting(),
			want: `pod "web-1" runs in cluster "west"`, fine: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			answer := test.pod.Of(test.setting)
			assert.Equal(t, test.want, answer.Sentence)
			assert.Equal(t, !test.fine, answer.Waiting)
			assert.NotEmpty(t, answer.Facts)
		})
	}
}

func TestFactsShowWhatTheSentenceCameFrom(t *testing.T) {
	p := Pod{
		Pod:      pod(unfit("0/2 nodes are available"), func(p *corev1.Pod) { p.Spec.NodeName = "" }),
		Claims:   []Claim{claim(refusedBy("west", "QuotaExceeded", "no room"))},
		Events:   []corev1.Event{event("FailedScheduling", "0/2 nodes are available", 30*time.Second)},
		Extender: Said{Verdicts: []Verdict{{Cluster: "west", Reason: "RefusedLately", Sentence: "node(s) in a place that refused the claim lately", Nodes: 1}}},
	}
	assert.Equal(t, []string{
		"pod shop/web-1: Pending",
		"condition PodScheduled=False (Unschedulable): 0/2 nodes are available",
		"namespace shop: open to west",
		"claim data: Pending, storage class lodestone",
		`claim data: refused by cluster "west" until 03:05:05 (QuotaExceeded): no room`,
		`cluster "west": volumes can be made there`,
		`node west, stands for cluster "west": Ready, taint lodestone.dev/remote=west:NoSchedule`,
		`extender: 1 of the nodes of cluster "west": node(s) in a place that refused the claim lately`,
		"event on pod, 30s ago: FailedScheduling: 0/2 nodes are available",
	}, p.Of(setting()).Facts)
}

func TestNothingThatCannotBeReadIsTakenForMissing(t *testing.T) {
	unread := setting(func(s *Setting) { s.Nodes, s.NodesUnknown = nil, true })
	answer := Pod{Pod: pod(on("west"), func(p *corev1.Pod) { p.Status.Phase = corev1.PodRunning })}.Of(unread)
	assert.Equal(t, `pod "web-1" runs on node "west"`, answer.Sentence)
	answer = Pod{Pod: pod(on("west"), held, going)}.Of(unread)
	assert.Equal(t, `pod "web-1" is being deleted and waits until its copy in cluster "west" has ended`, answer.Sentence)
}
