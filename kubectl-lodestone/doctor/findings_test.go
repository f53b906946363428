package doctor

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	registrationv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/install"
	versions "github.com/lodestone-storage/lodestone/kubectl-lodestone/version"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// certificate returns one that ends at a time.
func certificate(t *testing.T, end time.Time) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: end}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

func class(name, provisioner string, change func(*storagev1.StorageClass)) *storagev1.StorageClass {
	c := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: provisioner,
		VolumeBindingMode: ptr.To(storagev1.VolumeBindingWaitForFirstConsumer)}
	if change != nil {
		change(c)
	}
	return c
}

func remote(status metav1.ConditionStatus) v1alpha1.RemoteCluster {
	r := v1alpha1.RemoteCluster{ObjectMeta: metav1.ObjectMeta{Name: "west"}}
	r.Status.StorageClasses = []v1alpha1.OfferedClass{{Name: "fast"}}
	r.Status.Conditions = []metav1.Condition{{Type: v1alpha1.Ready, Status: status, Reason: "NotReachable", Message: "no route"}}
	return r
}

func lease(renewed time.Time) coordinationv1.Lease {
	return coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "n"},
		Spec: coordinationv1.LeaseSpec{RenewTime: ptr.To(metav1.NewMicroTime(renewed))}}
}

func scheduler(command ...string) corev1.Pod {
	return corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "kube-scheduler-n"},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Command: command}}}}
}

// sound is an installation without fault.
func sound(t *testing.T) Facts {
	marked := func(c *storagev1.StorageClass) {
		c.Annotations = map[string]string{"storageclass.kubernetes.io/is-default-class": "true"}
	}
	return Facts{
		Now: now, Server: now, Plugin: "v0.1.0", Managed: true,
		Programs: []versions.Program{{Name: "lodestone-provisioner", Version: "v0.1.0", Ready: 2, Replicas: 2}},
		Home: Installation{State: install.State{Found: true, Recorded: true}, Compared: 30, ServiceExports: true, ClusterProfiles: true,
			Corefile: "rewrite stop name regex clusterset", Gateway: true},
		Policies:     []string{"lodestone-move-gate"},
		Confining:    []string{"lodestone-virtual-volumes"},
		Schedulers:   []corev1.Pod{scheduler("kube-scheduler", "--leader-elect=true")},
		Certificates: map[string][]byte{"server": certificate(t, now.Add(30*24*time.Hour))},
		Asked:        map[string]bool{"a": false, "b": true},
		Classes:      []*storagev1.StorageClass{class("lodestone", keys.Driver, nil), class("disk", "disk.example.com", marked)},
		Remotes:      []v1alpha1.RemoteCluster{remote(metav1.ConditionTrue)},
		Driver:       &storagev1.CSIDriver{Spec: storagev1.CSIDriverSpec{StorageCapacity: ptr.To(true)}},
		Rooms:        []storagev1.CSIStorageCapacity{{StorageClassName: "lodestone"}},
		Nodes: []corev1.Node{{ObjectMeta: metav1.ObjectMeta{Name: "n"},
			Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}}}},
		Leases: []coordinationv1.Lease{lease(now.Add(-5 * time.Second))},
	}
}

// differs has a right at home that differs.
func differs(d install.Difference) func(*Facts) {
	return func(f *Facts) { f.Home.Rights = []install.Difference{d} }
}

// TestTheRemedySuitsWhoInstalled has a command for each way in which roles came into a cluster.
func TestTheRemedySuitsWhoInstalled(t *testing.T) {
	lacks := install.Difference{Object: "ClusterRole x", Lacks: []string{"get pods"}}
	ofHelm, unused := lacks, install.Difference{Object: "RoleBinding n/x", Unused: true}
	ofHelm.Release = "lodestone -n default"
	recorded := Installation{State: install.State{Recorded: true}}
	assert.Contains(t, side{Installation: recorded}.remedy(lacks), "kubectl lodestone install --force-conflicts")
	assert.Contains(t, side{Installation: recorded, flag: " --remote"}.remedy(lacks), "kubectl lodestone install --remote --force-conflicts")
	assert.Contains(t, side{}.remedy(ofHelm), "helm upgrade lodestone -n default")
	assert.Contains(t, side{}.remedy(lacks), "kubectl apply --server-side")
	assert.Contains(t, side{}.remedy(unused), "kubectl delete rolebinding x -n n")
}

func TestRightsThatAreAsTheyAreToBeAreCounted(t *testing.T) {
	f := sound(t)
	assert.Equal(t, ok("30 roles and bindings give what those of this plugin give"), rights(f))
	f.Home = Installation{}
	assert.Equal(t, ok("nothing is installed whose roles could be compared"), rights(f))
}

func TestComponentsThatHaveWhatTheyNeedAreSound(t *testing.T) {
	f := sound(t)
	f.Home.Values = install.Values{Network: ptr.To(true), Services: ptr.To(true), ClusterProfiles: ptr.To(true)}
	assert.Equal(t, ok("what is installed has what it needs: network, services, cluster-profiles"), components(f))
}

func webhook(trusted []byte) []registrationv1.MutatingWebhookConfiguration {
	return []registrationv1.MutatingWebhookConfiguration{{ObjectMeta: metav1.ObjectMeta{Name: "lodestone-move-gate"},
		Webhooks: []registrationv1.MutatingWebhook{{ClientConfig: registrationv1.WebhookClientConfig{
			Service: &registrationv1.ServiceReference{Name: "lodestone-webhook"}, CABundle: trusted}}}}}
}

func TestAWebhookInPlaceOfPoliciesIsSound(t *testing.T) {
	f := sound(t)
	f.Policies, f.Webhooks = nil, webhook([]byte("authority"))
	for _, finding := range Findings(f) {
		assert.Equal(t, OK, finding.Level, finding)
	}
}

func TestAKubeSchedulerThatKnowsTheMarkerIsSound(t *testing.T) {
	f := sound(t)
	f.Policies, f.Schedulers = append(f.Policies, marker), []corev1.Pod{scheduler("kube-scheduler", "--config=/etc/x")}
	for _, finding := range Findings(f) {
		assert.Equal(t, OK, finding.Level, finding)
	}
}

func TestASoundInstallationHasNoFinding(t *testing.T) {
	findings := Findings(sound(t))
	assert.Len(t, findings, len(checks), "each check says what it has seen")
	for _, finding := range findings {
		assert.Equal(t, OK, finding.Level, finding)
		assert.Empty(t, finding.Do, finding)
	}
}

func TestEachFaultIsFound(t *testing.T) {
	for name, row := range map[string]struct {
		change func(*Facts)
		check  string
		level  Level
		says   string
	}{
		"nothing is there":       {func(f *Facts) { f.Programs = nil }, "programs", Problem, "no program of Lodestone"},
		"a program does not run": {func(f *Facts) { f.Programs[0].Ready = 1 }, "programs", Problem, "1 of 2 pods of lodestone-provisioner"},
		"another version":        {func(f *Facts) { f.Programs[0].Version = "v0.0.9" }, "programs", Warning, "lodestone-provisioner v0.0.9"},
		"made by others":         {func(f *Facts) { f.Managed = false }, "manifests", Warning, "were not compared"},
		"a role that is missing": {differs(install.Difference{Object: "ClusterRole lodestone-extender", Absent: true}), "rights", Problem,
			"ClusterRole lodestone-extender is missing"},
		"a role that gives less": {differs(install.Difference{Object: "Role kube-system/lodestone", Lacks: []string{"get secrets"}}), "rights",
			Problem, "Role kube-system/lodestone lacks get secrets, compared with this plugin, v0.1.0"},
		"a role that gives more": {differs(install.Difference{Object: "ClusterRole x", More: []string{"list secrets"}}), "rights", Warning,
			"ClusterRole x gives list secrets too much"},
		"a role that nobody needs": {differs(install.Difference{Object: "ClusterRole x", Unused: true}), "rights", Warning,
			"ClusterRole x is there, and nothing that is installed needs it"},
		"a role there that gives less": {func(f *Facts) {
			f.Remote = []versions.Program{{Name: "lodestone-remote-agent", Version: "v0.1.0", Ready: 2, Replicas: 2}}
			f.There.Rights = []install.Difference{{Object: "ClusterRole lodestone-home", Lacks: []string{"get pods"}}}
		}, "rights", Problem, "ClusterRole lodestone-home in the remote cluster lacks get pods"},
		"roles there that are not read": {func(f *Facts) {
			f.Remote = []versions.Program{{Name: "lodestone-remote-agent", Version: "v0.1.0", Ready: 2, Replicas: 2}}
			f.There.Unread = "you may not"
		}, "rights", Warning, "nothing was compared in the remote cluster: you may not"},
		"a network without gateways": {func(f *Facts) { f.Home.Values.Network, f.Home.Gateway = ptr.To(true), false }, "components", Problem,
			"no node is a gateway of the network"},
		"services without definitions": {func(f *Facts) { f.Home.Values.Services, f.Home.ServiceExports = ptr.To(true), false },
			"components", Problem, "serves no ServiceExports"},
		"services without names": {func(f *Facts) { f.Home.Values.Services, f.Home.Corefile = ptr.To(true), ".:53 {}" }, "components", Warning,
			"CoreDNS has no lines for names below clusterset.local"},
		"profiles without their definition": {func(f *Facts) { f.Home.Values.ClusterProfiles, f.Home.ClusterProfiles = ptr.To(true), false },
			"components", Problem, "the API server serves none"},
		"a network there without gateways": {func(f *Facts) {
			f.Remote = []versions.Program{{Name: "lodestone-remote-agent", Version: "v0.1.0", Ready: 2, Replicas: 2}}
			f.There.Values.Network = ptr.To(true)
		}, "components", Problem, "no node is a gateway of the network in the remote cluster"},
		"a policy is gone": {func(f *Facts) { f.Missing = []string{"Policy p"} }, "manifests", Problem, "missing: Policy p"},
		"a right was changed": {func(f *Facts) { f.Differing = []string{"Role r"} }, "manifests", Problem,
			"not as this version makes them: Role r"},
		"no gate": {func(f *Facts) { f.Policies = []string{"lodestone-tolerations"} }, "admission", Problem, "so moves refuse"},
		"a webhook that is not trusted": {func(f *Facts) { f.Policies, f.Webhooks = nil, webhook(nil) }, "admission", Problem,
			"lodestone-move-gate have no caBundle"},
		"nothing confines programs": {func(f *Facts) { f.Confining = nil }, "admission", Problem, "no ValidatingAdmissionPolicy"},
		"no binding":                {func(f *Facts) { f.Unbound = []string{"p"} }, "admission", Problem, "no binding puts in force: p"},
		"nobody knows the marker": {func(f *Facts) { f.Policies = append(f.Policies, marker) }, "extender", Problem,
			"without a configuration leads: kube-scheduler-n"},
		"nobody uses the second scheduler": {func(f *Facts) {
			f.Asked["b"] = false
			f.Programs = append(f.Programs, versions.Program{Name: "lodestone-scheduler", Version: "v0.1.0", Ready: 2, Replicas: 2})
		}, "extender", Warning, "the second scheduler has asked it nothing"},
		"no certificate yet": {func(f *Facts) { f.Certificates["server"] = nil }, "certificates", Problem, "has no certificate"},
		"one ends": {func(f *Facts) { f.Certificates["server"] = certificate(t, now.Add(24*time.Hour)) }, "certificates", Problem,
			"ends at 2026-01-03T03:04:05Z"},
		"the extender is away": {func(f *Facts) { f.Asked = nil }, "extender", Problem, "no replica"},
		"nobody asks it":       {func(f *Facts) { f.Asked["b"] = false }, "extender", Warning, "no kube-scheduler has asked it"},
		"no virtual class":     {func(f *Facts) { f.Classes = f.Classes[1:] }, "classes", Problem, "no virtual class"},
		"no real class":        {func(f *Facts) { f.Classes = f.Classes[:1] }, "classes", Problem, "no real class"},
		"no default class":     {func(f *Facts) { f.Classes[1].Annotations = nil }, "classes", Problem, "none is the default"},
		"an immediate class":   {func(f *Facts) { f.Classes[0].VolumeBindingMode = nil }, "classes", Problem, "cannot be used"},
		"no room is known":     {func(f *Facts) { f.Rooms = nil }, "capacity", Problem, "room of class lodestone"},
		"a cluster is away":    {func(f *Facts) { f.Remotes[0] = remote(metav1.ConditionFalse) }, "clusters", Problem, "NotReachable"},
		"a cluster's virtual node takes no pods": {func(f *Facts) {
			f.Remotes[0].Status.Conditions = append(f.Remotes[0].Status.Conditions, metav1.Condition{
				Type: v1alpha1.VirtualNode, Status: metav1.ConditionFalse, Reason: "NoEndpoint", Message: "nobody answers"})
		}, "clusters", Problem, "the virtual node of remote cluster west takes no pods (NoEndpoint): nobody answers"},
		"a cluster's credentials end": {func(f *Facts) {
			f.Remotes[0].Status.Conditions = append(f.Remotes[0].Status.Conditions, metav1.Condition{
				Type: v1alpha1.CredentialsValid, Status: metav1.ConditionTrue, Reason: "RenewalFailed", Message: "the token is valid until noon only"})
		}, "clusters", Warning, "will be lost to home: the token is valid until noon only"},
		"no agent is there": {func(f *Facts) { f.Remote = []versions.Program{} }, "agents", Problem, "the remote agent is not installed"},
		"the agent does not run": {func(f *Facts) {
			f.Remote = []versions.Program{{Name: "lodestone-remote-agent", Version: "v0.1.0", Replicas: 2}}
		}, "agents", Problem, "0 of 2 pods of lodestone-remote-agent are ready in the remote cluster"},
		"an agent of long ago": {func(f *Facts) {
			f.Programs[0].Image = "lodestone-provisioner:v0.3.0"
			f.Programs[0].Version, f.Plugin = "v0.3.0", "v0.3.0"
			f.Remote = []versions.Program{{Name: "lodestone-remote-agent", Image: "lodestone-remote-agent:v0.1.0", Version: "v0.1.0", Ready: 2,
				Replicas: 2}}
		}, "agents", Warning, "the remote agent v0.1.0 and home's programs v0.3.0 are more than one minor version apart"},
		"a cluster is not read": {func(f *Facts) { f.Remotes[0].Status.Conditions = nil }, "clusters", Problem, "nothing is known"},
		"a class for a cluster that is not there": {func(f *Facts) { f.Classes[0].Parameters = map[string]string{keys.Clusters: "west, mars"} },
			"names", Warning, `storage class lodestone lists cluster "mars" in parameter lodestone.dev/clusters`},
		"a real class for a cluster that is not there": {func(f *Facts) {
			f.Classes[0].Parameters = map[string]string{keys.RemoteClass + ".mars": "disk", keys.RemoteClass + ".west": "later"}
		}, "names", Warning, `there is no RemoteCluster "mars"`},
		"a local class that is not there": {func(f *Facts) { f.Classes[0].Parameters = map[string]string{keys.LocalClass: "dsik"} },
			"names", Warning, `names "dsik" in parameter lodestone.dev/local-class, and home has no such real class`},
		"an empty local class": {func(f *Facts) {
			f.Classes[0].Parameters = map[string]string{keys.LocalClass: "", keys.Clusters: "mars"}
		}, "names", Warning, "mars"},
		"a choice that is nowhere": {func(f *Facts) { f.Classes[0].Parameters = map[string]string{keys.Classes: "disk,fast,slow"} },
			"names", Warning, `lists "slow" in parameter lodestone.dev/classes, and no cluster has such a real class`},
		"a namespace that is opened by another word": {func(f *Facts) {
			f.Namespaces = []corev1.Namespace{{ObjectMeta: metav1.ObjectMeta{Name: "shop", Labels: map[string]string{keys.Offload: "yes"}}}}
		}, "names", Warning, "namespace shop has label lodestone.dev/offload=yes, which does not open it"},
		"a namespace that wants home's API by another word": {func(f *Facts) {
			f.Namespaces = []corev1.Namespace{{ObjectMeta: metav1.ObjectMeta{Name: "shop", Labels: map[string]string{keys.HomeAPI: "true"}}}}
		}, "names", Warning, "namespace shop has label lodestone.dev/home-api=true"},
		"a namespace with a scheduler of another word": {func(f *Facts) {
			f.Namespaces = []corev1.Namespace{{ObjectMeta: metav1.ObjectMeta{Name: "shop", Labels: map[string]string{keys.Scheduler: "second"}}}}
		}, "names", Warning, "namespace shop has label lodestone.dev/scheduler=second"},
		"a namespace for a cluster that is not there": {func(f *Facts) {
			f.Namespaces = []corev1.Namespace{{ObjectMeta: metav1.ObjectMeta{Name: "shop",
				Labels:      map[string]string{keys.Offload: keys.OffloadEnabled},
				Annotations: map[string]string{keys.OffloadClusters: "home,west,mars"}}}}
		}, "names", Warning, `namespace shop is open to cluster "mars"`},
		"routed without ranges": {func(f *Facts) { f.Remotes[0].Spec.PodNetwork = v1alpha1.Routed }, "networks", Problem, "no pod ranges"},
		"a fabric of which nothing is known": {func(f *Facts) { f.Remotes[0].Spec.PodNetwork = v1alpha1.Fabric }, "networks", Problem,
			"nothing is known of the network"},
		"a fabric that does not work": {func(f *Facts) {
			f.Remotes[0].Spec.PodNetwork = v1alpha1.Fabric
			f.Remotes[0].Status.Conditions = append(f.Remotes[0].Status.Conditions, metav1.Condition{Type: v1alpha1.NetworkReady,
				Status: metav1.ConditionFalse, Reason: "NoLane", Message: "no gateway answers"})
		}, "networks", Problem, "no gateway answers"},
		"a wrong clock here":   {func(f *Facts) { f.Now = now.Add(time.Minute) }, "clocks", Warning, "1m apart"},
		"a node's clock ahead": {func(f *Facts) { f.Leases[0] = lease(now.Add(time.Minute)) }, "clocks", Warning, "node n is 1m ahead"},
		"a silent node":        {func(f *Facts) { f.Leases[0] = lease(now.Add(-time.Hour)) }, "clocks", Warning, "1h ago"},
		"no right": {func(f *Facts) { f.Unread = map[string]string{"certificates": "you may not get secrets"} }, "certificates", Warning,
			"it was not checked: you may not get secrets"},
	} {
		f := sound(t)
		row.change(&f)
		var found []Finding
		for _, finding := range Findings(f) {
			if finding.Level != OK {
				found = append(found, finding)
			}
		}
		if assert.Len(t, found, 1, name) {
			assert.Equal(t, row.check, found[0].Check, name)
			assert.Equal(t, row.level, found[0].Level, name)
			assert.Contains(t, found[0].Says, row.says, name)
			assert.NotEmpty(t, found[0].Do, name)
			assert.NotRegexp(t, `(^|[^(])docs/`, found[0].Do, "a page only adds to what is to be done")
		}
	}
}

// kept is a VolumeReplica with an RPO of 15 minutes whose newest version is so old; 0: it has none.
func kept(name string, age time.Duration, status metav1.ConditionStatus, reason string) v1alpha1.VolumeReplica {
	r := v1alpha1.VolumeReplica{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name},
		Spec: v1alpha1.VolumeReplicaSpec{Claims: []string{"data"}, Standbys: []v1alpha1.ReplicaStandby{{Cluster: "east"}},
			Paused: reason == "Paused"},
		Status: v1alpha1.VolumeReplicaStatus{Conditions: []metav1.Condition{{Type: v1alpha1.ReplicaHealthy, Status: status, Reason: reason,
			Message: "this is why"}}, Standbys: []v1alpha1.ReplicaStandbyStatus{{Cluster: "east"}}}}
	if age > 0 {
		r.Status.Standbys[0].Sealed = &metav1.Time{Time: now.Add(-age)}
	}
	return r
}

func TestReplicasThatAreLateOrRefusedAreFound(t *testing.T) {
	well := kept("well", time.Minute, metav1.ConditionTrue, "Sealed")
	const late = ", with an RPO of 15m in cluster east (Late): the newest version is older than the RPO of 15m"
	for name, row := range map[string]struct {
		replica v1alpha1.VolumeReplica
		level   Level
		says    string
	}{
		"all is well":  {well, OK, "of 2 VolumeReplicas none is late, suspect or refused"},
		"it is paused": {kept("r", time.Hour, metav1.ConditionFalse, "Paused"), OK, "of 2 VolumeReplicas none is late, suspect or refused"},
		"it has begun": {kept("r", 0, metav1.ConditionFalse, "Seeding"), OK, "of 2 VolumeReplicas none is late, suspect or refused"},
		"it is a little late": {kept("r", 20*time.Minute, metav1.ConditionTrue, "Sealed"), Warning,
			"VolumeReplica shop/r has a copy that is 20m old" + late},
		"it is very late": {kept("r", time.Hour, metav1.ConditionTrue, "Sealed"), Problem,
			"VolumeReplica shop/r has a copy that is 60m old" + late},
		"it is refused": {kept("r", 0, metav1.ConditionFalse, "NoSnapshots"), Problem,
			"VolumeReplica shop/r has no sealed version in cluster east (NoSnapshots): this is why"},
	} {
		t.Run(name, func(t *testing.T) {
			found := replicas(Facts{Now: now, Replicas: []v1alpha1.VolumeReplica{well, row.replica}})
			require.Len(t, found, 1)
			assert.Equal(t, row.level, found[0].Level)
			assert.Equal(t, row.says, found[0].Says)
		})
	}
	var many []v1alpha1.VolumeReplica
	for i := range 8 {
		many = append(many, kept(fmt.Sprint("r", i), time.Hour, metav1.ConditionTrue, "Sealed"))
	}
	found := replicas(Facts{Now: now, Replicas: many})
	require.Len(t, found, 6)
	assert.Equal(t, "3 more VolumeReplicas are late, suspect or refused", found[5].Says)
}
