package moves

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	storagehelpers "k8s.io/component-helpers/storage/volume"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// nodeOf returns the node of home where the pod of a namespace runs.
func nodeOf(t *testing.T, namespace string) string {
	t.Helper()
	pods, err := bed.Home.Client().CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	require.Len(t, pods.Items, 1)
	return runs(t, namespace, pods.Items[0].Name)
}

// elsewhere returns the node of home where the pod of a namespace does not run.
func elsewhere(t *testing.T, namespace string) string {
	t.Helper()
	return map[string]string{"home-1": "home-2", "home-2": "home-1"}[nodeOf(t, namespace)]
}

// toNode has a move go to a node of home.
func toNode(name string) func(*v1alpha1.VolumeMove) {
	return func(m *v1alpha1.VolumeMove) { m.Spec.Target = v1alpha1.MoveTarget{Node: name} }
}

func TestAMoveThatCannotBeIsRefusedInWords(t *testing.T) {
	namespace := space(t)
	deploys(t, namespace, "data")
	_, err := bed.Home.Client().CoreV1().PersistentVolumeClaims(namespace).Create(t.Context(), fabric.NewClaim(namespace, "new", fabric.Class), metav1.CreateOptions{})
	require.NoError(t, err)
	for name, row := range map[string]struct {
		claim, cluster string
		tune           func(*v1alpha1.VolumeMove)
		says           string
	}{
		"a claim that is not there":     {claim: "none", cluster: "west", says: `no claim "none"`},
		"a claim without a volume":      {claim: "new", cluster: "west", says: "has no volume that Lodestone made"},
		"a cluster that is not there":   {claim: "data", cluster: "east", says: "no RemoteCluster east"},
		"a place where it is already":   {claim: "data", cluster: keys.Home, says: "is there already"},
		"a node where it is already":    {claim: "data", cluster: "node", tune: toNode(nodeOf(t, namespace)), says: "is on node home-"},
		"a node that is not there":      {claim: "data", cluster: "node", tune: toNode("none"), says: `no node "none"`},
		"a class that is not allowed":   {claim: "data", cluster: "west", tune: func(m *v1alpha1.VolumeMove) { m.Spec.ClassName = fabric.WestNow }, says: "class"},
		"one that the cluster has none": {claim: "data", cluster: keys.Home, tune: func(m *v1alpha1.VolumeMove) { m.Spec.ClassName = "none" }, says: "class"},
	} {
		t.Run(name, func(t *testing.T) {
			made := move(t, namespace, row.claim, row.cluster, func(m *v1alpha1.VolumeMove) {
				m.Name, m.GenerateName = "", "refused-"
				if row.tune != nil {
					row.tune(m)
				}
			})
			refused := reaches(t, made, v1alpha1.MoveFailed, v1alpha1.MoveDone, v1alpha1.MoveAborted)
			assert.Equal(t, v1alpha1.MoveFailed, refused.Status.Phase)
			assert.Contains(t, refused.Status.Message, row.says)
		})
	}
	counts(t, folder(t, namespace, "data"), counted(t, folder(t, namespace, "data"))+10)
}

// inBoth counts in two volumes as script does in one.
const inBoth = `last() { n=$(tail -n 1 "$1" 2>/dev/null || true); echo "${n:-0}"; }
one=$(last /data/log); two=$(last /second/log)
while :; do
  one=$((one+1)); echo $one >> /data/log; two=$((two+1)); echo $two >> /second/log
  sync /data/log /second/log; sleep 0.02
done`

func TestVolumesOfOnePodMoveTogether(t *testing.T) {
	t.Parallel()
	namespace := space(t)
	pod := application(namespace, "app", "one")
	pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: "two", VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "two"}}})
	pod.Spec.Containers[0].VolumeMounts = append(pod.Spec.Containers[0].VolumeMounts, corev1.VolumeMount{Name: "two", MountPath: "/second"})
	pod.Spec.Containers[0].Command[2] = inBoth
	pod.Spec.Tolerations = append(pod.Spec.Tolerations, corev1.Toleration{Key: keys.RemoteTaint, Operator: corev1.TolerationOpExists})
	begins(t, namespace, pod.DeepCopy(), "one", "two")
	labels := map[string]string{"app": "both"}
	_, err := bed.Home.Client().AppsV1().StatefulSets(namespace).Create(t.Context(), &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: "app"},
		Spec: appsv1.StatefulSetSpec{Replicas: ptr.To(int32(1)), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: pod.Spec}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	both, from := []string{"one", "two"}, map[string]string{}
	for _, claim := range both {
		from[claim] = folder(t, namespace, claim)
		counts(t, from[claim], counted(t, from[claim])+10)
		require.NoError(t, os.WriteFile(filepath.Join(from[claim], "mark"), []byte(claim), 0o600))
	}

	alone := reaches(t, move(t, namespace, "one", "west"), v1alpha1.MoveFailed, v1alpha1.MoveDone)
	assert.Equal(t, v1alpha1.MoveFailed, alone.Status.Phase)
	assert.Contains(t, alone.Status.Message, `also uses claim "two"`)

	done := reaches(t, move(t, namespace, "both", "west", func(m *v1alpha1.VolumeMove) { m.Spec.Claims = both }), v1alpha1.MoveDone, v1alpha1.MoveFailed, v1alpha1.MoveAborted)
	require.Equal(t, v1alpha1.MoveDone, done.Status.Phase, done.Status.Message)
	assert.Equal(t, fabric.WestNode, runs(t, namespace, "app-0"))
	for _, claim := range both {
		at := folder(t, namespace, claim)
		assert.NotEqual(t, from[claim], at)
		mark, err := os.ReadFile(filepath.Join(at, "mark"))
		require.NoError(t, err)
		assert.Equal(t, claim, string(mark))
		counts(t, at, counted(t, at)+10)
	}
}

func TestVolumesThatNoPodUsesGoToOneNode(t *testing.T) {
	t.Parallel()
	namespace := space(t)
	pod := application(namespace, "app", "one")
	names := []string{"one", "two", "three"}
	for _, claim := range names[1:] {
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: claim, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}})
	}
	pod.Spec.Tolerations = append(pod.Spec.Tolerations, corev1.Toleration{Key: keys.RemoteTaint, Operator: corev1.TolerationOpExists})
	begins(t, namespace, pod.DeepCopy(), names...)
	made := move(t, namespace, "all", "west", func(m *v1alpha1.VolumeMove) { m.Spec.Claims = names })
	crowds(t, made)
	done := reaches(t, made, v1alpha1.MoveDone, v1alpha1.MoveFailed, v1alpha1.MoveAborted)
	require.Equal(t, v1alpha1.MoveDone, done.Status.Phase, done.Status.Message)
	first, _ := realOf(t, namespace, "one")
	for _, claim := range names[1:] {
		real, _ := realOf(t, namespace, claim)
		assert.Equal(t, first.Spec.NodeAffinity, real.Spec.NodeAffinity, "claim %s", claim)
	}
	_, err := bed.Home.Client().CoreV1().Pods(namespace).Create(t.Context(), pod, metav1.CreateOptions{})
	require.NoError(t, err)
	assert.Equal(t, fabric.WestNode, runs(t, namespace, "app"))
}

// crowds has the node in west on which the first mover of a move runs hold so much else that
// other movers would rather go to another node.
func crowds(t *testing.T, made *v1alpha1.VolumeMove) {
	t.Helper()
	node, pods := "", bed.West.Client().CoreV1().Pods(made.Namespace)
	await.Until(t, "the first mover has a node", func() bool {
		all, err := pods.List(t.Context(), metav1.ListOptions{LabelSelector: keys.MoveOf + "=" + string(made.UID)})
		require.NoError(t, err)
		for i := range all.Items {
			node = all.Items[i].Spec.NodeName
		}
		return node != ""
	})
	at, err := bed.West.Client().CoreV1().Nodes().Get(t.Context(), node, metav1.GetOptions{})
	require.NoError(t, err)
	crowd, requests := fabric.NewPod(made.Namespace, "crowd"), corev1.ResourceList{}
	for _, what := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		requests[what] = *resource.NewMilliQuantity(at.Status.Allocatable.Name(what, resource.DecimalSI).MilliValue()/2, resource.DecimalSI)
	}
	crowd.Spec.NodeName, crowd.Spec.Containers[0].Resources.Requests = node, requests
	_, err = pods.Create(t.Context(), crowd, metav1.CreateOptions{})
	require.NoError(t, err)
	t.Cleanup(func() { _ = pods.Delete(context.Background(), crowd.Name, metav1.DeleteOptions{}) })
}

func TestAVolumeGoesToAnotherNodeOfHome(t *testing.T) {
	t.Parallel()
	namespace := space(t)
	deploys(t, namespace, "data")
	from, was, target := folder(t, namespace, "data"), nodeOf(t, namespace), elsewhere(t, namespace)
	done := reaches(t, move(t, namespace, "data", keys.Home, toNode(target)),
		v1alpha1.MoveDone, v1alpha1.MoveFailed, v1alpha1.MoveAborted)
	require.Equal(t, v1alpha1.MoveDone, done.Status.Phase, done.Status.Message)
	at := folder(t, namespace, "data")
	assert.NotEqual(t, from, at)
	counts(t, at, counted(t, at)+10)
	assert.Equal(t, target, nodeOf(t, namespace))
	real, _ := realOf(t, namespace, "data")
	require.NotNil(t, real.Spec.NodeAffinity, "the data can be used everywhere")
	for node, usable := range map[string]bool{target: true, was: false} {
		found, err := bed.Home.Client().CoreV1().Nodes().Get(t.Context(), node, metav1.GetOptions{})
		require.NoError(t, err)
		assert.Equal(t, usable, storagehelpers.CheckNodeAffinity(real, found.Labels) == nil, "%s on %s", real.Name, node)
	}
	// A twin with a number is healed, expanded and deleted as any other.
	core := bed.Home.Client().CoreV1()
	require.NoError(t, bed.Home.Client().AppsV1().Deployments(namespace).Delete(t.Context(), "data", metav1.DeleteOptions{}))
	require.NoError(t, core.PersistentVolumeClaims(namespace).Delete(t.Context(), "data", metav1.DeleteOptions{}))
	nothingLeft(t, namespace, done)
}
