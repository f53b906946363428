package install

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/keys"
)

func node(provider string, labels map[string]string) corev1.Node {
	return corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: labels}, Spec: corev1.NodeSpec{ProviderID: provider}}
}

func TestPlatformsAreToldApart(t *testing.T) {
	for name, row := range map[string]struct {
		facts Facts
		want  Platform
	}{
		"kind, which kubeadm makes": {Facts{Version: "v1.36.3", KubeadmConfig: true, Nodes: []corev1.Node{node("kind://docker/a/b", nil)}}, Kind},
		"kubeadm":                   {Facts{Version: "v1.36.3", KubeadmConfig: true, Nodes: []corev1.Node{node("", nil)}}, Kubeadm},
		"kubeadm on machines of AWS": {Facts{Version: "v1.36.3", KubeadmConfig: true,
			Nodes: []corev1.Node{node("aws:///eu/i-1", nil)}}, Kubeadm},
		"k3s":                {Facts{Version: "v1.36.3+k3s1"}, K3s},
		"EKS by its version": {Facts{Version: "v1.36.3-eks-3abb123"}, EKS},
		"EKS by a node of Fargate": {Facts{Version: "v1.36.3",
			Nodes: []corev1.Node{node("", map[string]string{"eks.amazonaws.com/compute-type": "x"})}}, EKS},
		"GKE by its version": {Facts{Version: "v1.36.3-gke.1234000"}, GKE},
		"AKS by a node": {Facts{Version: "v1.36.3",
			Nodes: []corev1.Node{node("azure:///x", map[string]string{"kubernetes.azure.com/cluster": "x"})}}, AKS},
		"OpenShift by its groups": {Facts{Version: "v1.36.3", Groups: []string{"apps", "config.openshift.io"}}, OpenShift},
		"nothing that is known":   {Facts{Version: "v1.36.3"}, Other},
	} {
		assert.Equal(t, row.want, Detect(row.facts), name)
	}
}

func TestVersionsOfKubernetesThatNobodyTried(t *testing.T) {
	for version, tried := range map[string]bool{"v1.34.0": true, "v1.37.2-eks-1": true, "v1.33.9": false, "v1.38.0": false,
		"v2.35.0": false, "main": true} {
		assert.Equal(t, tried, untried(version) == "", version)
	}
	programs, err := filepath.Glob("../../e2e/programs/kubernetes-1.*.mod")
	require.NoError(t, err)
	for _, program := range programs {
		version := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(program), "kubernetes-"), ".mod")
		assert.Empty(t, untried("v"+version+".0"), program)
	}
	chart, err := os.ReadFile("../../deploy/chart/files/Chart.yaml")
	require.NoError(t, err)
	assert.Contains(t, string(chart), fmt.Sprintf(">=1.%d", oldestTried))
}

func kubeadm() Facts {
	return Facts{Version: "v1.36.3", KubeadmConfig: true, Mutating: true, Validating: true}
}

func TestWhatIsChosenSuitsTheCluster(t *testing.T) {
	v, notes, err := Choose(Values{}, Values{}, kubeadm(), false, "v0.2.0")
	require.NoError(t, err)
	assert.Empty(t, notes)
	assert.Equal(t, Values{
		Registry: DefaultRegistry, Tag: "v0.2.0", Scheduler: Extender, Certificates: ByJob, Admission: Policies, VirtualNodes: ptr.To(true),
		Monitoring: ptr.To(false),
	}, v)

	eks := Facts{Version: "v1.36.7-eks-3abb123", Mutating: true, Validating: true}
	v, notes, err = Choose(Values{}, Values{}, eks, false, "v0.2.0")
	require.NoError(t, err)
	assert.Len(t, notes, 2, "nobody has tried it, and what the second scheduler is asked for")
	assert.Equal(t, Second, v.Scheduler)
	assert.Equal(t, "v1.36.7", v.KubeScheduler, "the version of the cluster")
	assert.Empty(t, v.Certificates)

	eks.Version, eks.Mutating = "v1.34.2-eks-3abb123", false
	v, _, err = Choose(Values{}, Values{}, eks, false, "v0.2.0")
	require.NoError(t, err)
	assert.Equal(t, Webhook, v.Admission)
	assert.Equal(t, ByJob, v.Certificates, "API servers call a webhook over TLS alone")
	eks.Version, eks.Mutating = "v1.36.7-eks-3abb123", true
	v, _, err = Choose(Values{}, v, eks, false, "v0.2.0")
	require.NoError(t, err)
	assert.Equal(t, Policies, v.Admission, "the cluster was upgraded")
	assert.Empty(t, v.Certificates)

	liqo := kubeadm()
	liqo.Nodes = []corev1.Node{node("", map[string]string{"liqo.io/type": "virtual-node"})}
	v, notes, err = Choose(Values{}, Values{}, liqo, false, "v0.2.0")
	require.NoError(t, err)
	assert.False(t, *v.VirtualNodes)
	assert.Len(t, notes, 1)
	admiralty := kubeadm()
	admiralty.Nodes = []corev1.Node{node("", map[string]string{"type": "virtual-kubelet", "virtual-kubelet.io/provider": "admiralty"})}
	v, _, err = Choose(Values{}, Values{}, admiralty, false, "v0.2.0")
	require.NoError(t, err)
	assert.False(t, *v.VirtualNodes)
	own := kubeadm()
	own.Nodes = []corev1.Node{node("", map[string]string{"type": "virtual-kubelet", keys.VirtualNodeRole: ""})}
	v, notes, err = Choose(Values{}, Values{Marker: ptr.To(true)}, own, false, "v0.2.0")
	require.NoError(t, err)
	assert.True(t, *v.VirtualNodes && *v.Marker, "its nodes are Lodestone's own")
	assert.Empty(t, notes)
	v, _, err = Choose(Values{VirtualNodes: ptr.To(true)}, Values{}, liqo, false, "v0.2.0")
	require.NoError(t, err)
	assert.True(t, *v.VirtualNodes, "whoever says it knows better")

	v, _, err = Choose(Values{}, Values{Scheduler: Second, Monitoring: ptr.To(false)}, kubeadm(), true, "v0.2.0")
	require.NoError(t, err)
	assert.Equal(t, Values{Registry: DefaultRegistry, Tag: "v0.2.0"}, v, "an agent has no scheduler")
}

func TestOpenShiftIsGivenItsConstraints(t *testing.T) {
	openShift := Facts{Version: "v1.35.1", Groups: []string{"config.openshift.io", "security.openshift.io"}, Mutating: true, Validating: true}
	for _, remote := range []bool{false, true} {
		v, _, err := Choose(Values{}, Values{}, openShift, remote, "v0.2.0")
		require.NoError(t, err)
		assert.True(t, *v.OpenShift)
		v, _, err = Choose(Values{OpenShift: ptr.To(false)}, Values{}, openShift, remote, "v0.2.0")
		require.NoError(t, err)
		assert.False(t, *v.OpenShift, "moves without root are enough there")
	}
}

func TestPodsAreMarkedWhereNothingStumblesOverIt(t *testing.T) {
	chosen := Values{Scheduler: Extender}
	liqo, scaled := kubeadm(), kubeadm()
	liqo.Nodes = []corev1.Node{node("", map[string]string{"liqo.io/type": "virtual-node"})}
	scaled.Autoscaler = true
	for name, row := range map[string]struct {
		v     Values
		facts Facts
		why   string
	}{
		"kubeadm":                          {chosen, kubeadm(), ""},
		"a second scheduler":               {Values{Scheduler: Second}, kubeadm(), "does not know the marker"},
		"nodes of Liqo":                    {chosen, liqo, "another virtual kubelet"},
		"Cluster Autoscaler":               {chosen, scaled, "Cluster Autoscaler runs here"},
		"Cluster Autoscaler that was told": {Values{Scheduler: Extender, Marker: ptr.To(true)}, scaled, ""},
		"whoever wants none":               {Values{Scheduler: Extender, Marker: ptr.To(false)}, kubeadm(), "was chosen"},
	} {
		got := cannotMark(row.v, row.facts)
		assert.Contains(t, got, row.why, name)
		assert.Equal(t, row.why == "", got == "", name)
	}

	marked := Values{Marker: ptr.To(true)}
	v, notes, err := Choose(Values{}, marked, kubeadm(), false, "v0.2.0")
	require.NoError(t, err)
	assert.True(t, *v.Marker, "what was begun stays")
	assert.Empty(t, notes)
	v, notes, err = Choose(Values{}, marked, liqo, false, "v0.2.0")
	require.NoError(t, err)
	assert.Nil(t, v.Marker)
	assert.Contains(t, notes[1], "--configure-scheduler again")
	v, notes, err = Choose(Values{Scheduler: Second}, marked, kubeadm(), false, "v0.2.0")
	require.NoError(t, err)
	assert.Nil(t, v.Marker)
	assert.NotContains(t, notes[1], "--configure-scheduler", "no kube-scheduler of the control plane asks")
	_, _, err = Choose(marked, Values{}, liqo, false, "v0.2.0")
	assert.ErrorContains(t, err, "leave marker out")
	v, _, err = Choose(marked, Values{}, kubeadm(), true, "v0.2.0")
	require.NoError(t, err)
	assert.Nil(t, v.Marker, "a remote cluster marks no pods of its own")
}

func TestASecondRunKeepsWhatWasChosenButTheVersion(t *testing.T) {
	recorded := Values{Registry: "registry.example.com/l", Tag: "v0.1.0", Scheduler: Second, KubeScheduler: "v1.35.1",
		Replicas:     ptr.To(int32(1)),
		VirtualNodes: ptr.To(false), NodeSelector: map[string]string{"pool": "system"}}
	v, _, err := Choose(Values{}, recorded, kubeadm(), false, "v0.2.0")
	require.NoError(t, err)
	assert.Equal(t, Values{Registry: "registry.example.com/l", Tag: "v0.2.0", Scheduler: Second, KubeScheduler: "v1.36.3",
		Replicas: ptr.To(int32(1)), VirtualNodes: ptr.To(false), NodeSelector: map[string]string{"pool": "system"}, Monitoring: ptr.To(false),
		Admission: Policies}, v)

	v, _, err = Choose(Values{Scheduler: Extender, NodeSelector: map[string]string{}}, recorded, kubeadm(), false, "v0.0.0-dev.abc")
	require.NoError(t, err)
	assert.Equal(t, Extender, v.Scheduler)
	assert.Equal(t, ByJob, v.Certificates)
	assert.Empty(t, v.KubeScheduler)
	assert.Empty(t, v.NodeSelector)
	assert.Equal(t, "v0.1.0", v.Tag, "a plugin of no release has no images of its own")
}

func TestWhatCannotBeInstalledIsRefusedInWords(t *testing.T) {
	for name, row := range map[string]struct {
		given  Values
		change func(*Facts)
		remote bool
		want   string
	}{
		"policies before 1.36": {given: Values{Admission: Policies}, change: func(f *Facts) { f.Mutating = false },
			want: "so that a webhook does their work"},
		"home before 1.30":       {change: func(f *Facts) { f.Validating = false }, want: "no ValidatingAdmissionPolicies"},
		"remote before 1.30":     {change: func(f *Facts) { f.Validating = false }, remote: true, want: "no ValidatingAdmissionPolicies"},
		"constraints of nobody":  {given: Values{OpenShift: ptr.To(true)}, want: "serves no SecurityContextConstraints"},
		"certificates of nobody": {given: Values{Certificates: ByCertManager}, want: "cert-manager is not installed"},
		"monitoring by nobody":   {given: Values{Monitoring: ptr.To(true)}, want: "Prometheus Operator is not installed"},
		"the network without nodes": {given: Values{Network: ptr.To(true), VirtualNodes: ptr.To(false)},
			want: "give --network=false to take it away"},
		"services without nodes": {given: Values{Services: ptr.To(true), VirtualNodes: ptr.To(false)}, want: "give --services=false"},
		"services of nobody":     {given: Values{Services: ptr.To(true)}, want: "serve ServiceExports of multicluster.x-k8s.io/v1beta1"},
		"services of nobody there": {given: Values{Services: ptr.To(true)}, remote: true,
			want: "does not serve ServiceExports of multicluster.x-k8s.io/v1beta1"},
		"profiles of nobody":        {given: Values{ClusterProfiles: ptr.To(true)}, want: "does not serve ClusterProfiles"},
		"a version that names none": {given: Values{Scheduler: Second}, change: func(f *Facts) { f.Version = "main" }, want: "names no version"},
	} {
		facts := kubeadm()
		if row.change != nil {
			row.change(&facts)
		}
		_, _, err := Choose(row.given, Values{}, facts, row.remote, "v0.2.0")
		assert.ErrorContains(t, err, row.want, name)
	}
	_, _, err := Choose(Values{}, Values{}, kubeadm(), false, "v0.0.0-dev.abc")
	assert.ErrorContains(t, err, "say which images to take")
}

func TestWhatComponentsTakeIsSaid(t *testing.T) {
	all := Values{Network: ptr.To(true), Services: ptr.To(true), ClusterProfiles: ptr.To(true)}
	facts := kubeadm()
	facts.ServiceExports, facts.ClusterProfiles = true, true
	v, notes, err := Choose(all, Values{}, facts, false, "v0.2.0")
	require.NoError(t, err)
	assert.True(t, *v.Network && *v.Services && *v.ClusterProfiles)
	require.Len(t, notes, 2)
	assert.Contains(t, notes[0], "kubectl label node NODE lodestone.dev/gateway=enabled")
	assert.Contains(t, notes[1], "docs/services.md#names")

	gateway := facts
	gateway.Nodes = []corev1.Node{node("", map[string]string{keys.Gateway: keys.GatewayEnabled})}
	gateway.Corefile = ".:53 {\n  rewrite stop name regex ^(.*)\\.svc\\.clusterset\\.local\\.$ mcs-{1}\n}"
	_, notes, err = Choose(all, Values{}, gateway, false, "v0.2.0")
	require.NoError(t, err)
	assert.Empty(t, notes)
	gateway.Groups = []string{constraints}
	_, notes, err = Choose(all, Values{}, gateway, false, "v0.2.0")
	require.NoError(t, err)
	assert.Contains(t, notes[0], "no SecurityContextConstraints of Lodestone's admit the network program")

	later, _, err := Choose(Values{Services: ptr.To(false)}, v, facts, false, "v0.2.1")
	require.NoError(t, err)
	assert.True(t, *later.Network && *later.ClusterProfiles, "what was chosen stays")
	assert.False(t, *later.Services)
	there, notes, err := Choose(all, Values{}, facts, true, "v0.2.0")
	require.NoError(t, err)
	assert.True(t, *there.Network && *there.Services)
	assert.Nil(t, there.ClusterProfiles, "an agent shows no clusters")
	assert.Len(t, notes, 2, "a remote cluster has gateways and names, too")
}

func TestWhoFindsNamesOfSharedServices(t *testing.T) {
	for corefile, finds := range map[string]bool{
		"": false, ".:53 {\n  kubernetes cluster.local\n}": false, "rewrite name a.example.com b": false,
		"# rewrite stop name regex clusterset": false, "rewrite stop name regex ^x\\.clusterset\\.local\\.$ y": true,
		"clusterset.local {\n  multicluster clusterset.local\n}": true,
	} {
		assert.Equal(t, finds, FindsShared(corefile), corefile)
	}
}

func TestANetworkRunsWhenItIsOnAllNodes(t *testing.T) {
	for name, row := range map[string]struct {
		change func(*appsv1.DaemonSet)
		want   string
	}{
		"all":                     {func(*appsv1.DaemonSet) {}, ""},
		"not seen yet":            {func(d *appsv1.DaemonSet) { d.Status.ObservedGeneration = 1 }, "it is not seen yet"},
		"one is old":              {func(d *appsv1.DaemonSet) { d.Status.UpdatedNumberScheduled = 2 }, "it is ready on 2 of 3 nodes"},
		"one is not available":    {func(d *appsv1.DaemonSet) { d.Status.NumberAvailable = 1 }, "it is ready on 1 of 3 nodes"},
		"there is no node for it": {func(d *appsv1.DaemonSet) { d.Status = appsv1.DaemonSetStatus{ObservedGeneration: 2} }, ""},
	} {
		d := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Generation: 2}, Status: appsv1.DaemonSetStatus{ObservedGeneration: 2,
			DesiredNumberScheduled: 3, UpdatedNumberScheduled: 3, NumberAvailable: 3}}
		row.change(d)
		assert.Equal(t, row.want, rolloutOnNodes(d), name)
	}
}

func TestVersionsOfReleases(t *testing.T) {
	for version, want := range map[string]bool{
		"v0.1.0": true, "v1.0.0": true, "v0.0.1": true, "v0.1.0-rc.1": true,
		"v0.0.0-dev.0123456789ab": false, "v0.0.0": false, "v0.1.0-dirty": false, "v0.1.0-3-gabc": false, "main": false,
	} {
		assert.Equal(t, want, released.MatchString(version), version)
	}
}

func TestTheRecordIsReadAsItWasWritten(t *testing.T) {
	for _, r := range []reference{
		{kind: appsv1.SchemeGroupVersion.WithKind("Deployment"), namespace: "n", name: "d"},
		{kind: corev1.SchemeGroupVersion.WithKind("Namespace"), name: "n"},
	} {
		got, err := parseLine(r.line())
		require.NoError(t, err)
		assert.Equal(t, r, got)
	}
	for _, line := range []string{"", "v1 Namespace n", "a/b/c Kind - n"} {
		_, err := parseLine(line)
		assert.Error(t, err, line)
	}
	_, err := parseRecord(&corev1.ConfigMap{Data: map[string]string{"values.yaml": "tag: [v1]"}})
	assert.ErrorContains(t, err, "delete it to install anew")
	r, err := parseRecord(&corev1.ConfigMap{Data: map[string]string{"values.yaml": "tag: v1\nofTheNext: true"}})
	require.NoError(t, err, "an older plugin goes back from a newer one")
	assert.Equal(t, "v1", r.values.Tag)
}

func TestOnlyWhatIsWantedNoMoreIsRemoved(t *testing.T) {
	named := func(kind, name string) reference {
		return reference{kind: corev1.SchemeGroupVersion.WithKind(kind), name: name}
	}
	newer := named("Secret", "kept")
	newer.kind.Version = "v2"
	had := []reference{named("Secret", "kept"), named("Secret", "old"), named("Namespace", "old"), named("CustomResourceDefinition", "old"),
		named("StorageClass", "old")}
	assert.Equal(t, []reference{named("Secret", "old")}, removable(had, []reference{newer}))
}

func object(kind, name, component string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	o.SetKind(kind)
	o.SetName(name)
	o.SetLabels(map[string]string{"app.kubernetes.io/component": component})
	return o
}

func TestWhatConfinesProgramsComesBeforeThem(t *testing.T) {
	deployment, policy := object("Deployment", "agent", "remote-agent"), object("ValidatingAdmissionPolicy", "homes", "")
	account := object("ServiceAccount", "agent", "remote-agent")
	all := []*unstructured.Unstructured{deployment, account, policy}
	assert.Equal(t, [][]*unstructured.Unstructured{{account, policy, deployment}}, phases(all, false))
	assert.Equal(t, [][]*unstructured.Unstructured{{deployment, account}, {policy}}, phases(all, true), "an agent that runs is replaced first")
}

func TestAProgramRunsWhenAllItsPodsAreNew(t *testing.T) {
	deployment := func(change func(*appsv1.Deployment)) *appsv1.Deployment {
		d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Generation: 2}, Spec: appsv1.DeploymentSpec{Replicas: ptr.To(int32(2))},
			Status: appsv1.DeploymentStatus{ObservedGeneration: 2, Replicas: 2, UpdatedReplicas: 2, AvailableReplicas: 2}}
		change(d)
		return d
	}
	for name, row := range map[string]struct {
		change func(*appsv1.Deployment)
		done   bool
	}{
		"all":                    {func(*appsv1.Deployment) {}, true},
		"not seen yet":           {func(d *appsv1.Deployment) { d.Status.ObservedGeneration = 1 }, false},
		"one is old":             {func(d *appsv1.Deployment) { d.Status.UpdatedReplicas = 1 }, false},
		"one is not available":   {func(d *appsv1.Deployment) { d.Status.AvailableReplicas = 1 }, false},
		"an old one is not gone": {func(d *appsv1.Deployment) { d.Status.Replicas = 3 }, false},
	} {
		state, done := rollout(deployment(row.change))
		assert.Equal(t, row.done, done, name)
		assert.Equal(t, row.done, state == "", name)
	}
}

func TestWhyAPodWaitsIsSaid(t *testing.T) {
	pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}}
	waits := func(reason string) []corev1.Pod {
		p := pod
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{
			Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: "because"}}}}
		return []corev1.Pod{p}
	}
	assert.Empty(t, stuck(waits("ContainerCreating")))
	assert.Equal(t, "pod p: ImagePullBackOff: because", stuck(waits("ImagePullBackOff")))
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: "no nodes"}}
	assert.Equal(t, "pod p: no nodes", stuck([]corev1.Pod{pod}))
}
