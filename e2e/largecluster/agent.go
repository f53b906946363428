package largecluster

import (
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/deploy/remote/home"
	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/confinement"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/remoteagent/policy"
)

// HomeClusters is how many home clusters a remote cluster serves as its agent sees it.
const HomeClusters = 10

// The i-th pod of such a remote cluster is of the home cluster i % HomeClusters.
func agentHome(i int) string { return fmt.Sprintf("%08d", i%HomeClusters) }

func agentNamespace(id string) string { return Namespace + "-" + id }

// AgentShadowsPath is where the ShadowPod of the i-th pod is.
func AgentShadowsPath(i int) string {
	return remotePath + "/namespaces/" + agentNamespace(agentHome(i)) + "/shadowpods"
}

// NewAgentCluster returns a remote cluster as its agent sees it: its home clusters have so many pods in all, which run,
// every second with a claim. The agent finds no rights of home clusters, and makes them.
func NewAgentCluster(pods int) *Cluster {
	kinds := func(apiVersion, kind string) *collection { return &collection{apiVersion: apiVersion, kind: kind} }
	const rbac = "rbac.authorization.k8s.io/v1"
	c := newCluster(map[string]*collection{
		remotePath + "/homeclusters": {apiVersion: remotev1alpha1.GroupVersion.String(), kind: "HomeCluster", size: HomeClusters,
			object: func(h int) runtime.Object { return agentHomeCluster(agentHome(h)) }},
		remotePath + "/namespacerequests": {apiVersion: remotev1alpha1.GroupVersion.String(), kind: "NamespaceRequest", size: HomeClusters,
			object: func(h int) runtime.Object { return agentRequest(agentHome(h)) }},
		remotePath + "/shadowpods": {apiVersion: remotev1alpha1.GroupVersion.String(), kind: "ShadowPod", size: pods,
			object: func(i int) runtime.Object { return agentShadow(i) }},
		"/api/v1/pods": {apiVersion: "v1", kind: "Pod", size: pods,
			object: func(i int) runtime.Object { return RemotePod(i, agentShadow(i)) }},
		"/api/v1/namespaces": {apiVersion: "v1", kind: "Namespace", size: 2 * HomeClusters, object: agentNamespaceObject},
		NodesPath: {apiVersion: "v1", kind: "Node", size: Nodes, object: func(j int) runtime.Object {
			node := Node(10*j + 1) // one of no other cluster
			node.Name = NodeName(j)
			node.Status.Allocatable = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("16"),
				corev1.ResourceMemory: resource.MustParse("64Gi"), corev1.ResourcePods: resource.MustParse("110")}
			node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
			return node
		}},
		ClaimsPath: {apiVersion: "v1", kind: "PersistentVolumeClaim", size: pods / 2, object: func(j int) runtime.Object {
			claim := backingClaim(2*j + 1)
			claim.Namespace, claim.Labels[keys.HomeID] = agentNamespace(agentHome(2*j+1)), agentHome(2*j+1)
			return claim
		}},
		VolumesPath: {apiVersion: "v1", kind: "PersistentVolume", size: pods / 2,
			object: func(j int) runtime.Object { return realVolume(2*j + 1) }},
		"/apis/storage.k8s.io/v1/storageclasses": {apiVersion: "storage.k8s.io/v1", kind: "StorageClass", size: 1, object: realClassObject},
		"/apis/coordination.k8s.io/v1/leases": {apiVersion: "coordination.k8s.io/v1", kind: "Lease", size: HomeClusters,
			object: func(h int) runtime.Object { return agentLease(agentHome(h)) }},
		"/api/v1/resourcequotas":          kinds("v1", "ResourceQuota"),
		"/api/v1/limitranges":             kinds("v1", "LimitRange"),
		"/api/v1/serviceaccounts":         kinds("v1", "ServiceAccount"),
		"/apis/" + rbac + "/rolebindings": kinds(rbac, "RoleBinding"), "/apis/" + rbac + "/clusterroles": kinds(rbac, "ClusterRole"),
		"/apis/" + rbac + "/clusterrolebindings": kinds(rbac, "ClusterRoleBinding"),
	}, remoteUID(0))
	c.keep()
	c.confine()
	for h := range HomeClusters {
		account := &corev1.ServiceAccount{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ServiceAccount"},
			ObjectMeta: metav1.ObjectMeta{Namespace: agentNamespace(agentHome(h)), Name: "default"}}
		c.remember("/api/v1/namespaces/"+account.Namespace+"/serviceaccounts", account, account)
	}
	return c
}

// confine has the policy that confines home clusters, and enforces it on the marker.
func (c *Cluster) confine() {
	confined, err := confinement.Decode(home.Admission)
	if err != nil {
		panic(err) // The manifest of this repository is wrong.
	}
	const admission = "/apis/admissionregistration.k8s.io/v1/"
	c.remember(admission+"validatingadmissionpolicies", confined.Policy, confined.Policy)
	c.remember(admission+"validatingadmissionpolicybindings", confined.Binding, confined.Binding)
	c.refuses = map[string]*apierrors.StatusError{
		"/api/v1/namespaces/" + policy.MarkerNamespace + "/configmaps": apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"},
			policy.Marker, fmt.Errorf("ValidatingAdmissionPolicy '%[1]s' with binding '%[1]s' denied request", confinement.Name)),
	}
}

func agentHomeCluster(id string) *remotev1alpha1.HomeCluster {
	cluster := homeCluster(id)
	cluster.Finalizers = []string{keys.HomeClusterFinalizer}
	cluster.Spec.Namespaces = remotev1alpha1.NamespacePolicy{Maximum: ptr.To[int32](10)}
	// So each pod is counted against what the owner offers.
	cluster.Spec.Offer = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("10k"), corev1.ResourcePods: resource.MustParse("100k")}
	return cluster
}

func agentRequest(id string) *remotev1alpha1.NamespaceRequest {
	request := namespaceRequest(id)
	request.Name, request.Finalizers = agentNamespace(id), []string{keys.NamespaceFinalizer}
	return request
}

// agentNamespaceObject is the namespace of a home cluster's pods, or for the second half of numbers its tenant namespace.
func agentNamespaceObject(j int) runtime.Object {
	id := agentHome(j)
	cluster := agentHomeCluster(id)
	if j < HomeClusters {
		return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: agentNamespace(id), UID: types.UID("namespace-" + id),
			Labels:      policy.NamespaceLabels(cluster),
			Annotations: policy.NamespaceAnnotations(cluster, agentRequest(id), nil, []string{realClass})}}
	}
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: policy.TenantNamespace(id), UID: types.UID("tenant-" + id),
		Labels: policy.TenantLabels(cluster), Annotations: policy.TenantAnnotations(cluster)}}
}

func agentLease(id string) *coordinationv1.Lease {
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: policy.TenantNamespace(id), Name: keys.HeartbeatLease, Labels: policy.HomeLabels(id),
			UID: types.UID("lease-" + id)},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: ptr.To(id), RenewTime: ptr.To(metav1.NowMicro())},
	}
}

// Beat renews the heartbeats of all home clusters.
func (c *Cluster) Beat() error {
	for h := range HomeClusters {
		lease := agentLease(agentHome(h))
		if err := c.Put("/apis/coordination.k8s.io/v1/namespaces/"+lease.Namespace+"/leases", watch.Modified, lease); err != nil {
			return err
		}
	}
	return nil
}

// BeatInterval is how often home clusters do that.
const BeatInterval = 10 * time.Second

// agentShadow is the i-th ShadowPod, whose pod was made.
func agentShadow(i int) *remotev1alpha1.ShadowPod {
	shadow := shadowOf(plainPod(i))
	id := agentHome(i)
	shadow.Namespace, shadow.Labels[keys.HomeID], shadow.Spec.Home.Cluster = agentNamespace(id), id, id
	return shadow
}

// NewShadow is the i-th ShadowPod as its home cluster has just started it.
func NewShadow(i int) *remotev1alpha1.ShadowPod {
	shadow := agentShadow(i)
	shadow.Finalizers, shadow.Status = nil, remotev1alpha1.ShadowPodStatus{}
	return shadow
}
