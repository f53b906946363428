package node

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

var (
	able   = State{Ready: true, Reason: "RemoteReady", Message: "pods can run in cluster west"}
	silent = State{Reason: "RemoteSilent", Message: "cluster west does not answer"}
	early  = metav1.NewTime(time.Unix(1000, 0))
	later  = metav1.NewTime(time.Unix(2000, 0))
)

func described(change func(*Description)) Description {
	d := Description{
		Cluster: "west", Address: "10.0.0.7", Port: 10351, Version: "v1.35.1", State: able, Now: early,
		Offer: &remotev1alpha1.HomeClusterStatus{
			Capacity:    corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("8"), "example.com/gpu": resource.MustParse("2")},
			Allocatable: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("6"), "example.com/gpu": resource.MustParse("1")},
			Nodes: remotev1alpha1.NodeSummary{Count: 2, OperatingSystem: "linux", Architecture: "arm64",
				Topology: map[string]string{corev1.LabelTopologyRegion: "eu", corev1.LabelTopologyZone: "eu-1"}},
		},
	}
	if change != nil {
		change(&d)
	}
	return d
}

func TestANewNodeShowsWhatTheClusterOffers(t *testing.T) {
	node := New("west", described(nil))
	assert.Equal(t, map[string]string{
		keys.Cluster: "west", "type": "virtual-kubelet", corev1.LabelHostname: "west",
		corev1.LabelOSStable: "linux", corev1.LabelArchStable: "arm64",
		corev1.LabelTopologyRegion: "eu", corev1.LabelTopologyZone: "eu-1",
		corev1.LabelNodeExcludeBalancers: "true", "node-role.kubernetes.io/lodestone": "",
		keys.Claims: keys.ClaimsOfVolumes,
	}, node.Labels)
	assert.Equal(t, []corev1.Taint{{Key: keys.RemoteTaint, Value: "west", Effect: corev1.TaintEffectNoSchedule}}, node.Spec.Taints)
	assert.True(t, Ours(node, "west"))
	assert.False(t, Ours(node, "east"))
	assert.Equal(t, []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.0.0.7"}}, node.Status.Addresses)
	assert.EqualValues(t, 10351, node.Status.DaemonEndpoints.KubeletEndpoint.Port)
	assert.Equal(t, "v1.35.1", node.Status.NodeInfo.KubeletVersion)
	assert.Equal(t, "arm64", node.Status.NodeInfo.Architecture)
	assert.Equal(t, "1", node.Status.Allocatable.Name("example.com/gpu", resource.DecimalSI).String())
	assert.Equal(t, "8", node.Status.Capacity.Cpu().String())
	assert.Equal(t, corev1.ConditionTrue, find(node.Status.Conditions, corev1.NodeReady).Status)
	assert.Equal(t, corev1.ConditionFalse, find(node.Status.Conditions, corev1.NodeMemoryPressure).Status)
}

func TestWhatUsersAddToANodeStays(t *testing.T) {
	node := New("west", described(nil))
	gpu := corev1.Taint{Key: "gpu", Effect: corev1.TaintEffectNoSchedule}
	node.Labels["team"], node.Annotations["note"] = "data", "ours"
	node.Spec.Unschedulable = true
	node.Spec.Taints = []corev1.Taint{gpu}
	delete(node.Labels, keys.Cluster)
	node.Labels["type"] = "changed"
	node.Status.Conditions = append(node.Status.Conditions, corev1.NodeCondition{Type: "Disk", Status: corev1.ConditionTrue})

	back := WithStatus(WithMeta(node, described(nil)), described(nil))
	assert.Equal(t, "data", back.Labels["team"])
	assert.Equal(t, "ours", back.Annotations["note"])
	assert.True(t, back.Spec.Unschedulable)
	assert.Equal(t, []corev1.Taint{gpu, {Key: keys.RemoteTaint, Value: "west", Effect: corev1.TaintEffectNoSchedule}}, back.Spec.Taints)
	assert.Equal(t, "west", back.Labels[keys.Cluster], "ours come back")
	assert.Equal(t, "virtual-kubelet", back.Labels["type"])
	assert.NotNil(t, find(back.Status.Conditions, "Disk"))
	assert.Equal(t, back, WithStatus(WithMeta(back, described(nil)), described(nil)), "nothing more to do")
}

func TestOurTaintIsPutRight(t *testing.T) {
	node := New("west", described(nil))
	node.Spec.Taints[0].Value = "other"
	assert.Equal(t, []corev1.Taint{{Key: keys.RemoteTaint, Value: "west", Effect: corev1.TaintEffectNoSchedule}},
		WithMeta(node, described(nil)).Spec.Taints)
}

func TestLabelsThatNodesNoLongerShareGo(t *testing.T) {
	node := New("west", described(nil))
	node.Labels["team"] = "data"
	mixed := WithMeta(node, described(func(d *Description) {
		d.Offer.Nodes = remotev1alpha1.NodeSummary{Count: 3, OperatingSystem: "linux",
			Topology: map[string]string{corev1.LabelTopologyRegion: "eu"}}
	}))
	assert.NotContains(t, mixed.Labels, corev1.LabelArchStable)
	assert.Equal(t, "west", mixed.Labels[corev1.LabelTopologyZone], "the cluster is one place")
	assert.Equal(t, "eu", mixed.Labels[corev1.LabelTopologyRegion])
	assert.Equal(t, "data", mixed.Labels["team"])

	delete(mixed.Labels, corev1.LabelTopologyZone)
	mixed.Annotations[keys.NodeLabels] = corev1.LabelOSStable
	mixed.Labels[corev1.LabelTopologyZone] = "by-hand"
	again := WithMeta(mixed, described(func(d *Description) { d.Offer.Nodes = remotev1alpha1.NodeSummary{OperatingSystem: "linux"} }))
	assert.Equal(t, "by-hand", again.Labels[corev1.LabelTopologyZone], "what a user set where the cluster says nothing")

	unknown := WithMeta(node, described(func(d *Description) { d.Offer = nil }))
	assert.Equal(t, node.Labels, unknown.Labels, "what is not known changes nothing")
	node.Annotations[keys.NodeLabels] = "team"
	assert.Equal(t, "data", WithMeta(node, described(nil)).Labels["team"], "no annotation takes away other labels")
}

func TestAClusterIsOnePlaceWhateverItsNodesShare(t *testing.T) {
	topology := func(node *corev1.Node) string {
		return node.Labels[corev1.LabelTopologyRegion] + "/" + node.Labels[corev1.LabelTopologyZone]
	}
	place := func(region, zone string, shared map[string]string) func(*Description) {
		return func(d *Description) {
			d.Topology, d.Offer.Nodes.Topology = v1alpha1.Topology{Region: region, Zone: zone}, shared
		}
	}
	shared := map[string]string{corev1.LabelTopologyRegion: "eu", corev1.LabelTopologyZone: "eu-1"}
	node := New("west", described(place("", "", nil)))
	assert.Equal(t, "west/west", topology(node), "its nodes share nothing")
	node = WithMeta(node, described(place("", "", map[string]string{corev1.LabelTopologyRegion: "eu"})))
	assert.Equal(t, "eu/west", topology(node), "several zones of a region")
	node = WithMeta(node, described(place("", "", shared)))
	assert.Equal(t, "eu/eu-1", topology(node))
	node = WithMeta(node, described(place("us", "us-2", shared)))
	assert.Equal(t, "us/us-2", topology(node), "the RemoteCluster says where it is")
	assert.Equal(t, "west/west", topology(WithMeta(node, described(place("", "", nil)))), "what it no longer says")

	unknown := func(region string) Description {
		return described(func(d *Description) { d.Offer, d.Topology.Region = nil, region })
	}
	early := New("west", unknown(""))
	assert.Equal(t, "west/west", topology(early), "before it is known what it offers")
	assert.Equal(t, "us/west", topology(WithMeta(early, unknown("us"))))
	assert.Equal(t, "eu/eu-1", topology(WithMeta(early, described(place("", "", shared)))), "once it is known")
	known := WithMeta(node, described(place("", "", shared)))
	assert.Equal(t, known, WithMeta(known, unknown("")), "while it is not known again, after a restart")
	assert.Equal(t, "west/west", topology(WithMeta(WithMeta(known, unknown("")), described(place("", "", nil)))), "it still counts as ours")
}

func TestDeclaredFeaturesAreTakenOverWhereTheyAreValid(t *testing.T) {
	declare := func(names ...string) func(*Description) {
		return func(d *Description) { d.Offer.Nodes.DeclaredFeatures = names }
	}
	node := New("west", described(declare("Resize/fast", "Guaranteed", "Guaranteed", "no such", "", "x", strings.Repeat("A", 254))))
	assert.Equal(t, []string{"Guaranteed", "Resize/fast"}, node.Status.DeclaredFeatures)
	assert.Empty(t, WithStatus(node, described(declare())).Status.DeclaredFeatures, "a node that does not have them has joined")
	many := make([]string, 1000)
	for i := range many {
		many[i] = fmt.Sprintf("Feature%d", i)
	}
	assert.Len(t, New("west", described(declare(many...))).Status.DeclaredFeatures, maxFeatures)
	assert.Empty(t, New("west", described(func(d *Description) {
		d.Offer.Nodes.DeclaredFeatures, d.Featureless = []string{"Guaranteed"}, true
	})).Status.DeclaredFeatures)
}

func TestARetiredNodeIsCordonedAndTakenBack(t *testing.T) {
	node := New("west", described(nil))
	retired := WithMeta(node, described(func(d *Description) { d.Retired = true }))
	assert.True(t, retired.Spec.Unschedulable)
	back := WithMeta(retired, described(nil))
	assert.False(t, back.Spec.Unschedulable)
	assert.NotContains(t, back.Annotations, keys.Retired)
}

func TestNothingThatARemoteClusterSaysBreaksTheNode(t *testing.T) {
	node := New("west", described(func(d *Description) {
		d.Offer.Nodes = remotev1alpha1.NodeSummary{OperatingSystem: "no label!", Architecture: "amd64\n", Topology: map[string]string{
			corev1.LabelTopologyZone: "a b", "node-role.kubernetes.io/control-plane": "x", corev1.LabelTopologyRegion: "eu"}}
		d.Offer.Allocatable = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("-4"), "no such/name!": resource.MustParse("1"),
			corev1.ResourcePods: resource.MustParse("10")}
	}))
	assert.NotContains(t, node.Labels, corev1.LabelOSStable)
	assert.NotContains(t, node.Labels, corev1.LabelArchStable)
	assert.Equal(t, "west", node.Labels[corev1.LabelTopologyZone])
	assert.NotContains(t, node.Labels, "node-role.kubernetes.io/control-plane")
	assert.Equal(t, "eu", node.Labels[corev1.LabelTopologyRegion])
	assert.Equal(t, corev1.ResourceList{corev1.ResourcePods: resource.MustParse("10")}, node.Status.Allocatable)
	assert.Empty(t, node.Status.NodeInfo.Architecture)
}

func TestReadyFollowsTheState(t *testing.T) {
	node := New("west", described(nil))
	down := WithStatus(node, described(func(d *Description) { d.State, d.Now, d.Offer = silent, later, nil }))
	ready := find(down.Status.Conditions, corev1.NodeReady)
	assert.Equal(t, corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionFalse, Reason: silent.Reason, Message: silent.Message,
		LastHeartbeatTime: later, LastTransitionTime: later}, *ready)
	assert.Equal(t, node.Status.Allocatable, down.Status.Allocatable, "what was known last stays")

	find(down.Status.Conditions, corev1.NodeReady).Status = corev1.ConditionUnknown
	find(down.Status.Conditions, corev1.NodeReady).Message = "Kubelet stopped posting node status."
	require.Equal(t, down, WithStatus(down, described(func(d *Description) { d.State, d.Offer = silent, nil })),
		"no quarrel with kube-controller-manager")
	assert.Equal(t, silent.Message, find(down.Status.Conditions, RemoteReady).Message)
	assert.Equal(t, corev1.ConditionTrue, find(WithStatus(down, described(nil)).Status.Conditions, corev1.NodeReady).Status)
}

func TestWhatIsReadOfANodeIsKept(t *testing.T) {
	other := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "node-1", UID: "n", ResourceVersion: "7", Labels: map[string]string{"a": "b"}},
		Spec:       corev1.NodeSpec{ProviderID: "cloud://1", PodCIDR: "10.0.0.0/24"},
		Status: corev1.NodeStatus{
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Message: "m"}, {Type: "DiskPressure"}},
			Addresses: []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: "node-1"},
				{Type: corev1.NodeInternalIP, Address: "10.0.0.1"}},
			DaemonEndpoints: corev1.NodeDaemonEndpoints{KubeletEndpoint: corev1.DaemonEndpoint{Port: 10250}},
			Images:          make([]corev1.ContainerImage, 50),
		},
	}
	kept := Transform(other)
	assert.Equal(t, &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "node-1", UID: "n", ResourceVersion: "7"}, Spec: corev1.NodeSpec{ProviderID: "cloud://1"},
		Status: corev1.NodeStatus{
			Conditions:      []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
			Addresses:       []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.0.0.1"}},
			DaemonEndpoints: corev1.NodeDaemonEndpoints{KubeletEndpoint: corev1.DaemonEndpoint{Port: 10250}},
		},
	}, kept)
	assert.Equal(t, kept, Transform(kept), "an informer may transform what it has transformed")
	virtual := New("west", described(nil))
	assert.Same(t, virtual, Transform(virtual), "it is compared with what it should be")
}
