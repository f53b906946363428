package moves

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	storagehelpers "k8s.io/component-helpers/storage/volume"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/must"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/backing"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// nodeOf returns the node of home where the pod of a namespace runs.
func nodeOf(t *testing.T, namespace string) string {
	t.Helper()
	pods := must.List(t, bed.Home.Client().CoreV1().Pods(namespace))
	require.Len(t, pods.Items, 1)
	return bed.AwaitRunning(t, namespace, pods.Items[0].Name)
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
	must.Create(t, bed.Home.Client().CoreV1().PersistentVolumeClaims(namespace), fabric.NewClaim(namespace, "new", fabric.Class))
	for name, row := range map[string]struct {
		claim, cluster string
		tune           func(*v1alpha1.VolumeMove)
		says           string
	}{
		"a claim that is not there":   {claim: "none", cluster: "west", says: `no claim "none"`},
		"a claim without a volume":    {claim: "new", cluster: "west", says: "has no volume that Lodestone made"},
		"a cluster that is not there": {claim: "data", cluster: "east", says: "no RemoteCluster east"},
		"a place where it is already": {claim: "data", cluster: keys.Home, says: "is there already"},
		"a node where it is already":  {claim: "data", cluster: "node", tune: toNode(nodeOf(t, namespace)), says: "is on node home-"},
		"a node that is not there":    {claim: "data", cluster: "node", tune: toNode("none"), says: `no node "none"`},
		"a class that is not allowed": {claim: "data", cluster: "west",
			tune: func(m *v1alpha1.VolumeMove) { m.Spec.ClassName = fabric.WestNow }, says: "class"},
		"one that the cluster has none": {claim: "data", cluster: keys.Home, tune: func(m *v1alpha1.VolumeMove) { m.Spec.ClassName = "none" },
			says: "class"},
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

// inBoth counts in two volumes as the application does in one.
const inBoth = `last() { n=$(tail -n 1 "$1" 2>/dev/null || true); echo "${n:-0}"; }
one=$(last /data/log); two=$(last /second/log)
while :; do
  one=$((one+1)); echo $one >> /data/log; two=$((two+1)); echo $two >> /second/log
  sync /data/log /second/log; sleep 0.02
done`

func TestVolumesOfOnePodMoveTogether(t *testing.T) {
	testbed.NotInShort(t)
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
	must.Create(t, bed.Home.Client().AppsV1().StatefulSets(namespace), &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: "app"},
		Spec: appsv1.StatefulSetSpec{Replicas: ptr.To(int32(1)), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: pod.Spec}},
	})
	both, from := []string{"one", "two"}, map[string]string{}
	for _, claim := range both {
		from[claim] = folder(t, namespace, claim)
		counts(t, from[claim], counted(t, from[claim])+10)
		require.NoError(t, os.WriteFile(filepath.Join(from[claim], "mark"), []byte(claim), 0o600))
	}

	alone := reaches(t, move(t, namespace, "one", "west"), v1alpha1.MoveFailed, v1alpha1.MoveDone)
	assert.Equal(t, v1alpha1.MoveFailed, alone.Status.Phase)
	assert.Contains(t, alone.Status.Message, `also uses claim "two"`)

	done := reaches(t, move(t, namespace, "both", "west", func(m *v1alpha1.VolumeMove) { m.Spec.Claims = both }), v1alpha1.MoveDone,
		v1alpha1.MoveFailed, v1alpha1.MoveAborted)
	require.Equal(t, v1alpha1.MoveDone, done.Status.Phase, done.Status.Message)
	assert.Equal(t, fabric.WestNode, bed.AwaitRunning(t, namespace, "app-0"))
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
	testbed.NotInShort(t)
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
	must.Create(t, bed.Home.Client().CoreV1().Pods(namespace), pod)
	assert.Equal(t, fabric.WestNode, bed.AwaitRunning(t, namespace, "app"))
}

// crowds has the node in west on which the first mover of a move runs hold so much else that
// other movers would rather go to another node.
func crowds(t *testing.T, made *v1alpha1.VolumeMove) {
	t.Helper()
	node, pods := "", bed.West.Client().CoreV1().Pods(made.Namespace)
	await.Until(t, "the first mover has a node", func() bool {
		all := must.List(t, pods, metav1.ListOptions{LabelSelector: keys.MoveOf + "=" + string(made.UID)})
		for i := range all.Items {
			node = all.Items[i].Spec.NodeName
		}
		return node != ""
	})
	at := must.Get(t, bed.West.Client().CoreV1().Nodes(), node)
	crowd, requests := fabric.NewPod(made.Namespace, "crowd"), corev1.ResourceList{}
	for _, what := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		requests[what] = *resource.NewMilliQuantity(at.Status.Allocatable.Name(what, resource.DecimalSI).MilliValue()/2, resource.DecimalSI)
	}
	crowd.Spec.NodeName, crowd.Spec.Containers[0].Resources.Requests = node, requests
	must.Create(t, pods, crowd)
	t.Cleanup(func() { _ = pods.Delete(context.Background(), crowd.Name, metav1.DeleteOptions{}) })
}

func TestAVolumeGoesToAnotherNodeOfHome(t *testing.T) {
	testbed.NotInShort(t)
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
		found := must.Get(t, bed.Home.Client().CoreV1().Nodes(), node)
		assert.Equal(t, usable, storagehelpers.CheckNodeAffinity(real, found.Labels) == nil, "%s on %s", real.Name, node)
	}
	// A twin with a number is healed, expanded and deleted as any other.
	core := bed.Home.Client().CoreV1()
	must.Delete(t, bed.Home.Client().AppsV1().Deployments(namespace), "data")
	must.Delete(t, core.PersistentVolumeClaims(namespace), "data")
	nothingLeft(t, namespace, done)
}

// behind returns the real claim that a claim's volume names.
func behind(t *testing.T, namespace, claim string) backing.Ref {
	t.Helper()
	ref, err := backing.RefOf(await.Volume(t, bed.Home.Client(), await.Claim(t, bed.Home.Client(), namespace, claim).Spec.VolumeName))
	require.NoError(t, err)
	return ref
}

// moved moves a claim to a real class of a cluster, and returns what the move says when
// it is done and nothing of it is left.
func moved(t *testing.T, namespace, claim, cluster, class string) *v1alpha1.VolumeMove {
	t.Helper()
	from := folder(t, namespace, claim)
	made := move(t, namespace, claim, cluster, func(m *v1alpha1.VolumeMove) { m.Name, m.GenerateName, m.Spec.ClassName = "", "to-", class })
	done := reaches(t, made, v1alpha1.MoveDone, v1alpha1.MoveFailed, v1alpha1.MoveAborted)
	require.Equal(t, v1alpha1.MoveDone, done.Status.Phase, done.Status.Message)
	at := folder(t, namespace, claim)
	assert.NotEqual(t, from, at)
	counts(t, at, counted(t, at)+10)
	nothingLeft(t, namespace, done)
	return done
}

// leftOver makes a claim in west that is nobody's at home.
func leftOver(t *testing.T, namespace, name string) *corev1.PersistentVolumeClaim {
	t.Helper()
	claims := bed.West.Client().CoreV1().PersistentVolumeClaims(namespace)
	var made *corev1.PersistentVolumeClaim
	await.Until(t, "west has the namespace", func() bool {
		_, err := bed.West.Client().CoreV1().Namespaces().Get(t.Context(), namespace, metav1.GetOptions{})
		return err == nil
	})
	must.Create(t, claims, fabric.NewClaim(namespace, name, fabric.WestNow))
	await.Until(t, "the left-over is bound", func() bool {
		made = await.Claim(t, bed.West.Client(), namespace, name)
		return made.Status.Phase == corev1.ClaimBound
	})
	t.Cleanup(func() { _ = claims.Delete(context.Background(), name, metav1.DeleteOptions{}) })
	return made
}

func grows(t *testing.T, namespace, claim, size string) {
	t.Helper()
	patch := fmt.Appendf(nil, `{"spec":{"resources":{"requests":{"storage":%q}}}}`, size)
	must.Patch(t, bed.Home.Client().CoreV1().PersistentVolumeClaims(namespace), claim, types.MergePatchType, patch)
	await.Until(t, "claim "+claim+" has grown", func() bool {
		has := await.Claim(t, bed.Home.Client(), namespace, claim).Status.Capacity[corev1.ResourceStorage]
		return has.String() == size
	}, func() any { return await.Events(t, bed.Home.Client(), namespace) })
}

func TestAVolumeGoesFromClassToClassWithinARemoteCluster(t *testing.T) {
	testbed.NotInShort(t)
	t.Parallel()
	namespace := space(t)
	class(t, namespace, fabric.HomeWait)
	deploysIn(t, namespace, namespace, "data")
	moved(t, namespace, "data", "west", fabric.WestWait)
	require.Equal(t, "data", behind(t, namespace, "data").Name)
	for _, row := range []struct {
		class string
		own   bool
	}{{fabric.WestNow, false}, {fabric.WestWait, true}, {fabric.WestNow, false}} {
		done := moved(t, namespace, "data", "west", row.class)
		t.Log("downtime", done.Status.Downtime.Duration, spans(done))
		assert.Equal(t, row.class, realClass(t, namespace, "data"))
		assert.Equal(t, row.own, behind(t, namespace, "data").Name == "data", "the name is taken while the copy of before is there")
	}
	// Under whatever name: it grows, and is made anew when somebody deletes it.
	grows(t, namespace, "data", "2Gi")
	ref := behind(t, namespace, "data")
	there := bed.West.Client().CoreV1().PersistentVolumeClaims(namespace)
	must.Delete(t, there, ref.Name)
	core := bed.Home.Client().CoreV1()
	require.NoError(t, core.Pods(namespace).DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}))
	await.Until(t, "the real claim is made anew", func() bool { return behind(t, namespace, "data").UID != ref.UID },
		func() any { return await.Events(t, bed.Home.Client(), namespace) }, func() any { return await.Events(t, bed.West.Client(), namespace) })
	assert.Equal(t, ref.Name, behind(t, namespace, "data").Name)
	at := folder(t, namespace, "data")
	counts(t, at, counted(t, at)+10)

	moved(t, namespace, "data", keys.Home, "")
	assert.Nil(t, await.Claim(t, bed.West.Client(), namespace, ref.Name))
}

func TestALeftOverOfTheNameIsNotTouched(t *testing.T) {
	testbed.NotInShort(t)
	t.Parallel()
	namespace := space(t)
	class(t, namespace, fabric.HomeWait)
	deploysIn(t, namespace, namespace, "data")
	before := leftOver(t, namespace, "data")
	other := leftOver(t, namespace, "pvc-"+string(await.Claim(t, bed.Home.Client(), namespace, "data").UID)+"-1")
	moved(t, namespace, "data", "west", fabric.WestWait)
	assert.NotContains(t, []string{before.Name, other.Name}, behind(t, namespace, "data").Name)
	moved(t, namespace, "data", "west", fabric.WestNow)
	ref := behind(t, namespace, "data")

	// What is deleted with the claim is its own.
	must.Delete(t, bed.Home.Client().AppsV1().Deployments(namespace), "data")
	must.Delete(t, bed.Home.Client().CoreV1().PersistentVolumeClaims(namespace), "data")
	await.Until(t, "the real claim is gone", func() bool { return await.Claim(t, bed.West.Client(), namespace, ref.Name) == nil },
		func() any { return await.Events(t, bed.Home.Client(), namespace) })
	for _, left := range []*corev1.PersistentVolumeClaim{before, other} {
		now := await.Claim(t, bed.West.Client(), namespace, left.Name)
		require.NotNil(t, now)
		assert.Equal(t, left.UID, now.UID)
		assert.Equal(t, left.Labels, now.Labels)
		assert.Equal(t, left.Spec, now.Spec)
		assert.Nil(t, now.DeletionTimestamp)
	}
}

func TestAMoveWithinARemoteClusterThatIsAbortedLeavesNothing(t *testing.T) {
	testbed.NotInShort(t)
	t.Parallel()
	namespace := space(t)
	class(t, namespace, fabric.HomeWait)
	deploysIn(t, namespace, namespace, "data")
	moved(t, namespace, "data", "west", fabric.WestWait)
	from, ref := folder(t, namespace, "data"), behind(t, namespace, "data")
	for _, phase := range []v1alpha1.MovePhase{v1alpha1.MovePreCopy, v1alpha1.MoveQuiesce} {
		made := move(t, namespace, "data", "west", func(m *v1alpha1.VolumeMove) {
			m.Name, m.GenerateName, m.Spec.ClassName = "", "within-", fabric.WestNow
		})
		reaches(t, made, phase, v1alpha1.MoveFence, v1alpha1.MoveFinalSync)
		act(t, made, v1alpha1.ActionAbort)
		over := reaches(t, made, v1alpha1.MoveAborted, v1alpha1.MoveDone, v1alpha1.MoveFailed)
		require.Equal(t, v1alpha1.MoveAborted, over.Status.Phase, over.Status.Message)
		nothingLeft(t, namespace, made)
		assert.Equal(t, ref, behind(t, namespace, "data"))
		counts(t, from, counted(t, from)+10)
	}
}

func TestANameThatIsTakenIsRefusedWhereNobodyFindsAnother(t *testing.T) {
	namespace := space(t)
	deploys(t, namespace, "data")
	leftOver(t, namespace, "data")
	nodes := bed.Home.Client().CoreV1().Nodes()
	say := func(value string) {
		must.Patch(t, nodes, fabric.WestNode, types.MergePatchType,
			fmt.Appendf(nil, `{"metadata":{"labels":{%q:%s}}}`, keys.Claims, value))
	}
	// The program of the node would put the label on again.
	require.NoError(t, virtualNode.Stop())
	say("null")
	t.Cleanup(func() {
		var err error
		virtualNode, err = bed.StartVirtualNode(context.Background())
		require.NoError(t, err)
		require.NoError(t, bed.AwaitNode(context.Background(), fabric.WestNode, corev1.ConditionTrue))
	})
	var refused *v1alpha1.VolumeMove
	await.Until(t, "it is known that the node says nothing", func() bool {
		refused = reaches(t, move(t, namespace, "data", "west", func(m *v1alpha1.VolumeMove) {
			m.Name, m.GenerateName, m.Spec.DryRun = "", "dry-", true
		}),
			v1alpha1.MoveFailed, v1alpha1.MoveChecked)
		return refused.Status.Phase == v1alpha1.MoveFailed
	})
	assert.Contains(t, refused.Status.Message, "remove that claim there if its data is not needed")
}
