// The tables of sentences are one file, as the causes are: they share the pods, claims and clusters that rows are made of.

package why

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/locality"
	"github.com/lodestone-storage/lodestone/pkg/sentence"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// setting returns a home cluster with a node and a remote cluster, west, that is
// well and open to namespace shop.
func setting(changes ...func(*Setting)) Setting {
	s := Setting{
		Now:       now,
		Namespace: &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", Labels: map[string]string{keys.Offload: keys.OffloadEnabled}}},
		Clusters:  []v1alpha1.RemoteCluster{remoteCluster("west", metav1.ConditionTrue, "Ready", "volumes can be made there")},
		Nodes:     []corev1.Node{homeNode("home-1"), virtualNode("west")},
	}
	for _, change := range changes {
		change(&s)
	}
	return s
}

func remoteCluster(name string, ready metav1.ConditionStatus, reason, message string) v1alpha1.RemoteCluster {
	return v1alpha1.RemoteCluster{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Status: v1alpha1.RemoteClusterStatus{Conditions: []metav1.Condition{{Type: v1alpha1.Ready, Status: ready, Reason: reason,
			Message: message}}},
	}
}

func closed(s *Setting)    { s.Namespace.Labels = nil }
func elsewhere(s *Setting) { s.Namespace.Annotations = map[string]string{keys.OffloadClusters: "east"} }

// partitioned is a remote cluster that does not answer.
func partitioned(s *Setting) {
	s.Clusters[0] = remoteCluster("west", metav1.ConditionFalse, "NotReachable",
		"its API server does not answer as it should: connection refused")
	s.Nodes[1].Status.Conditions = []corev1.NodeCondition{
		{Type: corev1.NodeReady, Status: corev1.ConditionUnknown, Reason: "NodeStatusUnknown", Message: "Kubelet stopped posting node status."},
		{Type: remoteReady, Status: corev1.ConditionFalse, Reason: "RemoteSilent", Message: "cluster west does not answer: connection refused"},
	}
}

func homeNode(name string) corev1.Node {
	return corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
	}
}

func virtualNode(cluster string) corev1.Node {
	node := homeNode(cluster)
	node.Labels = map[string]string{keys.Cluster: cluster, "type": "virtual-kubelet"}
	node.Spec.Taints = []corev1.Taint{{Key: keys.RemoteTaint, Value: cluster, Effect: corev1.TaintEffectNoSchedule}}
	return node
}

func pod(changes ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-1", UID: "pod-uid"},
		Spec: corev1.PodSpec{
			SchedulerName: "default-scheduler",
			Tolerations:   []corev1.Toleration{{Key: keys.RemoteTaint, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}},
		},
		Status: corev1.PodStatus{Phase: corev1.PodPending},
	}
	for _, change := range changes {
		change(p)
	}
	return p
}

func on(node string) func(*corev1.Pod) { return func(p *corev1.Pod) { p.Spec.NodeName = node } }

func held(p *corev1.Pod) { p.Finalizers = append(p.Finalizers, keys.RemotePodFinalizer) }

func going(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: now} }

func intolerant(p *corev1.Pod) { p.Spec.Tolerations = nil }

func toWest(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{keys.Cluster: "west"} }

func unfit(message string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable",
			Message: message}}
	}
}

func nominatedTo(node string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Status.NominatedNodeName = node }
}

func ofLocalPath(c *Claim) {
	c.Claim.Spec.StorageClassName = ptr.To("local-path")
	c.Class = &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "local-path"}, Provisioner: "rancher.io/local-path",
		VolumeBindingMode: ptr.To(storagev1.VolumeBindingWaitForFirstConsumer)}
}

func waitingFor(reason, message string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "app",
			State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}}}
	}
}

// claim returns a claim of the virtual class that no node was chosen for.
func claim(changes ...func(*Claim)) Claim {
	c := Claim{
		Name: "data",
		Claim: &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "data"},
			Spec:       corev1.PersistentVolumeClaimSpec{StorageClassName: ptr.To("lodestone")},
			Status:     corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimPending},
		},
		Class: &storagev1.StorageClass{
			ObjectMeta: metav1.ObjectMeta{Name: "lodestone"}, Provisioner: keys.Driver,
			VolumeBindingMode: ptr.To(storagev1.VolumeBindingWaitForFirstConsumer),
		},
	}
	for _, change := range changes {
		change(&c)
	}
	return c
}

func annotated(key, value string) func(*Claim) {
	return func(c *Claim) { metav1.SetMetaDataAnnotation(&c.Claim.ObjectMeta, key, value) }
}

func boundIn(cluster string) func(*Claim) {
	return func(c *Claim) {
		c.Claim.Status.Phase = corev1.ClaimBound
		c.Claim.Spec.VolumeName = "pvc-1"
		c.Volume = &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{
			Name: "pvc-1", Annotations: map[string]string{keys.Backing: cluster + "/shop/data/uid"},
		}}
	}
}

func named(name string) func(*Claim) { return func(c *Claim) { c.Name = name } }

func absent(c *Claim) { c.Claim, c.Class = nil, nil }

func refusedBy(cluster, reason, message string) func(*Claim) {
	return func(c *Claim) {
		encoded, err := locality.EncodeRefusals([]locality.Refusal{
			{Cluster: cluster, Reason: reason, Message: message, Until: now.Add(time.Minute)}})
		if err != nil {
			panic(err)
		}
		annotated(keys.Refused, encoded)(c)
	}
}

func said(reason, message string) func(*Claim) {
	return func(c *Claim) { c.Events = append(c.Events, event(reason, message, time.Minute)) }
}

func event(reason, message string, ago time.Duration) corev1.Event {
	return corev1.Event{Reason: reason, Message: message, LastTimestamp: metav1.NewTime(now.Add(-ago))}
}

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
		"a scheduler has chosen a node": {
			pod: Pod{Pod: pod(nominatedTo("home-1"))}, setting: setting(),
			want: `pod "web-1" is to run on node "home-1", which the scheduler has chosen: it waits until its volumes are made for that node, or until pods of lower priority have left it`,
		},
		"its claim of another class is to be made for the virtual node": {
			pod: Pod{Pod: pod(nominatedTo("west")), Claims: []Claim{claim(ofLocalPath, annotated(keys.SelectedNode, "west"))}}, setting: setting(),
			want: `pod "web-1" has no node yet: claim "data" is of storage class "local-path", whose provisioner is "rancher.io/local-path" and not Lodestone: the scheduler has chosen node "west" for it, but in cluster "west" no volume is made for such a claim; see that the scheduler asks the extender, and delete the pod so that it gets another node`,
		},
		"and its provisioner has failed there": {
			pod: Pod{Pod: pod(), Claims: []Claim{claim(ofLocalPath, annotated(keys.SelectedNode, "west"),
				said("ProvisioningFailed", "create process timeout after 120 seconds"))}}, setting: setting(),
			want: `pod "web-1" has no node yet: claim "data" is of storage class "local-path", whose provisioner is "rancher.io/local-path" and not Lodestone: the scheduler has chosen node "west" for it, but in cluster "west" no volume is made for such a claim; see that the scheduler asks the extender, and delete the pod so that it gets another node; the provisioner says: create process timeout after 120 seconds`,
		},
		"its claim of another class, which is marked, is made for the virtual node": {
			pod:     Pod{Pod: pod(), Claims: []Claim{claim(ofLocalPath, annotated(keys.SelectedNode, "west"), annotated(keys.UsableIn, "west"))}},
			setting: setting(),
			want:    `pod "web-1" has no node yet: claim "data" is of storage class "local-path", whose provisioner is "rancher.io/local-path" and not Lodestone: that one makes its volume for node "west"; kubectl describe pvc data -n shop says how far it is`,
		},
		"the provisioner of its claim of another class has failed": {
			pod: Pod{Pod: pod(unfit("0/2 nodes are available")), Claims: []Claim{claim(ofLocalPath,
				said("ProvisioningFailed", "NodePath only supports ReadWriteOnce"))}}, setting: setting(),
			want: `pod "web-1" has no node yet: claim "data" is of storage class "local-path", whose provisioner is "rancher.io/local-path" and not Lodestone: NodePath only supports ReadWriteOnce`,
		},
		"the provisioner of its claim of another class failed long ago": {
			pod: Pod{Pod: pod(unfit("0/2 nodes are available: 2 Insufficient cpu.")), Claims: []Claim{claim(ofLocalPath, func(c *Claim) {
				c.Events = []corev1.Event{event("ProvisioningFailed", "no more", time.Hour)}
			})}}, setting: setting(),
			want: `pod "web-1" fits no node: of 2 nodes, 2 have too little cpu left; free some, or have the pod ask for less`,
		},
		"a claim of it cannot be used in west": {
			pod: Pod{Pod: pod(on("west"), held, waitingFor("ContainerCreating", "")), Events: []corev1.Event{
				event("ClaimStaysHome", `claim "data" is of storage class "local-path", which is not Lodestone's`, time.Minute)}}, setting: setting(),
			want: `pod "web-1" is in cluster "west": claim "data" is of storage class "local-path", which is not Lodestone's`,
		},
		"it is held back": {
			pod:     Pod{Pod: pod(func(p *corev1.Pod) { p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "example.com/quota"}} })},
			setting: setting(),
			want:    `pod "web-1" is held back by scheduling gate "example.com/quota": whoever set it removes it`,
		},
		"it is held back by a move": {
			pod:     Pod{Pod: pod(func(p *corev1.Pod) { p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: keys.MovingGate}} })},
			setting: setting(),
			want:    `pod "web-1" is held back by scheduling gate "lodestone.dev/moving" while the volume of a claim of it is moved: kubectl lodestone move status -n shop says how far that is`,
		},
		"it is held back since its claim's twin has another volume": {
			pod: Pod{Pod: pod(func(p *corev1.Pod) { p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: keys.MovingGate}} }),
				Claims: []Claim{claim(boundIn(keys.Home), func(c *Claim) {
					c.Claim.Annotations = map[string]string{keys.Move: keys.NoMove}
					c.Claim.Status.Conditions = []corev1.PersistentVolumeClaimCondition{{Type: keys.VolumeTrouble, Status: corev1.ConditionTrue,
						Reason: "BackingMisbound", Message: "its twin was bound to another volume"}}
				})}},
			setting: setting(),
			want: `pod "web-1" is held back by scheduling gate "lodestone.dev/moving", since claim "data" cannot be used: its twin was bound to ` +
				`another volume`,
		},
		"no node has room": {
			pod: Pod{Pod: pod(unfit("0/2 nodes are available: 2 Insufficient cpu."))}, setting: setting(),
			want: `pod "web-1" fits no node: of 2 nodes, 2 have too little cpu left; free some, or have the pod ask for less`,
		},
		"its claim does not exist": {
			pod: Pod{Pod: pod(unfit(`persistentvolumeclaim "data" not found`)), Claims: []Claim{claim(absent)}}, setting: setting(),
			want: `pod "web-1" has no node: claim "data" does not exist: create it`,
		},
		"west refused its claim": {
			pod: Pod{Pod: pod(unfit("0/2 nodes are available")),
				Claims: []Claim{claim(refusedBy("west", "QuotaExceeded", "the quota leaves no room"))}},
			setting: setting(),
			want:    `pod "web-1" has no node yet: claim "data" was refused by cluster "west": the quota leaves no room; that place is tried again after 03:05:05`,
		},
		"its claim waits for it and no node has room": {
			pod: Pod{Pod: pod(unfit("0/2 nodes are available: 2 Insufficient cpu.")), Claims: []Claim{claim()}}, setting: setting(),
			want: `pod "web-1" fits no node: of 2 nodes, 2 have too little cpu left; free some, or have the pod ask for less`,
		},
		"its data is in two clusters": {
			pod: Pod{Pod: pod(unfit("0/2 nodes are available")),
				Claims: []Claim{claim(boundIn("west"), named("a")), claim(boundIn("home"), named("b"))}},
			setting: setting(),
			want:    `pod "web-1" has no node, because its data is in different clusters: claim "b" in the home cluster, claim "a" in cluster "west"; use claims of one cluster`,
		},
		"its data is in west, which does not answer": {
			pod: Pod{Pod: pod(unfit("0/2 nodes are available")), Claims: []Claim{claim(boundIn("west"))}}, setting: setting(partitioned),
			want: `pod "web-1" can run only in cluster "west", where the data of claim "data" is, but it does not answer: cluster west does not answer: connection refused`,
		},
		"its data is in west, which is full": {
			pod: Pod{Pod: pod(unfit("0/2 nodes are available: 1 Insufficient cpu, 1 node(s) didn't match PersistentVolume's node affinity.")),
				Claims: []Claim{claim(boundIn("west"))}},
			setting: setting(),
			want:    `pod "web-1" can run only in cluster "west", where the data of claim "data" is, and no node of it takes the pod: of 2 nodes, 1 has too little cpu left, 1 cannot use the volumes of the pod; free some, or have the pod ask for less`,
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
			want: `pod "web-1" is not made in cluster "west" yet: This cluster refused the pod: exceeded quota: home.`,
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
			pod:     Pod{Pod: pod(on("home-1")), Events: []corev1.Event{event("FailedMount", "MountVolume.SetUp failed", time.Minute)}},
			setting: setting(),
			want:    `pod "web-1" is on node "home-1": MountVolume.SetUp failed`,
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
				p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse,
					Message: "containers with unready status: [app]"}}
			})}, setting: setting(),
			want: `pod "web-1" runs in cluster "west" but is not Ready: the readiness probe of app has not succeeded yet`,
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
		Pod:    pod(unfit("0/2 nodes are available"), func(p *corev1.Pod) { p.Spec.NodeName = "" }),
		Claims: []Claim{claim(refusedBy("west", "QuotaExceeded", "no room"))},
		Events: []corev1.Event{event("FailedScheduling", "0/2 nodes are available", 30*time.Second)},
		Extender: Said{Verdicts: []Verdict{{Cluster: "west", Reason: "RefusedLately",
			Sentence: "node(s) in a place that refused the claim lately", Nodes: 1}}},
	}
	assert.Equal(t, []string{
		"pod shop/web-1: Pending",
		"condition PodScheduled=False (Unschedulable): 0/2 nodes are available",
		"namespace shop: open to west",
		"claim data: Pending, storage class lodestone",
		`claim data: refused by cluster "west" until 03:05:05 (QuotaExceeded)`,
		`cluster "west": volumes can be made there`,
		`node west, stands for cluster "west": Ready, taint lodestone.dev/remote=west:NoSchedule`,
		`extender: 1 of the nodes of cluster "west": node(s) in a place that refused the claim lately`,
		"event on pod, 30s ago: FailedScheduling",
	}, p.Of(setting()).Facts)
}

func TestFactsTellOfANodeOnce(t *testing.T) {
	facts := Pod{Pod: pod(on("west")), Claims: []Claim{claim(boundIn("west"))}}.Of(setting()).Facts
	told := slices.DeleteFunc(slices.Clone(facts), func(line string) bool { return !strings.HasPrefix(line, "node west") })
	assert.Equal(t, []string{`node west, stands for cluster "west": Ready, taint lodestone.dev/remote=west:NoSchedule`}, told, "%v", facts)
	facts = Pod{Pod: pod(on("home-1"))}.Of(setting()).Facts
	assert.Contains(t, strings.Join(facts, "\n"), "node home-1", "one of home")
}

func TestNothingThatCannotBeReadIsTakenForMissing(t *testing.T) {
	unread := setting(func(s *Setting) { s.Nodes, s.NodesUnknown = nil, true })
	answer := Pod{Pod: pod(on("west"), func(p *corev1.Pod) { p.Status.Phase = corev1.PodRunning })}.Of(unread)
	assert.Equal(t, `pod "web-1" runs on node "west"`, answer.Sentence)
	answer = Pod{Pod: pod(on("west"), held, going)}.Of(unread)
	assert.Equal(t, `pod "web-1" is being deleted and waits until its copy in cluster "west" has ended`, answer.Sentence)
}

func TestWhyAClaimWaits(t *testing.T) {
	for name, test := range map[string]struct {
		claim   Claim
		setting Setting
		want    string
		fine    bool
	}{
		"it does not exist": {
			claim: claim(absent), setting: setting(),
			want: `claim "data" does not exist: create it`,
		},
		"no pod uses it": {
			claim: claim(), setting: setting(),
			want: `claim "data" waits for a pod that uses it: its volume is made where that pod is scheduled, so there is nothing to do but to start one`,
		},
		"its pod has no node": {
			claim: claim(func(c *Claim) { c.Pods = []corev1.Pod{*pod()} }), setting: setting(),
			want: `claim "data" waits until its pod "web-1" has a node: kubectl lodestone why pod web-1 -n shop`,
		},
		"west refused it": {
			claim: claim(refusedBy("west", "QuotaExceeded", "the quota of namespace shop in cluster west leaves no room")), setting: setting(),
			want: `claim "data" was refused by cluster "west": the quota of namespace shop in cluster west leaves no room; that place is tried again after 03:05:05`,
		},
		"a refusal that has ended": {
			claim: claim(refusedBy("west", "QuotaExceeded", "no room")), setting: setting(func(s *Setting) { s.Now = now.Add(time.Hour) }),
			want: `claim "data" waits for a pod that uses it: its volume is made where that pod is scheduled, so there is nothing to do but to start one`,
		},
		"its class is invalid": {
			claim: claim(said("InvalidClaim", "parameter lodestone.dev/clusterz is not known")), setting: setting(),
			want: `claim "data" cannot be served: parameter lodestone.dev/clusterz is not known`,
		},
		"its class was invalid long ago": {
			claim: claim(func(c *Claim) { c.Events = []corev1.Event{event("InvalidClaim", "mended since", time.Hour)} }), setting: setting(),
			want: `claim "data" waits for a pod that uses it: its volume is made where that pod is scheduled, so there is nothing to do but to start one`,
		},
		"its class does not exist": {
			claim: claim(func(c *Claim) { c.Class = nil }), setting: setting(),
			want: `claim "data" names storage class "lodestone", which does not exist: create the class, or the claim anew with another`,
		},
		"it has no class": {
			claim: claim(func(c *Claim) { c.Class, c.Claim.Spec.StorageClassName = nil, nil }), setting: setting(),
			want: `claim "data" has no storage class, and there is no default class: create the claim anew with one`,
		},
		"its class binds at once": {
			claim: claim(func(c *Claim) { c.Class.VolumeBindingMode = ptr.To(storagev1.VolumeBindingImmediate) }), setting: setting(),
			want: `claim "data" is of storage class "lodestone", which binds at once: create the class anew with volumeBindingMode WaitForFirstConsumer`,
		},
		"its class is not Lodestone's": {
			claim: claim(func(c *Claim) { c.Class.Provisioner = "disk.test" }), setting: setting(),
			want: `claim "data" is of storage class "lodestone", whose provisioner is "disk.test" and not Lodestone: kubectl describe pvc says what that one does`,
		},
		"west is to make it but does not answer": {
			claim: claim(annotated(keys.SelectedNode, "west")), setting: setting(partitioned),
			want: `claim "data" is to be made in cluster "west", which cannot be used now: its API server does not answer as it should: connection refused`,
		},
		"a node of a cluster that nobody knows": {
			claim: claim(annotated(keys.SelectedNode, "west")), setting: setting(func(s *Setting) { s.Clusters = nil }),
			want: `claim "data" is to be made in cluster "west", which cannot be used now: there is no RemoteCluster "west": create it (kubectl lodestone peer)`,
		},
		"west makes it slowly": {
			claim: claim(annotated(keys.SelectedNode, "west"),
				said("WaitingForBacking", "waiting until claim shop/data in cluster west is bound")),
			setting: setting(),
			want:    `claim "data" is being made in cluster "west": waiting until claim shop/data in cluster west is bound`,
		},
		"it is being made at home": {
			claim: claim(annotated(keys.SelectedNode, "home-1")), setting: setting(),
			want: `claim "data" is being made in the home cluster, for node "home-1": this takes seconds; if it lasts, see the log of the provisioner`,
		},
		"it is bound": {
			claim: claim(boundIn("west")), setting: setting(),
			want: `claim "data" is bound: its data is in cluster "west"`, fine: true,
		},
		"it is bound, and nobody may read its volume": {
			claim: claim(boundIn("west"), func(c *Claim) { c.Volume = nil }), setting: setting(),
			want: `claim "data" is bound to volume "pvc-1": where its data is cannot be said, since you may not read that volume`, fine: true,
		},
		"it is bound to a volume of others": {
			claim: claim(ofLocalPath, boundIn("west"), func(c *Claim) { c.Volume.Annotations = nil }), setting: setting(),
			want: `claim "data" is bound to volume "pvc-1", which is not Lodestone's`, fine: true,
		},
		"it is bound to a virtual volume that says nothing": {
			claim: claim(boundIn("west"), func(c *Claim) { c.Volume.Annotations = nil }), setting: setting(),
			want: `claim "data" is bound to volume "pvc-1", which does not say where its data is`, fine: true,
		},
		"what somebody deleted behind it was healed since": {
			claim: claim(boundIn("west"), func(c *Claim) {
				c.Events = []corev1.Event{event("BackingDeleted", "somebody deleted the backing claim shop/data in cluster west", time.Hour)}
			}), setting: setting(),
			want: `claim "data" is bound: its data is in cluster "west"`, fine: true,
		},
		"somebody deleted what is behind it": {
			claim:   claim(boundIn("west"), said("BackingDeleted", "somebody deleted the backing claim shop/data in cluster west")),
			setting: setting(),
			want:    `claim "data" is bound, but somebody deleted the backing claim shop/data in cluster west`,
		},
		"its condition says what is wrong": {
			claim: claim(boundIn("west"), said("BackingLost", "it was otherwise before"), func(c *Claim) {
				c.Claim.Status.Conditions = []corev1.PersistentVolumeClaimCondition{{Type: keys.VolumeTrouble, Status: corev1.ConditionTrue,
					Message: "its cluster is away"}}
			}), setting: setting(),
			want: `claim "data" is bound, but its cluster is away`,
		},
		"its twin is bound to another volume": {
			claim:   claim(boundIn(keys.Home), said("BackingMisbound", "real claim lodestone-storage/pvc-u1 was bound to another volume")),
			setting: setting(),
			want:    `claim "data" is bound, but real claim lodestone-storage/pvc-u1 was bound to another volume`,
		},
		"its backing claim waits": {
			claim: claim(boundIn("west"), said("BackingPending", "real claim shop/data in cluster west is not bound yet")), setting: setting(),
			want: `claim "data" is bound, but real claim shop/data in cluster west is not bound yet`,
		},
		"it does not grow": {
			claim: claim(boundIn("west"), func(c *Claim) {
				c.Claim.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("9Gi")}
				c.Claim.Status.Conditions = []corev1.PersistentVolumeClaimCondition{
					{Type: corev1.PersistentVolumeClaimResizing, Status: corev1.ConditionTrue, Message: "it grows"},
					{Type: corev1.PersistentVolumeClaimControllerResizeError, Status: corev1.ConditionTrue, Message: "the pool is full"},
				}
			}), setting: setting(),
			want: `claim "data" is bound, but not expanded to 9Gi: the pool is full`,
		},
		"it grows": {
			claim: claim(boundIn("west"), func(c *Claim) {
				c.Claim.Status.Conditions = []corev1.PersistentVolumeClaimCondition{{Type: corev1.PersistentVolumeClaimResizing,
					Status: corev1.ConditionTrue}}
			}), setting: setting(),
			want: `claim "data" is bound: its data is in cluster "west"`, fine: true,
		},
		"it is lost": {
			claim: claim(boundIn("west"), func(c *Claim) { c.Claim.UID, c.Claim.Status.Phase = "u1", corev1.ClaimLost }), setting: setting(),
			want: `claim "data" is Lost, because somebody deleted its volume "pvc-1" and took its finalizers off; Lodestone has not deleted the ` +
				`data behind it, and does not when the claim is deleted: delete the claim, then an administrator runs kubectl lodestone import ` +
				`pv/VOLUME -n shop --class lodestone --as data, where VOLUME is what kubectl get pvc -A -l lodestone.dev/claim-uid=u1 shows; if ` +
				`that is in a remote cluster, kubectl lodestone import pvc/data -n shop --class lodestone --cluster CLUSTER --remote-context ` +
				`CONTEXT`,
		},
		"a move has taken its volume away for a moment": {
			claim: claim(boundIn("west"), func(c *Claim) {
				c.Claim.Status.Phase, c.Claim.Labels = corev1.ClaimPending, map[string]string{keys.Moving: keys.MovingNow}
			}), setting: setting(),
			want: `claim "data" has no volume for a moment, while it is moved, and nothing is deleted: kubectl lodestone move status -n shop says ` +
				`how far that is`,
		},
		"it is locked as for a move, and there is none": {
			claim: claim(boundIn("west"), func(c *Claim) {
				c.Claim.Status.Phase, c.Claim.Labels = corev1.ClaimLost, map[string]string{keys.Moving: keys.MovingNow}
				c.Events = []corev1.Event{{Reason: "MoveMarksStay", Message: "there is no such move", LastTimestamp: metav1.NewTime(now)}}
			}), setting: setting(),
			want: `claim "data" has no volume: there is no such move`,
		},
		"it is being deleted while a pod uses it": {
			claim: claim(boundIn("west"), func(c *Claim) {
				c.Claim.DeletionTimestamp = &metav1.Time{Time: now}
				c.Pods = []corev1.Pod{*pod(on("west"))}
			}), setting: setting(),
			want: `claim "data" is being deleted and waits until no pod uses it: delete web-1`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			answer := test.claim.Of(test.setting)
			assert.Equal(t, test.want, answer.Sentence)
			assert.Equal(t, !test.fine, answer.Waiting)
			assert.NotEmpty(t, answer.Facts)
		})
	}
}

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
			want: `pod "web-1" cannot start in cluster "west": the volume of its claim "data" is not made there yet: ProvisioningFailed says "NodePath only supports ReadWriteOnce"`,
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
			want: `pod "web-1" cannot start in cluster "west": the volume of its claim "data" is not made there yet: ProvisioningFailed says "NodePath only supports ReadWriteOnce"`,
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
		"it has just used more memory than it may": {
			pod: Pod{Pod: pod(on("west"), held, unready, func(p *corev1.Pod) {
				p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "app", State: corev1.ContainerState{
					Terminated: &corev1.ContainerStateTerminated{Reason: "OOMKilled", ExitCode: 137}}}}
			})},
			want: `pod "web-1" is in cluster "west": container "app" ended with code 137 (OOMKilled): it used more memory than it may: raise resources.limits.memory`,
		},
		"it has just ended badly": {
			pod: Pod{Pod: pod(on("west"), held, unready, func(p *corev1.Pod) {
				p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "app", State: corev1.ContainerState{
					Terminated: &corev1.ContainerStateTerminated{Reason: "Error", ExitCode: 2}}}}
			})},
			want: `pod "web-1" is in cluster "west": container "app" ended with code 2 (Error): kubectl logs web-1 -n shop -c app`,
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

func dying(s *Setting) { s.Namespace.DeletionTimestamp = &metav1.Time{Time: now.Add(-5 * time.Minute)} }

func TestWhatIsInANamespaceThatIsBeingDeletedIsOfferedNothing(t *testing.T) {
	moving := claim(boundIn("west"), func(c *Claim) {
		c.Claim.DeletionTimestamp = &metav1.Time{Time: now}
		c.Claim.Finalizers = []string{keys.MoveFinalizer, "kubernetes.io/pvc-protection", "example.com/x"}
	})
	for name, row := range map[string]struct {
		answer Answer
		want   string
	}{
		"a pod that waits": {
			answer: Pod{Pod: pod(), Claims: []Claim{claim(absent)}}.Of(setting(dying)),
			want: `pod "web-1" goes with namespace "shop", which is being deleted: nothing is made in it any more; kubectl lodestone why ` +
				`namespace/shop says what it waits for`,
		},
		"a claim that waits": {
			answer: claim().Of(setting(dying)),
			want: `claim "data" goes with namespace "shop", which is being deleted: nothing is made in it any more; kubectl lodestone why ` +
				`namespace/shop says what it waits for`,
		},
		"a claim that a move holds": {
			answer: moving.Of(setting(dying)),
			want: `claim "data" is being deleted and is held by a move of it, which ends first (kubectl lodestone move status), Kubernetes, until no ` +
				`pod uses it, finalizer example.com/x; its namespace "shop" is being deleted, too`,
		},
		"a claim that nothing holds": {
			answer: claim(boundIn("west"), func(c *Claim) { c.Claim.DeletionTimestamp = &metav1.Time{Time: now} }).Of(setting(dying)),
			want:   `claim "data" is being deleted and will be gone in a moment; its namespace "shop" is being deleted, too`,
		},
		"a claim that a pod uses": {
			answer: claim(boundIn("west"), func(c *Claim) {
				c.Claim.DeletionTimestamp, c.Pods = &metav1.Time{Time: now}, []corev1.Pod{*pod()}
			}).Of(setting(dying)),
			want: `claim "data" is being deleted and waits until no pod uses it: web-1; its namespace "shop" is being deleted, too`,
		},
		"a pod that runs": {
			answer: Pod{Pod: pod(on("home-1"), func(p *corev1.Pod) { p.Status.Phase = corev1.PodRunning })}.Of(setting(dying)),
			want:   `pod "web-1" runs on node "home-1"`,
		},
	} {
		assert.Equal(t, row.want, row.answer.Sentence, name)
	}
}

func TestWhyANamespaceStays(t *testing.T) {
	ending := func(n *Namespace) { n.Namespace.DeletionTimestamp = &metav1.Time{Time: now.Add(-5 * time.Minute)} }
	gone := func(o *metav1.ObjectMeta) { o.DeletionTimestamp = &metav1.Time{Time: now} }
	for name, row := range map[string]struct {
		changes []func(*Namespace)
		want    string
		waits   bool
	}{
		"it is there": {want: "namespace shop: open to west"},
		"it is there, for home alone": {changes: []func(*Namespace){func(n *Namespace) { n.Namespace.Labels = nil }},
			want: "namespace shop: open to no remote cluster (kubectl label namespace shop lodestone.dev/offload=enabled opens it)"},
		"it goes": {changes: []func(*Namespace){ending}, waits: true,
			want: `namespace "shop" is being deleted since 5m: Kubernetes removes what is in it, which takes a moment`},
		"a move and its claim keep it": {
			changes: []func(*Namespace){ending, func(n *Namespace) {
				n.Moves = []v1alpha1.VolumeMove{{ObjectMeta: metav1.ObjectMeta{Name: "data-x"},
					Status: v1alpha1.VolumeMoveStatus{Message: "the VolumeMove was deleted: cluster west does not answer"}}}
				c := claim(boundIn("west")).Claim
				gone(&c.ObjectMeta)
				c.Finalizers = []string{keys.MoveFinalizer}
				n.Claims = []corev1.PersistentVolumeClaim{*c, {ObjectMeta: metav1.ObjectMeta{Name: "not-yet-deleted"}}}
			}}, waits: true,
			want: `namespace "shop" is being deleted since 5m and waits for: VolumeMove data-x, which goes back or comes to its end: the VolumeMove ` +
				`was deleted: cluster west does not answer; claim "data" is being deleted and is held by a move of it, which ends first (kubectl ` +
				`lodestone move status)`,
		},
		"somebody else keeps it": {
			changes: []func(*Namespace){ending, func(n *Namespace) {
				n.Namespace.Status.Conditions = []corev1.NamespaceCondition{
					{Type: corev1.NamespaceDeletionDiscoveryFailure, Status: corev1.ConditionFalse, Message: "All resources successfully discovered"},
					{Type: corev1.NamespaceFinalizersRemaining, Status: corev1.ConditionTrue,
						Message: "Some content in the namespace has finalizers remaining: example.com/x in 1 resource instances"}}
			}}, waits: true,
			want: `namespace "shop" is being deleted since 5m, and what is left in it is not Lodestone's: condition ` +
				`NamespaceFinalizersRemaining: Some content in the namespace has finalizers remaining: example.com/x in 1 resource instances`,
		},
		"a pod keeps it": {
			changes: []func(*Namespace){ending, func(n *Namespace) {
				n.Pods = []corev1.Pod{*pod(on("west"), held, going)}
			}}, waits: true,
			want: `namespace "shop" is being deleted since 5m and waits for: pod "web-1" is being deleted and waits until its copy in cluster "west" ` +
				`has ended`,
		},
	} {
		s := setting()
		n := Namespace{Namespace: s.Namespace}
		for _, change := range row.changes {
			change(&n)
		}
		answer := n.Of(s)
		assert.Equal(t, row.want, answer.Sentence, name)
		assert.Equal(t, row.waits, answer.Waiting, name)
	}
}

func TestAVolumeThatWasTakenAwayIsExplained(t *testing.T) {
	lost := func(c *Claim) { c.Claim.Status.Phase, c.Volume = corev1.ClaimLost, nil }
	pending := func(c *Claim) { c.Claim.Status.Phase = corev1.ClaimPending }
	moving := func(c *Claim) { c.Claim.Labels = map[string]string{keys.Moving: keys.MovingNow} }
	for name, row := range map[string]struct {
		claim Claim
		want  string
	}{
		"by a move, for a moment": {claim(boundIn("west"), lost, moving), "has no volume for a moment, while it is moved"},
		"by a move, and the claim is Pending": {claim(boundIn("west"), lost, moving, pending),
			"has no volume for a moment, while it is moved"},
		"by somebody, and the claim is Lost": {claim(boundIn("west"), lost),
			"because somebody deleted its volume \"pvc-1\" and took its finalizers off; Lodestone has not deleted the data behind it"},
		"by somebody, while it is bound": {claim(boundIn("west"), func(c *Claim) { c.Volume.DeletionTimestamp = &metav1.Time{Time: now} }),
			"is bound, but somebody deleted its volume \"pvc-1\": pods go on with it and the data stays"},
		"that is not Lodestone's": {claim(boundIn("west"), lost, ofLocalPath), "restore the data from a backup, or delete the claim"},
	} {
		answer := row.claim.Of(setting())
		assert.Contains(t, answer.Sentence, row.want, name)
		assert.True(t, answer.Waiting, name)
	}
	assert.Contains(t, claim(func(c *Claim) {
		c.Pods, c.PodWaits = []corev1.Pod{*pod()}, `pod "web-1" fits no node: of 1 node, 1 is cordoned`
	}).Of(setting()).Sentence, `claim "data" waits until its pod has a node: pod "web-1" fits no node: of 1 node, 1 is cordoned`)
}

func TestNothingIsToldTwiceAndNothingOfTheSchedulersBoilerplate(t *testing.T) {
	const full = "0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: 1 Preemption is not helpful for " +
		"scheduling."
	p := Pod{Pod: pod(unfit(full)), Events: []corev1.Event{event("FailedScheduling", full, time.Minute),
		event("FailedScheduling", full, 2*time.Minute)}}
	all := strings.Join(p.Of(setting()).Facts, "\n")
	assert.Equal(t, 1, strings.Count(all, "Insufficient cpu"), all)
	assert.NotContains(t, all, "reemption")

	const gated = "Scheduling is blocked due to non-empty scheduling gates"
	p = Pod{Pod: pod(unfit(gated), func(p *corev1.Pod) {
		p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: keys.MovingGate}}
	}), Events: []corev1.Event{event("FailedScheduling", gated, time.Minute)}}
	answer := p.Of(setting())
	assert.NotContains(t, strings.Join(answer.Facts, "\n"), "blocked", "a gate that does what it is for is no fault")
	assert.Contains(t, answer.Sentence, "while the volume of a claim of it is moved")

	pulling := waitingFor("ImagePullBackOff", "no such image")
	p = Pod{Pod: pod(on("home-1"), pulling), Events: []corev1.Event{event("Failed", "no such image", time.Minute)}}
	all = p.Of(setting()).Sentence + strings.Join(p.Of(setting()).Facts, "\n")
	assert.Equal(t, 1, strings.Count(all, "no such image"), all)
}

func TestWhatAPodThatIsBeingDeletedWaitsForAtHome(t *testing.T) {
	until := func(at time.Duration) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.DeletionTimestamp = ptr.To(metav1.NewTime(now.Add(at))) }
	}
	silent := func(s *Setting) {
		s.Nodes[0].Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown,
			Message: "Kubelet stopped posting node status."}}
	}
	for name, row := range map[string]struct {
		pod     *corev1.Pod
		setting Setting
		want    string
	}{
		"its containers end": {pod(on("home-1"), until(20*time.Second)), setting(),
			`pod "web-1" is being deleted: its containers have until ` + now.Add(20*time.Second).UTC().Format("15:04:05") + ` to end`},
		"its time is over": {pod(on("home-1"), until(-time.Hour)), setting(),
			`pod "web-1" is being deleted: its containers had until ` + now.Add(-time.Hour).UTC().Format("15:04:05") +
				` to end, and its node has not said that they have; kubectl describe pod web-1 -n shop says more`},
		"its node does not answer": {pod(on("home-1"), until(-time.Hour)), setting(silent),
			`pod "web-1" is being deleted, but its node "home-1" does not answer: Kubelet stopped posting node status; the pod goes once the node is ` +
				`back or, if that is off for good, once kubectl delete node home-1 says so`},
	} {
		answer := Pod{Pod: row.pod}.Of(row.setting)
		assert.Equal(t, row.want, answer.Sentence, name)
		assert.True(t, answer.Waiting, name)
	}
}

func TestNothingIsSaidOfWhatATenantMayNotRead(t *testing.T) {
	unread := func(changes ...func(*Setting)) Setting {
		return setting(append([]func(*Setting){func(s *Setting) {
			s.Clusters, s.Nodes, s.ClustersUnknown, s.NodesUnknown = nil, nil, true, true
		}}, changes...)...)
	}
	made := claim(annotated(keys.SelectedNode, "west"))
	assert.Equal(t, `claim "data" is being made for node "west": this takes seconds; if it lasts, see the log of the provisioner`,
		made.Of(unread()).Sentence, "nobody knows in which cluster that is")
	slow := claim(annotated(keys.SelectedNode, "west"), said("WaitingForBacking", "it is not bound yet"))
	assert.Equal(t, `claim "data" is being made for node "west": it is not bound yet`, slow.Of(unread()).Sentence)
	// The node may be read, and the RemoteCluster not.
	nodes := func(s *Setting) { s.Nodes, s.NodesUnknown = []corev1.Node{virtualNode("west")}, false }
	answer := made.Of(unread(nodes))
	assert.Equal(t, `claim "data" is being made in cluster "west", for node "west": this takes seconds; if it lasts, see the log of the provisioner`,
		answer.Sentence)
	assert.Contains(t, answer.Facts, `cluster "west": how it is cannot be said, since you may not read RemoteClusters`)

	for want, namespace := range map[string]func(*Setting){
		"namespace shop: open to all remote clusters": func(*Setting) {},
		"namespace shop: open to west, east": func(s *Setting) {
			s.Namespace.Annotations = map[string]string{keys.OffloadClusters: "west, east"}
		},
		"namespace shop: open to no remote cluster": func(s *Setting) { s.Namespace.Labels = nil },
	} {
		assert.Contains(t, made.Of(unread(namespace)).Facts, want)
	}
}

func TestAClassThatATenantMayNotReadIsNotMissing(t *testing.T) {
	unread := func(c *Claim) { c.Class, c.ClassUnknown = nil, true }
	for name, row := range map[string]struct {
		claim Claim
		want  string
	}{
		"it waits for a pod": {claim(unread), `claim "data" waits for a pod that uses it: its volume is made where that pod is scheduled, so ` +
			`there is nothing to do but to start one`},
		"its provisioner has failed": {claim(unread, said("ProvisioningFailed", "the pool is full")),
			`claim "data" has no volume yet: the pool is full`},
		"Lodestone cannot serve it": {claim(unread, said("TooLarge", "there is no room for 9Ti")),
			`claim "data" cannot be served: there is no room for 9Ti`},
		"it is being made": {claim(unread, annotated(keys.SelectedNode, "west")),
			`claim "data" is being made in cluster "west", for node "west": this takes seconds; if it lasts, see the log of the provisioner`},
	} {
		assert.Equal(t, row.want, row.claim.Of(setting()).Sentence, name)
	}
	waiting := Pod{Pod: pod(unfit("0/1 nodes are available: 1 Insufficient cpu.")), Claims: []Claim{claim(unread)}}
	assert.Equal(t, `pod "web-1" fits no node: of 1 node, 1 has too little cpu left; free some, or have the pod ask for less`,
		waiting.Of(setting()).Sentence)
}
