package virtualnodes

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/must"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	"github.com/lodestone-storage/lodestone/pkg/clients"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	provisioner "github.com/lodestone-storage/lodestone/provisioner/remote"
)

// listNodes does what the provisioner does for the policy on the program, which does not
// run here.
func listNodes(ctx context.Context) {
	informer := clients.NewRemoteClusterInformer(bed.Remotes)
	go informer.RunWithContext(ctx)
	go func() { _ = provisioner.NewVirtualNodes(bed.Home.Client(), fabric.System, informer).Run(ctx) }()
}

// hostile is a client with the identity of the virtual node program, which may do
// everything in a namespace: only the policy confines it there.
func hostile(t *testing.T, namespace string) *kubernetes.Clientset {
	t.Helper()
	must.Create(t, bed.Home.Client().RbacV1().RoleBindings(namespace), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "hostile"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: fabric.System, Name: "lodestone-virtualnode"}},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"}})
	client, err := kubernetes.NewForConfig(programConfig(t))
	require.NoError(t, err)
	return client
}

func programConfig(t *testing.T) *rest.Config {
	t.Helper()
	config, err := bed.Home.ServiceAccountConfig(t.Context(), fabric.System, "lodestone-virtualnode")
	require.NoError(t, err)
	return config
}

func TestAHostileProgramCanTouchNoPodButThoseOfItsNodesAndLittleOfThem(t *testing.T) {
	namespace := testbed.Namespace(t, bed.Home)
	client := hostile(t, namespace)
	await.Until(t, "the node is listed", func() bool {
		system := must.Get(t, bed.Home.Client().CoreV1().Namespaces(), fabric.System)
		return system.Annotations[keys.VirtualNodes] == "west"
	})
	const keep = "example.com/keep"
	bound(t, namespace, "here", "home-1", keep)
	defer release(t, namespace, "here")
	bound(t, namespace, "there", fabric.WestNode, keep)
	defer release(t, namespace, "there")
	pods := client.CoreV1().Pods(namespace)
	patch := func(pod, body string, subresources ...string) error {
		_, err := pods.Patch(t.Context(), pod, types.StrategicMergePatchType, []byte(body), metav1.PatchOptions{}, subresources...)
		return err
	}
	meta := func(body string) string { return `{"metadata":{` + body + `}}` }
	const phase = `{"status":{"phase":"Failed","reason":"Hostile"}}`

	// What the program does. It takes hold as soon as the API server knows the rights above and the list.
	await.Until(t, "the program may mark its pod", func() bool {
		return patch("there", meta(`"finalizers":["lodestone.dev/remote-pod"]`)) == nil
	})
	require.NoError(t, patch("there", meta(`"annotations":{"lodestone.dev/remote-copy":"a/b/c","lodestone.dev/remote-ip":"10.1.0.1"}`)))
	// The reason alone gives no right to delete a pod that was started, or has no controller.
	require.NoError(t, patch("there", `{"status":{"phase":"Running","reason":"ClaimStaysHome"}}`, "status"))
	require.NoError(t, patch("there", meta(`"annotations":{"lodestone.dev/remote-ip":null}`)))

	const notOurs = "touches only pods on virtual nodes"
	evict := func(pod string, options *metav1.DeleteOptions) error {
		return client.PolicyV1().Evictions(namespace).Evict(t.Context(), &policyv1.Eviction{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: pod}, DeleteOptions: options})
	}
	uid := podNow(t, namespace, "there").UID
	for name, test := range map[string]struct {
		err  error
		says string
	}{
		"the status of a pod at home":    {patch("here", phase, "status"), notOurs},
		"the finalizer on a pod at home": {patch("here", meta(`"finalizers":["lodestone.dev/remote-pod"]`)), notOurs},
		"an annotation of a pod at home": {patch("here", meta(`"annotations":{"lodestone.dev/remote-ip":"10.1.0.1"}`)), notOurs},
		"the end of a pod at home":       {pods.Delete(t.Context(), "here", *metav1.NewDeleteOptions(0)), notOurs},
		"the end of its own pod":         {pods.Delete(t.Context(), "there", *metav1.NewDeleteOptions(0)), "that somebody else began"},
		"all pods": {pods.DeleteCollection(t.Context(), *metav1.NewDeleteOptions(0), metav1.ListOptions{}),
			"virtual node program"},
		"the eviction of a pod":          {evict("here", nil), "is being removed"},
		"the eviction by UID":            {evict("there", metav1.NewPreconditionDeleteOptions(string(uid))), "is being removed"},
		"a label":                        {patch("there", meta(`"labels":{"app":"bank"}`)), "no labels"},
		"a label, with the status":       {patch("there", meta(`"labels":{"app":"bank"}`), "status"), "no labels"},
		"an owner":                       {patch("there", meta(`"ownerReferences":[{"apiVersion":"v1","kind":"Node","name":"n","uid":"u"}]`)), "no owners"},
		"the finalizer of another":       {patch("there", meta(`"$deleteFromPrimitiveList/finalizers":["example.com/keep"]`)), "no finalizer"},
		"a finalizer, with the status":   {patch("there", meta(`"finalizers":["example.com/more"]`), "status"), "no finalizer"},
		"an annotation of another":       {patch("there", meta(`"annotations":{"example.com/note":"x"}`)), "no annotation"},
		"an annotation, with the status": {patch("there", meta(`"annotations":{"lodestone.dev/class":"x"}`), "status"), "no annotation"},
		"the image":                      {patch("there", `{"spec":{"containers":[{"name":"app","image":"other"}]}}`), "what a pod is"},
		"an ephemeral container": {patch("there", `{"spec":{"ephemeralContainers":[{"name":"x","image":"x"}]}}`, "ephemeralcontainers"),
			"makes no pods"},
		"a pod": {second(pods.Create(t.Context(), fabric.NewPod(namespace, "more"), metav1.CreateOptions{})), "makes no pods"},
		"a pod on a node": {pods.Bind(t.Context(), &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: "here"},
			Target: corev1.ObjectReference{Name: "home-2"}}, metav1.CreateOptions{}), "makes no pods"},
	} {
		assert.True(t, apierrors.IsForbidden(test.err) || apierrors.IsInvalid(test.err), "%s: %v", name, test.err)
		assert.ErrorContains(t, test.err, test.says, name)
	}
	remotes, err := clients.NewRemoteClusters(programConfig(t))
	require.NoError(t, err)
	_, err = remotes.Patch(t.Context(), "west", types.MergePatchType, []byte(`{"spec":{"virtualNode":"Disabled"}}`), metav1.PatchOptions{})
	require.ErrorContains(t, err, "what a RemoteCluster asks for")
	_, err = client.CoreV1().Namespaces().Patch(t.Context(), fabric.System, types.MergePatchType,
		[]byte(fmt.Sprintf(`{"metadata":{"annotations":{%q:"west,home-1"}}}`, keys.VirtualNodes)), metav1.PatchOptions{})
	require.True(t, apierrors.IsForbidden(err), "the list: %v", err)

	// A deletion that somebody began is ended.
	must.Delete(t, bed.Home.Client().CoreV1().Pods(namespace), "there")
	require.NoError(t, pods.Delete(t.Context(), "there", metav1.DeleteOptions{GracePeriodSeconds: ptr.To(int64(0)),
		Preconditions: &metav1.Preconditions{UID: &uid}}))
	here := podNow(t, namespace, "here")
	assert.NotEqual(t, "Hostile", here.Status.Reason)
	assert.Nil(t, here.DeletionTimestamp)
	assert.Equal(t, []string{keep}, here.Finalizers)
}

// TestAListThatSomebodyChangesHoldsUpNobodyElse takes the list away: others write pods as
// ever, and at the next change of a RemoteCluster it is there again.
func TestAListThatSomebodyChangesHoldsUpNobodyElse(t *testing.T) {
	namespace := testbed.Namespace(t, bed.Home)
	listed := func() string {
		system := must.Get(t, bed.Home.Client().CoreV1().Namespaces(), fabric.System)
		return system.Annotations[keys.VirtualNodes]
	}
	must.Kubectl(t, bed.Home, "", "annotate", "namespace", fabric.System, keys.VirtualNodes+"-")
	pods := bed.Home.Client().CoreV1().Pods(namespace)
	must.Create(t, pods, fabric.NewPod(namespace, "db"))
	require.NoError(t, pods.Delete(t.Context(), "db", *metav1.NewDeleteOptions(0)))
	registered(t, "other", eastKubeconfig)
	await.Until(t, "the list is there again", func() bool { return listed() == "other,west" }, func() any { return listed() })
}

func second[T any](_ T, err error) error { return err }
