package agentrights

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/roles"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

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
	_, err := bed.Home.Client().CoreV1().Pods(namespace).Create(t.Context(), named(fabric.NewPod(namespace, "named")), metav1.CreateOptions{})
	require.NoError(t, err)
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
			program + "get configmaps": roles.Sometimes("(somebody shows a client certificate to the kubelet API: e2e/virtualnodes)"),
			program + "get pods":       roles.Sometimes("(a pod that no cache shows, before its ShadowPod goes: e2e/remotepods)"),
			program + "patch events":   roles.Sometimes("(an event that comes again is counted up)"),
		}, missing(namespace), fabric.System+":lodestone-virtualnode")
	})
	t.Run("the remote agent", func(t *testing.T) {
		roles.Compare(t, bed, bed.West, roles.Excuses{
			agent + "bind rbac.authorization.k8s.io/clusterroles":       roles.Never("(no request: without it the API server refuses to make the bindings)"),
			agent + "update remote.lodestone.dev/shadowpods/finalizers": roles.Never("(no request: where API servers check owners that block deletion, pods could not be made without it)"),
			agent + "get remote.lodestone.dev/shadowpods":               roles.Sometimes("(a pod that is made at a later look, as one that starts again: e2e/agent)"),
			agent + "patch events":                                      roles.Sometimes("(an event that comes again is counted up)"),
		}, missing(namespace), "lodestone-remote:lodestone-remote-agent")
	})
	t.Run("home, in west", func(t *testing.T) {
		excuses := roles.Excuses{
			account + ": create serviceaccounts/token":               roles.Sometimes("(a token that is about to end: provisioner/clusters)"),
			account + ": get storage.k8s.io/volumeattributesclasses": roles.Sometimes("(a claim with attributes: e2e/rights)"),
			account + ": create discovery.k8s.io/endpointslices":     roles.Sometimes("(endpoints of Services at home: e2e/reflect)"),
			account + ": update discovery.k8s.io/endpointslices":     roles.Sometimes("(endpoints of Services that change: e2e/reflect)"),
			account + ": update services":                            roles.Sometimes("(Services that change: e2e/reflect)"),
			account + ": delete services":                            roles.Sometimes("(Services that go: e2e/reflect)"),
			account + ": list metrics.k8s.io/pods":                   roles.Sometimes("(kubectl top: e2e/virtualnodes)"),
			account + ": get pods/log":                               roles.Sometimes("(kubectl logs: e2e/virtualnodes)"),
		}
		for _, what := range []string{"services", "configmaps", "discovery.k8s.io/endpointslices"} {
			excuses[account+": get "+what] = roles.Sometimes("(one that is there already when it is to be made: virtualnode/reflect)")
		}
		for _, stream := range []string{"get pods/exec", "create pods/exec", "get pods/attach", "create pods/attach"} {
			excuses[account+": "+stream] = roles.Sometimes("(kubectl exec and attach, over WebSockets or SPDY: e2e/kind)")
		}
		tenant.Compare(t, bed, bed.West, excuses.Add(roles.Moves.Remote(account)), missing(namespace))
	})
}

// end ends the pod, its volume, the peering and the tenancy, in this order.
func end(t *testing.T, namespace string) {
	t.Helper()
	run(t, namespace, "last", func(*corev1.Pod) {})
	kubectl(t, bed.Home, "delete", "pvc", "-n", namespace, "data")
	await.Until(t, "its volume is gone", func() bool {
		left, err := bed.Home.Client().CoreV1().PersistentVolumes().List(t.Context(), metav1.ListOptions{LabelSelector: keys.Cluster})
		require.NoError(t, err)
		return len(left.Items) == 0
	}, func() any { return await.Events(t, bed.Home.Client(), namespace) })
	// The node goes, and is drained before.
	kubectl(t, bed.Home, "delete", "remotecluster", "west", "--timeout=60s")
	await.Until(t, "its node is gone", func() bool {
		_, err := bed.Home.Client().CoreV1().Nodes().Get(t.Context(), fabric.WestNode, metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
	left(t)
	require.NoError(t, bed.Agents.HomeClusters().Delete(t.Context(), homeID, metav1.DeleteOptions{}))
	await.Until(t, "west has nothing of home any more", func() bool {
		_, err := bed.Agents.HomeClusters().Get(t.Context(), homeID, metav1.GetOptions{})
		_, left := bed.West.Client().CoreV1().Namespaces().Get(t.Context(), namespace, metav1.GetOptions{})
		return apierrors.IsNotFound(err) && apierrors.IsNotFound(left)
	}, func() any { return await.Events(t, bed.West.Client(), namespace) })
}

// missing says that nothing that is refused is as it should be, but what is asked while
// a right has just been taken away with the namespace that it was for.
func missing(namespace string) func(fabric.Request) bool {
	return func(q fabric.Request) bool {
		return strings.HasPrefix(q.User.Username, "system:serviceaccount:"+keys.TenantPrefix) && q.ObjectRef.Namespace == namespace
	}
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
	_, err := cluster.Kubectl(t.Context(), fmt.Sprintf(manifest, namespace), "apply", "-f", "-")
	require.NoError(t, err)
}

func kubectl(t *testing.T, cluster *testbed.Cluster, args ...string) {
	t.Helper()
	_, err := cluster.Kubectl(t.Context(), "", args...)
	require.NoError(t, err)
}

// run runs a pod in west.
func run(t *testing.T, namespace, name string, shape func(*corev1.Pod), claims ...string) {
	t.Helper()
	made := fabric.InWest(fabric.NewPod(namespace, name, claims...))
	made.Labels = map[string]string{"app": name}
	shape(made)
	_, err := bed.Home.Client().CoreV1().Pods(namespace).Create(t.Context(), made, metav1.CreateOptions{})
	require.NoError(t, err)
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
	found, err := cluster.Client().CoreV1().Pods(namespace).Get(t.Context(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	require.NoError(t, err)
	return found
}
