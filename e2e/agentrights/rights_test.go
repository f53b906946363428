// Package agentrights tests that the roles of the remote agent and of the virtual node
// program give what is used and no more, as package rights does for the others.
package agentrights

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/must"
	"github.com/lodestone-storage/lodestone/e2e/roles"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	agent "github.com/lodestone-storage/lodestone/remoteagent/app"
	virtualnode "github.com/lodestone-storage/lodestone/virtualnode/app"
)

// bed is empty without control planes, so that tests get as far as to skip.
var (
	bed    = &fabric.Fabric{}
	homeID string
)

func TestMain(m *testing.M) {
	testbed.Main(m, func(ctx context.Context) (err error) {
		if bed, err = fabric.Start(ctx, fabric.Options{ControllerManagerQPS: 500, AuditAll: true, Agent: true, VirtualNode: true}); err != nil {
			return err
		}
		if homeID, err = bed.HomeID(ctx); err != nil {
			return err
		}
		if _, err := bed.StartProvisioner(ctx); err != nil {
			return err
		}
		if _, err := bed.StartExtender(ctx); err != nil {
			return err
		}
		if _, err := bed.StartAgent(ctx, func(c *agent.Config) { c.LeaderElect, c.LeaseDuration = true, 4*time.Second }); err != nil {
			return err
		}
		if _, err := bed.StartVirtualNode(ctx, func(c *virtualnode.Config) { c.LeaderElect, c.LeaseDuration = true, 4*time.Second }); err != nil {
			return err
		}
		if err := bed.Admit(ctx, limit("10")); err != nil {
			return err
		}
		return bed.AwaitNode(ctx, fabric.WestNode, corev1.ConditionTrue)
	})
}

// limit has the namespaces of a home cluster have quotas and limits, and offers as
// many CPUs as claims.
func limit(claims string) func(*remotev1alpha1.HomeCluster) {
	return func(home *remotev1alpha1.HomeCluster) {
		home.Spec.Offer = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(claims)}
		home.Spec.Namespaces.Quota = corev1.ResourceList{corev1.ResourcePersistentVolumeClaims: resource.MustParse(claims)}
		home.Spec.Namespaces.Limits = []corev1.LimitRangeItem{{
			Type: corev1.LimitTypeContainer, Default: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("64Mi")}}}
	}
}

// TestEachRightOfTheAgentAndTheVirtualNodeIsUsedAndNoneIsMissing goes through the life
// of pods and their volumes in west, up to the end of the peering, and then reads what
// the API servers noted.
func TestEachRightOfTheAgentAndTheVirtualNodeIsUsedAndNoneIsMissing(t *testing.T) {
	testbed.Require(t)
	namespace := "rights-" + rand.String(6)
	apply(t, bed.Home, needs, namespace)
	run(t, namespace, "db", func(pod *corev1.Pod) {
		pod.Annotations = map[string]string{keys.Token: "vault"}
		pod.Spec.Containers[0].EnvFrom = []corev1.EnvFromSource{
			{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "settings"}}},
			{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "password"}}},
		}
	}, "data")
	// The kubelet API of the node is asked, by somebody who may not.
	ask(t)

	kubectl(t, bed.Home, "label", "pod", "-n", namespace, "db", "tier=first")
	await.Until(t, "the label arrives", func() bool { return pod(t, bed.West, namespace, "db").Labels["tier"] == "first" })
	// A pod that names its node is refused, and told so.
	must.Create(t, bed.Home.Client().CoreV1().Pods(namespace), named(fabric.NewPod(namespace, "named")))
	await.Event(t, bed.Home.Client(), namespace, "named", "NotScheduled")
	owned(t, namespace)
	kubectl(t, bed.Home, "delete", "pod", "-n", namespace, "db", "--wait=false")
	await.Until(t, "the pod is gone in both clusters", func() bool {
		return pod(t, bed.Home, namespace, "db") == nil && pod(t, bed.West, namespace, "db") == nil
	})
	kubectl(t, bed.West, "delete", "pvc", "-n", namespace, "data", "--wait=false")
	await.Event(t, bed.West.Client(), namespace, "data", "Healed")
	kubectl(t, bed.Home, "delete", "node", fabric.WestNode)
	require.NoError(t, bed.AwaitNode(t.Context(), fabric.WestNode, corev1.ConditionTrue))

	account := keys.TenantPrefix + homeID + ":" + keys.HomeAccount
	tenant := roles.Of(t, bed.West, account)
	end(t, namespace)
	const program, agent = "lodestone-system:lodestone-virtualnode: ", "lodestone-remote:lodestone-remote-agent: "
	t.Run("the virtual node program", func(t *testing.T) {
		roles.Compare(t, bed, bed.Home, roles.Excuses{
			program +
				"get storage.k8s.io/storageclasses": roles.Sometimes("(a pod whose claim is not of a virtual class: e2e/remotepods)"),
			program + "get configmaps": roles.Sometimes("(somebody shows a client certificate to the kubelet API: e2e/virtualnodes)"),
			program + "get pods":       roles.Sometimes("(a pod that no cache shows, before its ShadowPod goes: e2e/remotepods)"),
			program + "patch events":   roles.Sometimes("(an event that comes again is counted up)"),
		}, early, fabric.System+":lodestone-virtualnode")
	})
	t.Run("the remote agent", func(t *testing.T) {
		roles.Compare(t, bed, bed.West, roles.Excuses{
			agent +
				"bind rbac.authorization.k8s.io/clusterroles": roles.Never("(no request: without it the API server refuses to make the bindings)"),
			agent +
				"update remote.lodestone.dev/shadowpods/finalizers": roles.Never("(no request: where API servers check owners that block deletion, " +
				"pods could not be made without it)"),
			agent +
				"get remote.lodestone.dev/shadowpods": roles.Sometimes("(a pod that is made at a later look, as one that starts again: e2e/agent)"),
			agent + "patch pods/resize":              roles.Sometimes("(home resizes a running pod: e2e/remotepods)"),
			agent + "patch pods/ephemeralcontainers": roles.Sometimes("(somebody at home debugs a running pod: e2e/remotepods)"),
			agent + "patch events":                   roles.Sometimes("(an event that comes again is counted up)"),
		}, missing(namespace), "lodestone-remote:lodestone-remote-agent")
	})
	t.Run("home, in west", func(t *testing.T) {
		excuses := roles.Excuses{
			account + ": create serviceaccounts/token":                 roles.Sometimes("(a token that is about to end: provisioner/clusters)"),
			account + ": get storage.k8s.io/volumeattributesclasses":   roles.Sometimes("(a claim with attributes: e2e/rights)"),
			account + ": create discovery.k8s.io/endpointslices":       roles.Sometimes("(endpoints of Services at home: e2e/reflect)"),
			account + ": update discovery.k8s.io/endpointslices":       roles.Sometimes("(endpoints of Services that change: e2e/reflect)"),
			account + ": delete discovery.k8s.io/endpointslices":       roles.Sometimes("(endpoints of Services that go: e2e/reflect)"),
			account + ": update services":                              roles.Sometimes("(Services that change: e2e/reflect)"),
			account + ": delete services":                              roles.Sometimes("(Services that go: e2e/reflect)"),
			account + ": patch remote.lodestone.dev/namespacerequests": roles.Sometimes("(a request of an earlier version: e2e/namespaces)"),
			account + ": list metrics.k8s.io/pods":                     roles.Sometimes("(kubectl top: e2e/virtualnodes)"),
			account + ": get pods/log":                                 roles.Sometimes("(kubectl logs: e2e/virtualnodes)"),
		}
		for _, verb := range []string{"get", "create", "update", "delete"} {
			excuses[account+": "+verb+" network.lodestone.dev/networklinks"] = roles.Sometimes("(pods of both clusters are joined: e2e/kind)")
		}
		for _, what := range []string{"services", "configmaps", "discovery.k8s.io/endpointslices"} {
			excuses[account+": get "+what] = roles.Sometimes("(one that is there already when it is to be made: virtualnode/reflect)")
		}
		for _, stream := range []string{"get pods/exec", "create pods/exec", "get pods/attach", "create pods/attach"} {
			excuses[account+": "+stream] = roles.Sometimes("(kubectl exec and attach, over WebSockets or SPDY: e2e/kind)")
		}
		tenant.Compare(t, bed, bed.West, excuses.Add(roles.Moves.Remote(account)).Add(roles.Snapshots.Remote(account)), missing(namespace))
	})
}

// end ends the pod, its volume, the peering and the tenancy, in this order.
func end(t *testing.T, namespace string) {
	t.Helper()
	run(t, namespace, "last", func(*corev1.Pod) {})
	kubectl(t, bed.Home, "delete", "pvc", "-n", namespace, "data")
	await.Until(t, "its volume is gone", func() bool {
		left := must.List(t, bed.Home.Client().CoreV1().PersistentVolumes(), metav1.ListOptions{LabelSelector: keys.Cluster})
		return len(left.Items) == 0
	}, func() any { return await.Events(t, bed.Home.Client(), namespace) })
	// The node goes, and is drained before.
	kubectl(t, bed.Home, "delete", "remotecluster", "west", "--timeout=60s")
	await.Until(t, "its node is gone", func() bool {
		_, err := bed.Home.Client().CoreV1().Nodes().Get(t.Context(), fabric.WestNode, metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
	left(t)
	must.Delete(t, bed.Agents.HomeClusters(), homeID)
	await.Until(t, "west has nothing of home any more", func() bool {
		_, err := bed.Agents.HomeClusters().Get(t.Context(), homeID, metav1.GetOptions{})
		_, left := bed.West.Client().CoreV1().Namespaces().Get(t.Context(), namespace, metav1.GetOptions{})
		return apierrors.IsNotFound(err) && apierrors.IsNotFound(left)
	}, func() any { return await.Events(t, bed.West.Client(), namespace) })
}

// leftByHome is a namespace that goes while it is in use, as the one of the tests does.
const leftByHome = "left-by-home"

// missing says that nothing that is refused is as it should be, but what is asked while
// a right has just been taken away with the namespace that it was for.
func missing(namespace string) func(fabric.Request) bool {
	return func(q fabric.Request) bool {
		return strings.HasPrefix(q.User.Username, "system:serviceaccount:"+keys.TenantPrefix) &&
			(q.ObjectRef.Namespace == namespace || q.ObjectRef.Namespace == leftByHome)
	}
}

// early says that what is refused is as it should be where a pod is evicted: the API server may not have heard
// yet what the provisioner writes on a namespace, that the node is leaving. The program asks again.
func early(q fabric.Request) bool {
	return q.Verb == "create" && q.What() == "pods/eviction"
}

// needs is a namespace with what a pod needs.
const needs = `
apiVersion: v1
kind: Namespace
metadata: {name: %[1]s, labels: {lodestone.dev/offload: enabled}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: settings, namespace: %[1]s}
data: {color: blue}
---
apiVersion: v1
kind: Secret
metadata: {name: password, namespace: %[1]s}
stringData: {password: secret}
---
apiVersion: v1
kind: Service
metadata: {name: db, namespace: %[1]s}
spec: {selector: {app: db}, ports: [{port: 80}]}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data, namespace: %[1]s}
spec: {storageClassName: lodestone, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
`

func apply(t *testing.T, cluster *testbed.Cluster, manifest, namespace string) {
	t.Helper()
	must.Kubectl(t, cluster, fmt.Sprintf(manifest, namespace), "apply", "-f", "-")
}

func kubectl(t *testing.T, cluster *testbed.Cluster, args ...string) {
	t.Helper()
	must.Kubectl(t, cluster, "", args...)
}

// run runs a pod in west.
func run(t *testing.T, namespace, name string, shape func(*corev1.Pod), claims ...string) {
	t.Helper()
	made := fabric.InWest(fabric.NewPod(namespace, name, claims...))
	made.Labels = map[string]string{"app": name}
	shape(made)
	must.Create(t, bed.Home.Client().CoreV1().Pods(namespace), made)
	await.Until(t, "pod "+name+" runs in west", func() bool {
		here, there := pod(t, bed.Home, namespace, name), pod(t, bed.West, namespace, name)
		return there != nil && here.Status.Phase == corev1.PodRunning
	}, func() any { return await.Events(t, bed.Home.Client(), namespace) })
}

func named(pod *corev1.Pod) *corev1.Pod {
	pod.Spec.NodeName = fabric.WestNode
	return pod
}

// pod returns a pod of a cluster, nil if there is none.
func pod(t *testing.T, cluster *testbed.Cluster, namespace, name string) *corev1.Pod {
	t.Helper()
	return must.Find(t, cluster.Client().CoreV1().Pods(namespace), name)
}

// owned has west's owner give home more, then set no bounds at all, and take the marks
// off what was made for home, which the agent puts on again.
func owned(t *testing.T, namespace string) {
	t.Helper()
	change(t, func(home *remotev1alpha1.HomeCluster) {
		limit("20")(home)
		home.Spec.Namespaces.Limits[0].Default[corev1.ResourceMemory] = resource.MustParse("128Mi")
		home.Spec.Namespaces.PodSecurity = "privileged"
	})
	await.Until(t, "the quota, the limits and the level are those", func() bool {
		quotas, limits := bounds(t, namespace)
		found := must.Get(t, bed.West.Client().CoreV1().Namespaces(), namespace)
		return len(quotas) == 1 && quotas[0].Spec.Hard[corev1.ResourcePersistentVolumeClaims] == resource.MustParse("20") &&
			len(limits) == 1 && limits[0].Spec.Limits[0].Default[corev1.ResourceMemory] == resource.MustParse("128Mi") &&
			found.Labels["pod-security.kubernetes.io/enforce"] == "privileged"
	})
	change(t, func(home *remotev1alpha1.HomeCluster) {
		home.Spec.Namespaces.Quota, home.Spec.Namespaces.Limits = nil, nil
	})
	await.Until(t, "there are no bounds", func() bool {
		quotas, limits := bounds(t, namespace)
		return len(quotas)+len(limits) == 0
	})

	mine := keys.HomeID + "=" + homeID
	kubectl(t, bed.West, "label", "clusterroles,clusterrolebindings", "-l", mine, keys.HomeID+"-")
	kubectl(t, bed.West, "label", "serviceaccounts,rolebindings", "-n", keys.TenantPrefix+homeID, "-l", mine, keys.HomeID+"-")
	await.Until(t, "all is marked again", func() bool {
		marked := must.Kubectl(t, bed.West, "", "get", "clusterroles,clusterrolebindings,serviceaccounts,rolebindings", "-n",
			keys.TenantPrefix+homeID, "-l", mine, "-o", "name")
		return len(marked) > 0
	})
}

func bounds(t *testing.T, namespace string) ([]corev1.ResourceQuota, []corev1.LimitRange) {
	t.Helper()
	quotas := must.List(t, bed.West.Client().CoreV1().ResourceQuotas(namespace))
	limits := must.List(t, bed.West.Client().CoreV1().LimitRanges(namespace))
	return quotas.Items, limits.Items
}

// change changes what home may have.
func change(t *testing.T, change func(*remotev1alpha1.HomeCluster)) {
	t.Helper()
	await.Until(t, "the HomeCluster is changed", func() bool {
		home := must.Get(t, bed.Agents.HomeClusters(), homeID)
		change(home)
		_, err := bed.Agents.HomeClusters().Update(t.Context(), home, metav1.UpdateOptions{})
		return err == nil
	})
}

// left leaves a namespace that home has asked for, and a pod in it: they go with the
// HomeCluster.
func left(t *testing.T) {
	t.Helper()
	const name = leftByHome
	requests := bed.Agents.NamespaceRequests(keys.TenantPrefix + homeID)
	await.Until(t, "the namespace is given", func() bool {
		request, err := requests.Get(t.Context(), name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			// The provisioner, which is about to hear that west is no longer its own, may
			// still take back what nobody at home needs.
			must.Create(t, requests, &remotev1alpha1.NamespaceRequest{
				ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: remotev1alpha1.NamespaceRequestSpec{HomeNamespace: name},
			})
			return false
		}
		require.NoError(t, err)
		return meta.IsStatusConditionTrue(request.Status.Conditions, remotev1alpha1.Ready)
	})
	must.Create(t, bed.Agents.ShadowPods(name), &remotev1alpha1.ShadowPod{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Labels: map[string]string{keys.HomeID: homeID, keys.PodUID: "u1"},
			Finalizers: []string{keys.ShadowPodFinalizer}},
		Spec: remotev1alpha1.ShadowPodSpec{
			Start: true, Home: remotev1alpha1.HomePod{Cluster: homeID, Namespace: name, Name: "web", UID: "u1"},
			Pod: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "app"}}}},
		},
	})
	await.Until(t, "its pod is there", func() bool { return pod(t, bed.West, name, "web") != nil })
}

// ask asks the kubelet API of west's node with the token of an account that has no
// rights there: the program asks home whose it is and what that one may.
func ask(t *testing.T) {
	t.Helper()
	node := must.Get(t, bed.Home.Client().CoreV1().Nodes(), fabric.WestNode)
	guest, err := bed.Home.ServiceAccountConfig(t.Context(), metav1.NamespaceDefault, "default")
	require.NoError(t, err)
	port := node.Status.DaemonEndpoints.KubeletEndpoint.Port
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, fmt.Sprintf("https://127.0.0.1:%d/containerLogs/default/db/app",
		port), nil)
	require.NoError(t, err)
	request.Header.Set("Authorization", "Bearer "+guest.BearerToken)
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}}
	response, err := client.Do(request)
	require.NoError(t, err)
	defer response.Body.Close()
	assert.Equal(t, http.StatusForbidden, response.StatusCode)
}
