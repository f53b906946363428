package testbed_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/e2e/fakekubelet"
	"github.com/lodestone-storage/lodestone/e2e/fakeprovisioner"
	"github.com/lodestone-storage/lodestone/e2e/must"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

func TestStoppingTheAPIServerKeepsItsState(t *testing.T) {
	namespace := testbed.Namespace(t, west)
	ctx := t.Context()
	configMap := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "state"}, Data: map[string]string{"a": "b"}}
	must.Create(t, west.Client().CoreV1().ConfigMaps(namespace), configMap)

	require.NoError(t, west.StopAPIServer(ctx))
	_, err := west.Client().CoreV1().ConfigMaps(namespace).Get(ctx, "state", metav1.GetOptions{})
	require.Error(t, err, "a stopped API server must not answer")

	require.NoError(t, west.StartAPIServer(ctx))
	read := must.Get(t, west.Client().CoreV1().ConfigMaps(namespace), "state")
	require.Equal(t, configMap.Data, read.Data)
}

func TestServiceAccountHasTheRightsThatRBACGives(t *testing.T) {
	namespace := testbed.Namespace(t, home)
	ctx := t.Context()
	config, err := home.ServiceAccountConfig(ctx, namespace, "default")
	require.NoError(t, err)
	client, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	_, err = client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	require.ErrorContains(t, err, "system:serviceaccount:"+namespace+":default")

	must.Kubectl(t, home, "", "-n", namespace, "create", "rolebinding", "view", "--clusterrole=view", "--serviceaccount="+namespace+
		":default")
	require.Eventually(t, func() bool {
		_, err := client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
		return err == nil
	}, long, often)
}

func TestPausedAPIServerHangsAndResumes(t *testing.T) {
	testbed.Require(t)
	ctx := t.Context()
	require.NoError(t, west.PauseAPIServer())
	t.Cleanup(func() { assert.NoError(t, west.ResumeAPIServer()) })
	short, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	_, err := west.Client().CoreV1().Namespaces().Get(short, "default", metav1.GetOptions{})
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NoError(t, west.ResumeAPIServer())
	must.Get(t, west.Client().CoreV1().Namespaces(), "default")
}

func TestFailureToStartSaysWhyAndKeepsTheLogs(t *testing.T) {
	testbed.Require(t)
	temporary := t.TempDir()
	t.Setenv("TMPDIR", temporary)
	_, err := testbed.Start(t.Context(), testbed.Config{Name: "broken", FeatureGates: map[string]bool{"NoSuchGate": true}})
	require.ErrorContains(t, err, "cluster broken: kube-apiserver ended before it was ready")
	require.ErrorContains(t, err, "NoSuchGate")
	logs, err := filepath.Glob(filepath.Join(temporary, "*", "logs", "kube-apiserver.log"))
	require.NoError(t, err)
	require.Len(t, logs, 1)
}

func TestNodeFallsSilentReturnsAndIsTakenAway(t *testing.T) {
	namespace := testbed.Namespace(t, home)
	ctx, name := t.Context(), "spare-"+rand.String(5)
	require.NoError(t, homeNodes.AddNodes(ctx, fakekubelet.Node{
		Name: name, Taints: []corev1.Taint{{Key: "spare", Effect: corev1.TaintEffectNoSchedule}},
	}))
	require.ErrorContains(t, homeNodes.AddNodes(ctx, fakekubelet.Node{Name: name}), "is played already")
	node, err := home.Client().CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, []corev1.Taint{{Key: "spare", Effect: corev1.TaintEffectNoSchedule}}, node.Spec.Taints)

	require.NoError(t, homeNodes.SetAlive(name, false))
	late := pod("late")
	late.Spec.NodeName = name
	createPod(t, home, namespace, late)
	require.Eventually(t, func() bool { return !ready(t, name) }, long, often)
	silent := eventuallyPod(t, home, namespace, "late", func(*corev1.Pod) bool { return true })
	require.Equal(t, corev1.PodPending, silent.Status.Phase)

	require.NoError(t, homeNodes.SetAlive(name, true))
	require.Eventually(t, func() bool { return ready(t, name) }, long, often)
	eventuallyPod(t, home, namespace, "late", runs)

	require.NoError(t, homeNodes.RemoveNode(ctx, name))
	_, err = home.Client().CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	require.True(t, apierrors.IsNotFound(err))
	require.Error(t, homeNodes.SetAlive(name, true))
}

func TestClaimsOfEitherBindingModeBindAndTheirPodsRun(t *testing.T) {
	namespace := testbed.Namespace(t, home)
	createClaim(t, home, namespace, "at-once", immediate)
	createClaim(t, home, namespace, "later", wait)

	volume := eventuallyBound(t, home, namespace, "at-once")
	require.Equal(t, driver, volume.Spec.CSI.Driver)
	require.Equal(t, []string{"noatime"}, volume.Spec.MountOptions)
	require.Equal(t, "2Mi", volume.Spec.Capacity.Storage().String())
	require.Nil(t, volume.Spec.NodeAffinity)

	createPod(t, home, namespace, pod("web", "at-once", "later"))
	running := eventuallyPod(t, home, namespace, "web", runs)
	volume = eventuallyBound(t, home, namespace, "later")
	expression := volume.Spec.NodeAffinity.Required.NodeSelectorTerms[0].MatchExpressions[0]
	require.Equal(t, []string{running.Spec.NodeName}, expression.Values)
	require.Len(t, homeDisks.VolumesOf(namespace), 2)
	require.Empty(t, homeNodes.Violations(namespace))

	deletePod(t, home, namespace, "web")
	must.Delete(t, home.Client().CoreV1().PersistentVolumeClaims(namespace), "later")
	require.Eventually(t, func() bool { return !homeDisks.Exists(volume.Spec.CSI.VolumeHandle) }, long, often)
}

func TestProvisionerBehavesAsItIsTold(t *testing.T) {
	namespace := testbed.Namespace(t, home)
	homeDisks.SetClaim(namespace, "refused", fakeprovisioner.Behavior{Refuse: "the array is on fire"})
	homeDisks.SetClaim(namespace, "hanging", fakeprovisioner.Behavior{Never: true})
	homeDisks.SetClaim(namespace, "homeless", fakeprovisioner.Behavior{FullNodes: []string{fakeprovisioner.EveryNode}})
	createClaim(t, home, namespace, "refused", immediate)
	createClaim(t, home, namespace, "hanging", immediate)
	createClaim(t, home, namespace, "homeless", wait)

	eventuallyEvent(t, home, namespace, "refused", "the array is on fire")
	homeDisks.ResetClaim(namespace, "refused")
	eventuallyBound(t, home, namespace, "refused")

	require.Len(t, homeDisks.VolumesOf(namespace), 1, "a claim that hangs must have no volume")
	homeDisks.ResetClaim(namespace, "hanging")
	eventuallyBound(t, home, namespace, "hanging")

	createPod(t, home, namespace, pod("mover", "homeless"))
	eventuallyEvent(t, home, namespace, "homeless", "has no room for the volume")
	homeDisks.ResetClaim(namespace, "homeless")
	eventuallyPod(t, home, namespace, "mover", runs) // which takes a new choice of a node
}

func TestVolumeThatCannotBeDeletedStays(t *testing.T) {
	namespace := testbed.Namespace(t, home)
	homeDisks.SetClaim(namespace, "sticky", fakeprovisioner.Behavior{DeleteNever: true})
	createClaim(t, home, namespace, "sticky", immediate)
	volume := eventuallyBound(t, home, namespace, "sticky")
	must.Delete(t, home.Client().CoreV1().PersistentVolumeClaims(namespace), "sticky")
	eventuallyEvent(t, home, "default", volume.Name, "refuses to delete")
	require.True(t, homeDisks.Exists(volume.Spec.CSI.VolumeHandle))

	homeDisks.ResetClaim(namespace, "sticky")
	require.Eventually(t, func() bool { return !homeDisks.Exists(volume.Spec.CSI.VolumeHandle) }, long, often)
}

func TestPodThatBypassesTheSchedulerDoesNotMountAVolumeOfAnotherNode(t *testing.T) {
	namespace := testbed.Namespace(t, home)
	createClaim(t, home, namespace, "data", wait)
	createPod(t, home, namespace, pod("first", "data"))
	first := eventuallyPod(t, home, namespace, "first", runs)

	other := map[string]string{"home-1": "home-2", "home-2": "home-1"}[first.Spec.NodeName]
	bypass := pod("bypass", "data")
	bypass.Spec.NodeName = other
	createPod(t, home, namespace, bypass)
	eventuallyEvent(t, home, namespace, "bypass", "cannot be reached from this node")
	blocked := eventuallyPod(t, home, namespace, "bypass", func(*corev1.Pod) bool { return true })
	require.Equal(t, corev1.PodPending, blocked.Status.Phase)
	violations := homeNodes.Violations(namespace)
	require.Len(t, violations, 1)
	require.Equal(t, "bypass", violations[0].Pod)
	require.Equal(t, other, violations[0].Node)
}

// toWest makes a pod run on the virtual node.
func toWest(p *corev1.Pod) *corev1.Pod {
	p.Spec.NodeSelector = map[string]string{keys.Cluster: "west"}
	p.Spec.Tolerations = []corev1.Toleration{{Key: fakekubelet.RemoteTaint, Operator: corev1.TolerationOpExists}}
	return p
}

// bindToWest gives a claim at home a volume whose data is in west.
func bindToWest(t *testing.T, namespace, claim string) {
	t.Helper()
	// With the UID the volume is bound at once, without it at the binder's next round.
	bound := must.Get(t, home.Client().CoreV1().PersistentVolumeClaims(namespace), claim)
	must.Create(t, home.Client().CoreV1().PersistentVolumes(), &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: namespace + "-" + claim},
		Spec: corev1.PersistentVolumeSpec{
			AccessModes:                   []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Capacity:                      corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("2Mi")},
			ClaimRef:                      &corev1.ObjectReference{Namespace: namespace, Name: claim, UID: bound.UID},
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
			StorageClassName:              wait,
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{{Key: keys.Cluster, Operator: corev1.NodeSelectorOpIn, Values: []string{"west"}}},
			}}}},
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
				Driver: keys.Driver, VolumeHandle: "west/" + namespace + "/" + claim + "/uid",
			}},
		},
	})
	t.Cleanup(func() {
		_ = home.Client().CoreV1().PersistentVolumes().Delete(context.Background(), namespace+"-"+claim, metav1.DeleteOptions{})
	})
	eventuallyBound(t, home, namespace, claim)
}

func gone(t *testing.T, c *testbed.Cluster, namespace, name string) func() bool {
	t.Helper()
	return func() bool {
		_, err := c.Client().CoreV1().Pods(namespace).Get(t.Context(), name, metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	}
}

func TestPodOfAVirtualNodeRunsInTheRemoteClusterWithItsVolumeThere(t *testing.T) {
	namespace := testbed.Namespace(t, home, west)
	createClaim(t, home, namespace, "data", wait)
	createClaim(t, west, namespace, "data", wait)
	bindToWest(t, namespace, "data")

	createPod(t, home, namespace, toWest(pod("db", "data")))
	atHome := eventuallyPod(t, home, namespace, "db", runs)
	require.Equal(t, "west", atHome.Spec.NodeName)
	inWest := eventuallyPod(t, west, namespace, "db", runs)
	require.Equal(t, string(atHome.UID), inWest.Annotations[fakekubelet.HomePodUIDAnnotation])
	require.Equal(t, inWest.Status.PodIP, atHome.Status.PodIP)
	eventuallyBound(t, west, namespace, "data")
	require.Empty(t, homeNodes.Violations(namespace))

	deletePod(t, home, namespace, "db")
	require.Eventually(t, gone(t, home, namespace, "db"), long, often)
	require.True(t, gone(t, west, namespace, "db")(), "the copy must go first")
}

func TestPodOfAVirtualNodeTellsWhyItsCopyWaits(t *testing.T) {
	namespace := testbed.Namespace(t, home, west)
	createClaim(t, home, namespace, "data", wait)
	bindToWest(t, namespace, "data")
	createPod(t, home, namespace, toWest(pod("db", "data")))
	eventuallyPod(t, home, namespace, "db", func(p *corev1.Pod) bool {
		return strings.Contains(p.Status.Message, "not scheduled in the remote cluster") && p.Status.Phase == corev1.PodPending
	})

	createClaim(t, west, namespace, "data", wait)
	atHome := eventuallyPod(t, home, namespace, "db", runs)
	require.Empty(t, atHome.Status.Message)
}

func TestVolumeOfARemoteClusterIsNotMountedAtHome(t *testing.T) {
	namespace := testbed.Namespace(t, home)
	createClaim(t, home, namespace, "data", wait)
	bindToWest(t, namespace, "data")
	bypass := pod("bypass", "data")
	bypass.Spec.NodeName = "home-1"
	createPod(t, home, namespace, bypass)
	eventuallyEvent(t, home, namespace, "bypass", "cannot be reached from this node")
	require.Len(t, homeNodes.Violations(namespace), 1)
}

func TestPodWhoseCopyIsDeletedFails(t *testing.T) {
	namespace := testbed.Namespace(t, home, west)
	createPod(t, home, namespace, toWest(pod("job")))
	eventuallyPod(t, home, namespace, "job", runs)
	deletePod(t, west, namespace, "job")
	eventuallyPod(t, home, namespace, "job", func(p *corev1.Pod) bool { return p.Status.Reason == "RemotePodGone" })
}

func TestVirtualNodeFallsSilentWithItsClusterAndReturns(t *testing.T) {
	namespace := testbed.Namespace(t, home, west)
	ctx := t.Context()
	createPod(t, home, namespace, toWest(pod("stays")))
	createPod(t, home, namespace, toWest(pod("deleted")))
	createPod(t, home, namespace, toWest(pod("forced")))
	for _, name := range []string{"stays", "deleted", "forced"} {
		eventuallyPod(t, home, namespace, name, runs)
	}

	require.NoError(t, west.StopAPIServer(ctx))
	require.Eventually(t, func() bool { return !ready(t, "west") }, long, often)
	deletePod(t, home, namespace, "deleted")
	require.NoError(t, home.Client().CoreV1().Pods(namespace).Delete(ctx, "forced",
		metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)}))
	eventuallyPod(t, home, namespace, "deleted", func(p *corev1.Pod) bool { return p.DeletionTimestamp != nil })
	require.Never(t, gone(t, home, namespace, "deleted"), 3*time.Second, often, "nobody knows whether the copy still runs")

	require.NoError(t, west.StartAPIServer(ctx))
	require.Eventually(t, func() bool { return ready(t, "west") }, long, often)
	for _, name := range []string{"deleted", "forced"} {
		require.Eventually(t, gone(t, home, namespace, name), long, often)
		require.Eventually(t, gone(t, west, namespace, name), long, often)
	}
	eventuallyPod(t, home, namespace, "stays", runs)
	eventuallyPod(t, west, namespace, "stays", runs)
}

func ready(t *testing.T, name string) bool {
	t.Helper()
	node := must.Get(t, home.Client().CoreV1().Nodes(), name)
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}

// helperVariable makes the test program start one cluster and wait for its end.
const helperVariable = "LODESTONE_TESTBED_HELPER"

const helperReady = "the cluster runs"

func startHelper(ctx context.Context) error {
	if _, err := testbed.Start(ctx, testbed.Config{Name: "alone"}); err != nil {
		return err
	}
	fmt.Println(helperReady)
	return nil
}

func TestHelperWaits(t *testing.T) {
	if os.Getenv(helperVariable) == "" {
		t.Skip("runs only inside TestNothingOutlivesTheProcessThatStartedIt")
	}
	select {} // the parent ends this process
}
