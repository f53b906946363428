package plugin

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/must"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

func TestStatusShowsClustersVolumesAndPods(t *testing.T) {
	peered(t)
	namespace := openNamespace(t)
	volumeInWest(t, namespace, "data")
	podInWest(t, namespace, "web", "data")

	var status struct {
		APIVersion, Kind, HomeID string
		Clusters                 []map[string]any
		Waiting                  []map[string]any
	}
	require.NoError(t, json.Unmarshal([]byte(lodestone(t, "status", "-o", "json").ends(t, done).out), &status))
	id, err := bed.HomeID(t.Context())
	require.NoError(t, err)
	assert.Equal(t, id, status.HomeID)
	assert.Equal(t, "cli.lodestone.dev/v1alpha1 Status", status.APIVersion+" "+status.Kind)
	require.Len(t, status.Clusters, 1)
	west := status.Clusters[0]
	assert.Equal(t, "west", west["name"])
	assert.Equal(t, true, west["ready"])
	assert.EqualValues(t, 1, west["volumes"])
	assert.EqualValues(t, 1, west["pods"])
	assert.ElementsMatch(t, []any{"west-wait (default)", "west-now"}, west["storageClasses"])
	login, _ := west["credentials"].(map[string]any)
	assert.Equal(t, "token", login["kind"])
	assert.NotEmpty(t, login["expires"])
	nodes, _ := west["nodes"].([]any)
	require.Len(t, nodes, 1)
	node, _ := nodes[0].(map[string]any)
	assert.Equal(t, true, node["ready"])
	assert.NotEmpty(t, node["allocatable"])
	assert.NotEmpty(t, node["heartbeat"])
	assert.NotNil(t, status.Waiting)

	table := lodestone(t, "status").ends(t, done).out
	assert.Contains(t, table, "NAME   READY   REASON   VERSION")
	assert.NotContains(t, table, "HEARTBEAT")
	assert.Contains(t, lodestone(t, "status", "-o", "wide").ends(t, done).out, "HEARTBEAT")
	assert.Contains(t, lodestone(t, "status", "-o", "yaml").ends(t, done).out, "kind: Status")
	assert.Equal(t, "remotecluster.lodestone.dev/west\n", lodestone(t, "status", "-o", "name").ends(t, done).out)

	t.Run("and unpeer is refused while the pod runs", func(t *testing.T) {
		r := lodestone(t, "unpeer", "west").ends(t, refused)
		assert.Contains(t, r.stderr, "1 volume and 1 pod")
		assert.Contains(t, r.stderr, "pod "+namespace+"/web")
	})
	t.Run("and a pod whose node is Ready is not released", func(t *testing.T) {
		r := lodestone(t, "release", "pod", "web", "-n", namespace, "--yes").ends(t, refused)
		assert.Contains(t, r.stderr, "kubectl delete pod")
		assert.Nil(t, podOf(t, namespace, "web").DeletionTimestamp)
	})
	endPod(t, namespace, "web")
	must.Kubectl(t, bed.Home, "", "delete", "pvc", "data", "-n", namespace)
}

func TestStatusBeforeThereIsAnything(t *testing.T) {
	assert.Contains(t, lodestone(t, "status").ends(t, done).out, "kubectl lodestone peer --help")
	assert.Contains(t, lodestone(t, "status", "-o", "json").ends(t, done).out, `"clusters": []`)
	lodestone(t, "status", "-o", "table").ends(t, usage)
	testbed.Require(t)
	r := lodestone(t, "status", "--context", "home-guest").ends(t, failed)
	assert.Contains(t, r.stderr, "ask its administrator")
}

func TestWhySaysWhatAPodAndAClaimWaitFor(t *testing.T) {
	peered(t)
	namespace := testbed.Namespace(t, bed.Home)
	must.Create(t, bed.Home.Client().CoreV1().PersistentVolumeClaims(namespace), fabric.NewClaim(namespace, "data", fabric.Class))
	says(t, "waits for a pod that uses it", "pvc", "data", "-n", namespace)

	must.Create(t, bed.Home.Client().CoreV1().Pods(namespace), fabric.InWest(fabric.NewPod(namespace, "web", "data")))
	says(t, "waits until its pod has a node: pod \"web\" is to run in cluster \"west\"", "pvc", "data", "-n", namespace)
	says(t, "is to run in cluster \"west\", but namespace \""+namespace+"\" is not open to remote clusters: kubectl label namespace", "pod",
		"web", "-n", namespace)

	must.Create(t, bed.Home.Client().CoreV1().Pods(namespace), fabric.NewPod(namespace, "lonely", "absent"))
	says(t, "claim \"absent\" does not exist: create it", "pod", "lonely", "-n", namespace)

	r := lodestone(t, "why", "pod", "nobody", "-n", namespace).ends(t, failed)
	assert.Contains(t, r.stderr, `there is no pod "nobody"`)
	assert.Contains(t, lodestone(t, "why", "pod").ends(t, done).out, "nothing waits in namespace \"default\"")
	lodestone(t, "why", "pod", "web", "-o", "table").ends(t, usage)

	t.Run("as JSON", func(t *testing.T) {
		var answer struct {
			Sentence string
			Waiting  bool
			Facts    []string
		}
		require.NoError(t, json.Unmarshal([]byte(lodestone(t, "why", "pod", "web", "-n", namespace, "-o", "json").ends(t, done).out), &answer))
		assert.True(t, answer.Waiting)
		assert.NotEmpty(t, answer.Facts)
	})
}

func TestWhySaysWhoRefusedAClaim(t *testing.T) {
	peered(t)
	namespace := openNamespace(t)
	must.Create(t, bed.West.Client().CoreV1().ResourceQuotas(namespace), &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: "none"},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourcePersistentVolumeClaims: resource.MustParse("0")}},
	})
	await.Until(t, "the quota counts", func() bool {
		quota, err := bed.West.Client().CoreV1().ResourceQuotas(namespace).Get(t.Context(), "none", metav1.GetOptions{})
		return err == nil && quota.Status.Hard != nil
	})
	must.Create(t, bed.Home.Client().CoreV1().PersistentVolumeClaims(namespace), fabric.NewClaim(namespace, "data", fabric.Class))
	must.Create(t, bed.Home.Client().CoreV1().Pods(namespace), fabric.InWest(fabric.NewPod(namespace, "web", "data")))
	says(t, "was refused by cluster \"west\": the quota of namespace "+namespace, "pvc", "data", "-n", namespace)
	says(t, "has no node yet: claim \"data\" was refused by cluster \"west\"", "pod", "web", "-n", namespace)

	r := lodestone(t, "status", "-n", namespace).ends(t, done)
	assert.Contains(t, r.out, "was refused by cluster")
}

// TestWhySaysOfAPodWhatWestSaysOfItsClaim has a real class in west whose provisioner makes no volume, and
// says why only there.
func TestWhySaysOfAPodWhatWestSaysOfItsClaim(t *testing.T) {
	peered(t)
	namespace := openNamespace(t)
	classThatMakesNothing(t, "nothing-"+namespace)
	must.Create(t, bed.Home.Client().CoreV1().PersistentVolumeClaims(namespace), fabric.NewClaim(namespace, "data", "nothing-"+namespace))
	must.Create(t, bed.Home.Client().CoreV1().Pods(namespace), fabric.InWest(fabric.NewPod(namespace, "web", "data")))
	var real *corev1.PersistentVolumeClaim
	var copied *corev1.Pod
	await.Until(t, "west has the claim and the pod", func() bool {
		real, copied = await.Claim(t, bed.West.Client(), namespace, "data"), await.Pod(t, bed.West.Client(), namespace, "web")
		return real != nil && copied != nil
	}, func() any { return await.Events(t, bed.Home.Client(), namespace) })
	told(t, "PersistentVolumeClaim", real, "ProvisioningFailed", "NodePath only supports ReadWriteOnce")
	says(t, "is bound, but real claim", "pvc", "data", "-n", namespace)
	says(t, `ProvisioningFailed says "NodePath only supports ReadWriteOnce"`, "pvc", "data", "-n", namespace)
	says(t, `pod "web" cannot start in cluster "west": the volume of its claim "data" is not made there yet: `, "pod", "web", "-n", namespace)
	says(t, `ProvisioningFailed says "NodePath only supports ReadWriteOnce"`, "pod", "web", "-n", namespace)
	assert.Contains(t, lodestone(t, "status", "-n", namespace).ends(t, done).out,
		`pod "web" cannot start in cluster "west": the volume of its claim "data" is not made there yet: `)
	named := regexp.MustCompile(`PersistentVolumeClaim +data +claim "data" is bound, but .*says "NodePath only supports ReadWriteOnce"`)
	await.Until(t, "status names the claim, which has its condition after the event", func() bool {
		return named.MatchString(lodestone(t, "status", "-n", namespace).ends(t, done).out)
	})

	// What is said of the pod is a fact, and not the cause as long as that is the claim.
	told(t, "Pod", copied, "OtherCluster", "run kubectl delete namespace "+namespace)
	await.Until(t, "it is among the facts", func() bool {
		out := lodestone(t, "why", "pod", "web", "-n", namespace).ends(t, done).out
		sentence, facts, _ := strings.Cut(out, "\n")
		require.Contains(t, sentence, "NodePath only supports ReadWriteOnce")
		return strings.Contains(facts, "OtherCluster: cluster west: run kubectl delete namespace")
	})
	t.Log(lodestone(t, "why", "pod", "web", "-n", namespace).ends(t, done).out)
	endPod(t, namespace, "web")
	must.Kubectl(t, bed.Home, "", "delete", "pvc", "data", "-n", namespace)
}

// TestWhySaysWhatTheProvisionerOfOthersSays has a class of home that is not Lodestone's, whose provisioner makes no volume.
func TestWhySaysWhatTheProvisionerOfOthersSays(t *testing.T) {
	namespace := testbed.Namespace(t, bed.Home)
	name := "foreign-" + namespace
	classes := bed.Home.Client().StorageV1().StorageClasses()
	must.Create(t, classes, &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: "nothing.example.com",
		VolumeBindingMode: ptr.To(storagev1.VolumeBindingWaitForFirstConsumer)})
	t.Cleanup(func() { _ = classes.Delete(context.Background(), name, metav1.DeleteOptions{}) })
	of := fmt.Sprintf(`claim "data" is of storage class %q, whose provisioner is "nothing.example.com" and not Lodestone: `, name)
	claim := must.Create(t, bed.Home.Client().CoreV1().PersistentVolumeClaims(namespace), fabric.NewClaim(namespace, "data", name))

	// As kube-scheduler does from Kubernetes 1.35 on, before it has the claim say the node.
	chosen := fabric.NewPod(namespace, "chosen", "data")
	chosen.Spec.SchedulerName = "none"
	must.Create(t, bed.Home.Client().CoreV1().Pods(namespace), chosen)
	must.Kubectl(t, bed.Home, "", "patch", "pod", "chosen", "-n", namespace, "--subresource=status", "--type=merge", "-p",
		`{"status": {"nominatedNodeName": "home-1"}}`)
	says(t, `pod "chosen" is to run on node "home-1", which the scheduler has chosen: it waits until its volumes are made`, "pod", "chosen",
		"-n", namespace)

	must.Create(t, bed.Home.Client().CoreV1().Pods(namespace), fabric.AtHome(fabric.NewPod(namespace, "web", "data")))
	says(t, `pod "web" has no node yet: `+of+`that one makes its volume for node "home-`, "pod", "web", "-n", namespace)

	toldIn(t, bed.Home, "PersistentVolumeClaim", claim, "ProvisioningFailed", "the array has no room")
	for _, pod := range []string{"chosen", "web"} {
		says(t, fmt.Sprintf("pod %q has no node yet: ", pod)+of+"the array has no room", "pod", pod, "-n", namespace)
	}
	says(t, "and not Lodestone: the array has no room", "pvc", "data", "-n", namespace)
}

// classThatMakesNothing makes a virtual class for west alone, and the real class there, by one name.
func classThatMakesNothing(t *testing.T, name string) {
	t.Helper()
	for cluster, class := range map[*testbed.Cluster]*storagev1.StorageClass{
		bed.West: {Provisioner: "nothing.example.com"},
		bed.Home: {Provisioner: keys.Driver, Parameters: map[string]string{
			"lodestone.dev/remote-class.west": name, "lodestone.dev/clusters": "west"}},
	} {
		class.Name, class.VolumeBindingMode = name, ptr.To(storagev1.VolumeBindingWaitForFirstConsumer)
		must.Create(t, cluster.Client().StorageV1().StorageClasses(), class)
		t.Cleanup(func() {
			_ = cluster.Client().StorageV1().StorageClasses().Delete(context.Background(), name, metav1.DeleteOptions{})
		})
	}
}

// told records a Warning about an object of west there.
func told(t *testing.T, kind string, about metav1.Object, reason, message string) {
	t.Helper()
	toldIn(t, bed.West, kind, about, reason, message)
}

// toldIn is told for an object of a cluster.
func toldIn(t *testing.T, cluster *testbed.Cluster, kind string, about metav1.Object, reason, message string) {
	t.Helper()
	must.Create(t, cluster.Client().CoreV1().Events(about.GetNamespace()), &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{GenerateName: about.GetName() + "."},
		InvolvedObject: corev1.ObjectReference{APIVersion: "v1", Kind: kind, Namespace: about.GetNamespace(), Name: about.GetName(),
			UID: about.GetUID()},
		Type: corev1.EventTypeWarning, Reason: reason, Message: message, Count: 1, Source: corev1.EventSource{Component: "test"},
		FirstTimestamp: metav1.Now(), LastTimestamp: metav1.Now(),
	})
}

// says waits until the first line of why says something.
func says(t *testing.T, what string, args ...string) {
	t.Helper()
	var last string
	for deadline := time.Now().Add(await.Long); time.Now().Before(deadline); time.Sleep(await.Often) {
		last = lodestone(t, append([]string{"why"}, args...)...).ends(t, done).out
		if sentence, _, _ := strings.Cut(last, "\n"); strings.Contains(sentence, what) {
			return
		}
	}
	require.Fail(t, "why does not say "+what, last)
}
