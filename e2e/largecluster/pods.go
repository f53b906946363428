package largecluster

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/remoteagent/policy"
	"github.com/lodestone-storage/lodestone/virtualnode/decide"
	"github.com/lodestone-storage/lodestone/virtualnode/node"
	"github.com/lodestone-storage/lodestone/virtualnode/translate"
)

const (
	// PodsPath are the pods at home.
	PodsPath = "/api/v1/namespaces/" + Namespace + "/pods"
	// RemotePodsPath are the pods in remote clusters.
	RemotePodsPath = PodsPath
	// ShadowPodsPath are the ShadowPods there.
	ShadowPodsPath = remotePath + "/namespaces/" + Namespace + "/shadowpods"
	// VirtualNodeIP is the address of all virtual nodes.
	VirtualNodeIP = "127.0.0.1"
	// workloads is how many templates all pods are made from.
	workloads = 100
)

const remotePath = "/apis/remote.lodestone.dev/v1alpha1"

// NewPodHome returns the home cluster of a fleet as the virtual node program sees it: so many
// pods, each on the virtual node of one of the clusters that are served at the given URLs, where it runs.
func NewPodHome(pods int, remotes []string) *Cluster {
	nodes := len(remotes)
	c := newCluster(map[string]*collection{
		NodesPath: {apiVersion: "v1", kind: "Node", size: nodes + Nodes, object: func(j int) runtime.Object {
			if j < nodes {
				return virtualNode(j)
			}
			return nodeObject(10*j + 1)
		}},
		"/api/v1/pods": {apiVersion: "v1", kind: "Pod", size: pods, object: func(i int) runtime.Object { return HomePod(i) }},
		"/api/v1/namespaces": {apiVersion: "v1", kind: "Namespace", size: 1, object: func(int) runtime.Object {
			namespace := namespaceObject(0).(*corev1.Namespace)
			namespace.UID = namespaceUID
			return namespace
		}},
		"/api/v1/namespaces/" + system + "/secrets": {apiVersion: "v1", kind: "Secret", size: nodes, object: func(j int) runtime.Object {
			return secretObject(j, remotes[j])
		}},
		"/apis/lodestone.dev/v1alpha1/remoteclusters": {apiVersion: v1alpha1.GroupVersion.String(), kind: "RemoteCluster", size: nodes,
			object: func(j int) runtime.Object {
				remote := remoteObject(j).(*v1alpha1.RemoteCluster)
				remote.Finalizers = append(remote.Finalizers, keys.VirtualNodeFinalizer)
				return remote
			}},
		"/api/v1/configmaps": {apiVersion: "v1", kind: "ConfigMap"}, "/api/v1/services": {apiVersion: "v1", kind: "Service"},
		"/apis/discovery.k8s.io/v1/endpointslices":                {apiVersion: "discovery.k8s.io/v1", kind: "EndpointSlice"},
		"/apis/certificates.k8s.io/v1/certificatesigningrequests": {apiVersion: "certificates.k8s.io/v1", kind: "CertificateSigningRequest"},
	}, HomeID+"-0000-4000-9000-000000000000")
	c.keep()
	return c
}

// NewPodRemote returns the r-th remote cluster of such a fleet as the virtual node program sees it.
func NewPodRemote(r, pods int) *Cluster {
	share := pods / RemoteClusters
	tenant, ours := remotePath+"/namespaces/"+keys.TenantPrefix+HomeID, "/namespaces/"+Namespace
	c := newCluster(map[string]*collection{
		remotePath + "/homeclusters": {apiVersion: remotev1alpha1.GroupVersion.String(), kind: "HomeCluster", size: 1,
			object: func(int) runtime.Object { return homeCluster(HomeID) }},
		tenant + "/namespacerequests": {apiVersion: remotev1alpha1.GroupVersion.String(), kind: "NamespaceRequest", size: 1,
			object: func(int) runtime.Object { return namespaceRequest(HomeID) }},
		remotePath + ours + "/shadowpods": {apiVersion: remotev1alpha1.GroupVersion.String(), kind: "ShadowPod", size: share,
			object: func(j int) runtime.Object { return shadowOf(HomePod(j*RemoteClusters + r)) }},
		"/api/v1" + ours + "/pods": {apiVersion: "v1", kind: "Pod", size: share,
			object: func(j int) runtime.Object {
				i := j*RemoteClusters + r
				return RemotePod(i, shadowOf(plainPod(i)))
			}},
		"/api/v1" + ours + "/configmaps":                       {apiVersion: "v1", kind: "ConfigMap"},
		"/api/v1" + ours + "/services":                         {apiVersion: "v1", kind: "Service"},
		"/apis/discovery.k8s.io/v1" + ours + "/endpointslices": {apiVersion: "discovery.k8s.io/v1", kind: "EndpointSlice"},
	}, remoteUID(r))
	c.keep()
	return c
}

const namespaceUID = types.UID("00000000-0000-4000-f000-000000000000")

func ready(kind string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: kind, LastTransitionTime: made, ObservedGeneration: 1}
}

func homeCluster(id string) *remotev1alpha1.HomeCluster {
	much := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("10k"), corev1.ResourceMemory: resource.MustParse("100Ti"),
		corev1.ResourcePods: resource.MustParse("100k")}
	return &remotev1alpha1.HomeCluster{
		ObjectMeta: metav1.ObjectMeta{Name: id, UID: types.UID(id + "-0000-4000-9000-00000000000a"), Generation: 1},
		Spec: remotev1alpha1.HomeClusterSpec{ClusterUID: id + "-0000-4000-9000-000000000000",
			Namespaces: remotev1alpha1.NamespacePolicy{Names: []string{"*"}}},
		Status: remotev1alpha1.HomeClusterStatus{ObservedGeneration: 1, Capacity: much, Allocatable: much,
			Conditions: []metav1.Condition{ready(remotev1alpha1.Ready), ready(remotev1alpha1.Connected)},
			Nodes:      remotev1alpha1.NodeSummary{Count: 100, OperatingSystem: "linux", Architecture: "amd64"}},
	}
}

func namespaceRequest(id string) *remotev1alpha1.NamespaceRequest {
	return &remotev1alpha1.NamespaceRequest{
		ObjectMeta: metav1.ObjectMeta{Namespace: keys.TenantPrefix + id, Name: Namespace, UID: types.UID(id + "-0000-4000-9000-00000000000b"),
			Generation: 1},
		Spec: remotev1alpha1.NamespaceRequestSpec{HomeNamespace: Namespace, HomeNamespaceUID: namespaceUID},
		Status: remotev1alpha1.NamespaceRequestStatus{ObservedGeneration: 1, HomeNamespaceUID: namespaceUID,
			Conditions: []metav1.Condition{ready(remotev1alpha1.Ready)}},
	}
}

// virtualNode is the node of the r-th remote cluster, which is ready.
func virtualNode(r int) *corev1.Node {
	found := node.New(remoteName(r), node.Description{Cluster: remoteName(r), Address: VirtualNodeIP, Port: 10250, Version: "v1.36.3",
		Offer: &homeCluster(HomeID).Status, Now: made, State: node.State{Ready: true, Reason: "RemoteReady",
			Message: fmt.Sprintf("pods can run in cluster %s", remoteName(r))}})
	found.UID = types.UID(fmt.Sprintf("00000000-0000-4000-d100-%012d", r))
	return found
}

func podUID(i int) types.UID { return types.UID(fmt.Sprintf("00000000-0000-4000-8100-%012d", i)) }

func shadowUID(i int) types.UID { return types.UID(fmt.Sprintf("00000000-0000-4000-8200-%012d", i)) }

// PodName is that of the i-th pod, which is one of a Deployment.
func PodName(i int) string { return fmt.Sprintf("%s-%05x", replicaSet(i), i) }

func replicaSet(i int) string { return fmt.Sprintf("service-%d-7d9c6b5f4d", i%workloads) }

var made = metav1.Unix(1_700_000_000, 0)

// NewPod is the i-th pod as a scheduler has just bound it to the virtual node of its cluster.
func NewPod(i int) *corev1.Pod {
	w, token := i%workloads, fmt.Sprintf("kube-api-access-%05x", i)
	probe := func(path string) *corev1.Probe {
		return &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: path, Port: intstr.FromInt32(8080),
			Scheme: corev1.URISchemeHTTP}}, TimeoutSeconds: 1, PeriodSeconds: 10, SuccessThreshold: 1, FailureThreshold: 3}
	}
	pod := &corev1.Pod{ObjectMeta: meta(Namespace, PodName(i), i, nil)}
	pod.UID, pod.Generation, pod.GenerateName = podUID(i), 1, replicaSet(i)+"-"
	pod.Labels = map[string]string{"app.kubernetes.io/name": fmt.Sprintf("service-%d", w), "app.kubernetes.io/part-of": "shop",
		"pod-template-hash": "7d9c6b5f4d"}
	pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: replicaSet(i),
		UID: types.UID(fmt.Sprintf("00000000-0000-4000-8300-%012d", w)), Controller: ptr.To(true), BlockOwnerDeletion: ptr.To(true)}}
	container := corev1.Container{
		Name: "service", Image: fmt.Sprintf("registry.example.com/team/service-%d:1.27.3", w), ImagePullPolicy: corev1.PullIfNotPresent,
		Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 8080, Protocol: corev1.ProtocolTCP}},
		Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("128Mi")},
			Limits:   corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("256Mi")}},
		LivenessProbe: probe("/healthz"), ReadinessProbe: probe("/readyz"),
		TerminationMessagePath: corev1.TerminationMessagePathDefault, TerminationMessagePolicy: corev1.TerminationMessageReadFile,
		VolumeMounts: []corev1.VolumeMount{{Name: token, ReadOnly: true, MountPath: "/var/run/secrets/kubernetes.io/serviceaccount"}},
	}
	for v := range 8 {
		container.Env = append(container.Env,
			corev1.EnvVar{Name: fmt.Sprintf("SETTING_%d", v), Value: fmt.Sprintf("value-%d-of-service-%d", v, w)})
	}
	container.Env = append(container.Env, corev1.EnvVar{Name: "POD_NAME",
		ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.name"}}})
	pod.Spec = corev1.PodSpec{
		NodeName: remoteName(i % RemoteClusters), RestartPolicy: corev1.RestartPolicyAlways, DNSPolicy: corev1.DNSClusterFirst,
		TerminationGracePeriodSeconds: ptr.To[int64](30), ServiceAccountName: "default", DeprecatedServiceAccount: "default",
		SecurityContext: &corev1.PodSecurityContext{}, SchedulerName: corev1.DefaultSchedulerName, Priority: ptr.To[int32](0),
		EnableServiceLinks: ptr.To(true), PreemptionPolicy: ptr.To(corev1.PreemptLowerPriority),
		Tolerations: []corev1.Toleration{
			{Key: keys.RemoteTaint, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule},
			{Key: corev1.TaintNodeNotReady, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute,
				TolerationSeconds: ptr.To[int64](300)},
			{Key: corev1.TaintNodeUnreachable, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute,
				TolerationSeconds: ptr.To[int64](300)},
		},
		Volumes: []corev1.Volume{{Name: token, VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
			DefaultMode: ptr.To[int32](420), Sources: []corev1.VolumeProjection{
				{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{ExpirationSeconds: ptr.To[int64](3607), Path: "token"}},
				{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: corev1.LocalObjectReference{Name: "kube-root-ca.crt"},
					Items: []corev1.KeyToPath{{Key: "ca.crt", Path: "ca.crt"}}}},
				{DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{{Path: "namespace",
					FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.namespace"}}}}},
			}}}}},
	}
	if i%2 == 1 {
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: "data", VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: fmt.Sprintf("data-of-%d", i)}}})
		container.VolumeMounts = append(container.VolumeMounts, corev1.VolumeMount{Name: "data", MountPath: "/data"})
	}
	pod.Spec.Containers = []corev1.Container{container}
	pod.Status = corev1.PodStatus{Phase: corev1.PodPending, QOSClass: corev1.PodQOSBurstable,
		Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: made}}}
	return pod
}

// plainPod is the i-th pod with what says where its copy is.
func plainPod(i int) *corev1.Pod {
	pod := NewPod(i)
	pod.Finalizers = []string{keys.RemotePodFinalizer}
	pod.Annotations = map[string]string{
		keys.RemoteCopy: decide.Copy{ClusterUID: types.UID(remoteUID(i % RemoteClusters)), ShadowUID: shadowUID(i),
			Namespace: Namespace}.String(),
		keys.RemoteIP: remoteIP(i),
	}
	return pod
}

// HomePod is the i-th pod, which runs in its cluster.
func HomePod(i int) *corev1.Pod {
	pod := plainPod(i)
	pod.Status = translate.Status(translate.Seen{Home: pod, Remote: RemotePod(i, shadowOf(pod)), HostIP: VirtualNodeIP})
	return pod
}

func remoteIP(i int) string { return fmt.Sprintf("10.%d.%d.%d", 100+i/65536, i/256%256, i%256) }

// shadowOf is the ShadowPod of a home pod, whose pod was made.
func shadowOf(pod *corev1.Pod) *remotev1alpha1.ShadowPod {
	var i int
	if _, err := fmt.Sscanf(string(pod.UID[len(pod.UID)-12:]), "%d", &i); err != nil {
		panic(err) // The pod is none of these.
	}
	shadow := &remotev1alpha1.ShadowPod{
		ObjectMeta: meta(Namespace, pod.Name, i, map[string]string{keys.Pod: Namespace + "/" + pod.Name}),
		Spec: remotev1alpha1.ShadowPodSpec{Start: true, Pod: translate.Template(pod, func(home string) string { return home }, ""),
			Home: remotev1alpha1.HomePod{Cluster: HomeID, Namespace: Namespace, Name: pod.Name, UID: pod.UID}},
		Status: remotev1alpha1.ShadowPodStatus{ObservedGeneration: 1, Phase: remotev1alpha1.ShadowPodCreated, PodUID: remotePodUID(i)},
	}
	shadow.UID, shadow.Generation, shadow.Finalizers = shadowUID(i), 1, []string{keys.ShadowPodFinalizer}
	shadow.Labels = map[string]string{keys.HomeID: HomeID, keys.PodUID: string(pod.UID)}
	return shadow
}

func remotePodUID(i int) types.UID { return types.UID(fmt.Sprintf("00000000-0000-4000-8400-%012d", i)) }

// RemotePod is the pod of the i-th ShadowPod, as it runs.
func RemotePod(i int, shadow *remotev1alpha1.ShadowPod) *corev1.Pod {
	pod := policy.NewPod(shadow, homeCluster(shadow.Spec.Home.Cluster))
	own := meta("", "", i, nil)
	pod.UID, pod.Generation, pod.CreationTimestamp, pod.ManagedFields = remotePodUID(i), 1, own.CreationTimestamp, own.ManagedFields
	pod.Spec.NodeName, pod.Spec.SchedulerName, pod.Spec.Priority = NodeName(i%100), corev1.DefaultSchedulerName, ptr.To[int32](0)
	pod.Spec.PreemptionPolicy, pod.Spec.DeprecatedServiceAccount = ptr.To(corev1.PreemptLowerPriority), "default"
	container := pod.Spec.Containers[0]
	pod.Status = corev1.PodStatus{
		Phase: corev1.PodRunning, QOSClass: corev1.PodQOSBurstable, StartTime: &made, ObservedGeneration: 1,
		HostIP: fmt.Sprintf("10.0.0.%d", i%100), HostIPs: []corev1.HostIP{{IP: fmt.Sprintf("10.0.0.%d", i%100)}},
		PodIP: remoteIP(i), PodIPs: []corev1.PodIP{{IP: remoteIP(i)}},
		ContainerStatuses: []corev1.ContainerStatus{{Name: container.Name, Ready: true, Started: ptr.To(true), Image: container.Image,
			State:       corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: made}},
			ImageID:     fmt.Sprintf("registry.example.com/team/service@sha256:%064x", i%workloads),
			ContainerID: fmt.Sprintf("containerd://%064x", i), Resources: &container.Resources, AllocatedResources: container.Resources.Requests}},
	}
	for _, kind := range []corev1.PodConditionType{corev1.PodReadyToStartContainers, corev1.PodInitialized, corev1.PodReady,
		corev1.ContainersReady, corev1.PodScheduled} {
		pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: kind, Status: corev1.ConditionTrue,
			LastTransitionTime: made, ObservedGeneration: 1})
	}
	return pod
}
