package clusters

import (
	"context"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/faultynetwork"
	"github.com/lodestone-storage/lodestone/e2e/must"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

func TestAnAPIServerThatStops(t *testing.T) {
	namespace := newNamespace(t)
	useInWest(t, namespace, "data", "db")
	before := claimOf(t, bed.West, namespace, "data")

	require.NoError(t, bed.West.StopAPIServer(t.Context()))
	t.Cleanup(func() {
		require.NoError(t, bed.West.StartAPIServer(context.Background()))
		awaitReady(t, "west", metav1.ConditionTrue, "Ready")
	})
	assert.Contains(t, awaitReady(t, "west", metav1.ConditionFalse, "NotReachable"), "does not answer")
	assert.Equal(t, metav1.ConditionFalse, condition(t, "west", v1alpha1.Reachable).Status)
	assert.Equal(t, metav1.ConditionUnknown, condition(t, "west", v1alpha1.Authorized).Status, "nobody knows")
	assert.NotEmpty(t, status(t, "west").StorageClasses, "what was known last is shown")

	bed.CreateClaim(t, fabric.NewClaim(namespace, "here", fabric.Class))
	bed.CreatePod(t, fabric.AtHome(fabric.NewPod(namespace, "here", "here")))
	bed.AwaitRunning(t, namespace, "here")

	require.NoError(t, bed.West.StartAPIServer(t.Context()))
	awaitReady(t, "west", metav1.ConditionTrue, "Ready")
	assert.Equal(t, metav1.ConditionTrue, condition(t, "west", v1alpha1.Reachable).Status)
	after := claimOf(t, bed.West, namespace, "data")
	require.NotNil(t, after)
	assert.Equal(t, before.UID, after.UID)
	assert.Nil(t, after.DeletionTimestamp)

	volume := claimOf(t, bed.Home, namespace, "data").Spec.VolumeName
	deletePodAndClaim(t, namespace, "db", "data")
	await.Until(t, "its volumes are served again", func() bool { return !hasVolume(t, volume) }, func() any {
		return await.Events(t, bed.Home.Client(), namespace)
	})
}

func TestAnAPIServerThatHangsDelaysNothingAtHome(t *testing.T) {
	namespace := newNamespace(t)
	require.NoError(t, bed.West.PauseAPIServer())
	t.Cleanup(func() {
		_ = bed.West.ResumeAPIServer()
		awaitReady(t, "west", metav1.ConditionTrue, "Ready")
	})
	// Not known to be dead yet: more claims for it than it gets requests at once.
	for _, name := range []string{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n", "o", "p", "q", "r", "s", "t"} {
		claim := fabric.NewClaim(namespace, "west-"+name, fabric.Class)
		claim.Annotations = map[string]string{keys.SelectedNode: fabric.WestNode}
		bed.CreateClaim(t, claim)
	}
	for _, name := range []string{"one", "two", "three"} {
		bed.CreateClaim(t, fabric.NewClaim(namespace, name, fabric.Class))
		bed.CreatePod(t, fabric.AtHome(fabric.NewPod(namespace, name, name)))
	}
	for _, name := range []string{"one", "two", "three"} {
		bed.AwaitRunning(t, namespace, name)
	}
	assert.Contains(t, awaitReady(t, "west", metav1.ConditionFalse, "NotReachable"), "no answer within")
	require.NoError(t, bed.West.ResumeAPIServer())
	awaitReady(t, "west", metav1.ConditionTrue, "Ready")
	await.Until(t, "every claim has its volume or is free to go elsewhere, and west has no claim to spare", func() bool {
		return settled(t, namespace)
	}, func() any { return await.Events(t, bed.Home.Client(), namespace) })
}

func TestAClusterFarAwayIsUsed(t *testing.T) {
	namespace := newNamespace(t)
	working := kubeconfigOf(t, bed.West)
	line, err := faultynetwork.New(t.Context(), strings.TrimPrefix(bed.West.AdminConfig().Host, "https://"))
	require.NoError(t, err)
	// A probe asks more than ten questions, and has five seconds for them.
	line.Late(500 * time.Millisecond)
	t.Cleanup(func() {
		replaceKubeconfig(t, "west", working)
		awaitReady(t, "west", metav1.ConditionTrue, "Ready")
	})
	replaceKubeconfig(t, "west", []byte("broken"))
	awaitReady(t, "west", metav1.ConditionFalse, "BadKubeconfig")
	replaceKubeconfig(t, "west", altered(t, func(cluster *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) { cluster.Server = line.URL() }))
	awaitReady(t, "west", metav1.ConditionTrue, "Ready")
	useInWest(t, namespace, "data", "db")
	deletePodAndClaim(t, namespace, "db", "data")
	awaitNoVolumes(t, namespace)
}

// settled says whether each claim of a namespace either is bound or has no node,
// and whether the claims of that namespace in west are just those behind them.
func settled(t *testing.T, namespace string) bool {
	t.Helper()
	claims := must.List(t, bed.Home.Client().CoreV1().PersistentVolumeClaims(namespace))
	shadows := must.List(t, bed.West.Client().CoreV1().PersistentVolumeClaims(namespace))
	want, have := map[string]bool{}, map[string]bool{}
	for i := range claims.Items {
		claim := &claims.Items[i]
		switch bound := claim.Status.Phase == corev1.ClaimBound; {
		case bound && claim.Annotations[keys.SelectedNode] == fabric.WestNode:
			want[string(claim.UID)] = true
		case !bound && claim.Annotations[keys.SelectedNode] != "":
			return false
		}
	}
	for i := range shadows.Items {
		have[shadows.Items[i].Labels[keys.ClaimUID]] = true
	}
	return maps.Equal(want, have) && len(shadows.Items) == len(want)
}

func TestAClusterThatBecomesReadyWakesThePodsThatWaitForIt(t *testing.T) {
	namespace := newNamespace(t)
	working := kubeconfigOf(t, bed.West)
	replaceKubeconfig(t, "west", []byte("broken"))
	t.Cleanup(func() {
		replaceKubeconfig(t, "west", working)
		awaitReady(t, "west", metav1.ConditionTrue, "Ready")
	})
	awaitReady(t, "west", metav1.ConditionFalse, "BadKubeconfig")
	bed.CreateClaim(t, fabric.NewClaim(namespace, "data", fabric.Class))
	bed.CreatePod(t, fabric.InWest(fabric.NewPod(namespace, "db", "data")))
	requireUnscheduled(t, namespace, "db")
	assert.Empty(t, claimOf(t, bed.Home, namespace, "data").Annotations[keys.SelectedNode], "the extender passes the cluster over")

	replaceKubeconfig(t, "west", working)
	assert.Equal(t, fabric.WestNode, bed.AwaitRunning(t, namespace, "db"))
	deletePodAndClaim(t, namespace, "db", "data")
}

func TestANewClassInARemoteClusterWakesThePodsThatWaitForIt(t *testing.T) {
	namespace := newNamespace(t)
	const late = "west-late"
	classes := bed.Home.Client().StorageV1().StorageClasses()
	must.Create(t, classes, &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: "waits-for-late"}, Provisioner: keys.Driver,
		VolumeBindingMode: ptr.To(storagev1.VolumeBindingWaitForFirstConsumer), Parameters: map[string]string{keys.RemoteClass: late},
	})
	t.Cleanup(func() {
		must.Delete(t, classes, "waits-for-late")
	})
	bed.CreateClaim(t, fabric.NewClaim(namespace, "data", "waits-for-late"))
	bed.CreatePod(t, fabric.InWest(fabric.NewPod(namespace, "db", "data")))
	requireUnscheduled(t, namespace, "db")

	storageClass(t, bed.West, late, bed.WestStorage.Name())
	assert.Equal(t, fabric.WestNode, bed.AwaitRunning(t, namespace, "db"))
	assert.Equal(t, late, *claimOf(t, bed.West, namespace, "data").Spec.StorageClassName)
	deletePodAndClaim(t, namespace, "db", "data")
	await.Until(t, "the shadow goes", func() bool { return claimOf(t, bed.West, namespace, "data") == nil }, func() any {
		return await.Events(t, bed.Home.Client(), namespace)
	})
}

func TestANamespaceThatIsOpenedLaterIsUsedThen(t *testing.T) {
	namespace := testbed.Namespace(t, bed.Home, bed.West)
	must.Kubectl(t, bed.Home, "", "label", "namespace", namespace, keys.Offload+"="+keys.OffloadEnabled)
	bed.CreateClaim(t, fabric.NewClaim(namespace, "data", fabric.Class))
	bed.CreatePod(t, fabric.InWest(fabric.NewPod(namespace, "db", "data")))
	await.Until(t, "the refusal is on the claim", func() bool {
		return claimOf(t, bed.Home, namespace, "data").Annotations[keys.Refused] != ""
	}, func() any { return await.Events(t, bed.Home.Client(), namespace) })

	require.NoError(t, bed.Bind(t.Context(), namespace))
	assert.Equal(t, fabric.WestNode, bed.AwaitRunning(t, namespace, "db"))
	deletePodAndClaim(t, namespace, "db", "data")
	await.Until(t, "the shadow goes", func() bool { return claimOf(t, bed.West, namespace, "data") == nil }, func() any {
		return await.Events(t, bed.Home.Client(), namespace)
	})
}

// The claim of the second pod is bound long since: opening its namespace is all
// that changes.
func TestANamespaceThatIsOpenedLaterWakesThePodsOfItsData(t *testing.T) {
	namespace := newNamespace(t)
	offload := func(value string) {
		must.Kubectl(t, bed.Home, "", "label", "namespace", namespace, "--overwrite", keys.Offload+"="+value)
	}
	useInWest(t, namespace, "data", "first")
	offload("disabled")
	bed.CreatePod(t, fabric.InWest(fabric.NewPod(namespace, "second", "data")))
	requireUnscheduled(t, namespace, "second")
	offload(keys.OffloadEnabled)
	assert.Equal(t, fabric.WestNode, bed.AwaitRunning(t, namespace, "second"))
	must.Delete(t, bed.Home.Client().CoreV1().Pods(namespace), "first")
	deletePodAndClaim(t, namespace, "second", "data")
	await.Until(t, "the shadow goes", func() bool { return claimOf(t, bed.West, namespace, "data") == nil }, func() any {
		return await.Events(t, bed.Home.Client(), namespace)
	})
}
