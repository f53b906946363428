package moves

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/must"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/backing"
	"github.com/lodestone-storage/lodestone/pkg/clients"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

func moves(t *testing.T, namespace string) *clients.VolumeMoves {
	t.Helper()
	client, err := clients.NewVolumeMoveClient(bed.Home.AdminConfig())
	require.NoError(t, err)
	return client.In(namespace)
}

// deploys makes a claim and a Deployment that counts in it, which runs anywhere.
func deploys(t *testing.T, namespace, name string, tune ...func(*corev1.Pod)) {
	t.Helper()
	deploysIn(t, fabric.Class, namespace, name, tune...)
}

// deploysIn is deploys for a claim of another virtual class.
func deploysIn(t *testing.T, class, namespace, name string, tune ...func(*corev1.Pod)) {
	t.Helper()
	deploysWith(t, fabric.NewClaim(namespace, name, class), tune...)
}

// deploysWith is deploys for a claim as it is given.
func deploysWith(t *testing.T, claim *corev1.PersistentVolumeClaim, tune ...func(*corev1.Pod)) {
	t.Helper()
	beginsWith(t, application(claim.Namespace, claim.Name, claim.Name), claim)
	goesOn(t, claim.Namespace, claim.Name, tune...)
}

// goesOn makes a Deployment that counts in a claim which has its volume, and runs anywhere.
func goesOn(t *testing.T, namespace, name string, tune ...func(*corev1.Pod)) {
	t.Helper()
	pod := application(namespace, name, name)
	for _, change := range tune {
		change(pod)
	}
	pod.Spec.Tolerations = append(pod.Spec.Tolerations, corev1.Toleration{Key: keys.RemoteTaint, Operator: corev1.TolerationOpExists})
	labels := map[string]string{"app": name}
	must.Create(t, bed.Home.Client().AppsV1().Deployments(namespace), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To(int32(1)), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: pod.Spec},
		},
	})
	counts(t, folder(t, namespace, name), counted(t, folder(t, namespace, name))+20)
	t.Cleanup(func() {
		_ = bed.Home.Client().AppsV1().Deployments(namespace).Delete(context.Background(), name, metav1.DeleteOptions{})
	})
}

// begins makes claims whose volumes are at home, and runs a pod with them once.
func begins(t *testing.T, namespace string, pod *corev1.Pod, names ...string) {
	t.Helper()
	var claims []*corev1.PersistentVolumeClaim
	for _, name := range names {
		claims = append(claims, fabric.NewClaim(namespace, name, fabric.Class))
	}
	beginsWith(t, pod, claims...)
}

func beginsWith(t *testing.T, pod *corev1.Pod, claims ...*corev1.PersistentVolumeClaim) {
	t.Helper()
	core, namespace := bed.Home.Client().CoreV1(), pod.Namespace
	for _, claim := range claims {
		must.Create(t, core.PersistentVolumeClaims(namespace), claim)
	}
	pod.Name = "first"
	must.Create(t, core.Pods(namespace), fabric.AtHome(pod))
	bed.AwaitRunning(t, namespace, pod.Name)
	must.Delete(t, core.Pods(namespace), pod.Name)
	await.Until(t, "the first pod is gone", func() bool {
		_, err := core.Pods(namespace).Get(t.Context(), pod.Name, metav1.GetOptions{})
		return err != nil
	})
}

func move(t *testing.T, namespace, name, cluster string, tune ...func(*v1alpha1.VolumeMove)) *v1alpha1.VolumeMove {
	t.Helper()
	wanted := &v1alpha1.VolumeMove{
		ObjectMeta: metav1.ObjectMeta{Name: name + "-to-" + cluster},
		Spec: v1alpha1.VolumeMoveSpec{Claims: []string{name}, Target: v1alpha1.MoveTarget{Cluster: cluster},
			KeepSourceFor: &metav1.Duration{Duration: time.Second}},
	}
	for _, change := range tune {
		change(wanted)
	}
	return must.Create(t, moves(t, namespace), wanted)
}

func reaches(t *testing.T, made *v1alpha1.VolumeMove, phases ...v1alpha1.MovePhase) *v1alpha1.VolumeMove {
	t.Helper()
	var now *v1alpha1.VolumeMove
	await.Until(t, "the move gets there", func() bool {
		now = must.Get(t, moves(t, made.Namespace), made.Name)
		for _, phase := range phases {
			if now.Status.Phase == phase {
				return true
			}
		}
		require.NotContains(t, []v1alpha1.MovePhase{v1alpha1.MoveDone, v1alpha1.MoveFailed, v1alpha1.MoveAborted}, now.Status.Phase,
			now.Status.Message)
		return false
	}, func() any { return now.Status }, func() any { return await.Events(t, bed.Home.Client(), made.Namespace) },
		func() any { return await.Events(t, bed.West.Client(), made.Namespace) }, func() any { return movers(t, made) })
	return now
}

// movers returns what there is in west of the movers of a move, and of their claims.
func movers(t *testing.T, made *v1alpha1.VolumeMove) []string {
	t.Helper()
	var found []string
	of := metav1.ListOptions{LabelSelector: keys.MoveOf + "=" + string(made.UID)}
	shadows := must.List(t, bed.Agents.ShadowPods(""), of)
	for _, shadow := range shadows.Items {
		found = append(found, fmt.Sprintf("ShadowPod %s/%s deleted %v start %v status %+v", shadow.Namespace, shadow.Name,
			shadow.DeletionTimestamp, shadow.Spec.Start, shadow.Status))
	}
	pods := must.List(t, bed.West.Client().CoreV1().Pods(""), of)
	for _, pod := range pods.Items {
		found = append(found, fmt.Sprintf("pod %s/%s on %q status %+v", pod.Namespace, pod.Name, pod.Spec.NodeName, pod.Status))
	}
	claims := must.List(t, bed.West.Client().CoreV1().PersistentVolumeClaims(""), of)
	for _, claim := range claims.Items {
		found = append(found, fmt.Sprintf("claim %s/%s %s volume %q annotations %v status %+v", claim.Namespace, claim.Name, claim.UID,
			claim.Spec.VolumeName, claim.Annotations, claim.Status))
	}
	return found
}

// spans says how long each phase took.
func spans(done *v1alpha1.VolumeMove) string {
	text := ""
	for i, phase := range done.Status.Phases {
		if i+1 < len(done.Status.Phases) {
			text += fmt.Sprintf("%s %s ", phase.Phase, done.Status.Phases[i+1].Since.Sub(phase.Since.Time).Round(time.Millisecond))
		}
	}
	return text
}

func act(t *testing.T, made *v1alpha1.VolumeMove, action v1alpha1.MoveAction) {
	t.Helper()
	must.Patch(t, moves(t, made.Namespace), made.Name, types.MergePatchType, []byte(`{"spec":{"action":"`+string(action)+`"}}`))
}

func TestAVolumeGoesToAnotherClusterAndBackWhileItsApplicationRuns(t *testing.T) {
	t.Parallel()
	namespace := space(t)
	deploys(t, namespace, "data")
	before := await.Claim(t, bed.Home.Client(), namespace, "data")
	for _, cluster := range []string{"west", keys.Home} {
		from, stop := folder(t, namespace, "data"), watchGap(t, namespace, "data")
		done := reaches(t, move(t, namespace, "data", cluster), v1alpha1.MoveDone, v1alpha1.MoveFailed, v1alpha1.MoveAborted)
		require.Equal(t, v1alpha1.MoveDone, done.Status.Phase, done.Status.Message)
		to := folder(t, namespace, "data")
		assert.NotEqual(t, from, to)
		require.Len(t, done.Status.Claims, 1)
		assert.NotEmpty(t, done.Status.Claims[0].SourceRoot)
		assert.Equal(t, done.Status.Claims[0].SourceRoot, done.Status.Claims[0].TargetRoot)
		require.NotNil(t, done.Status.Downtime)
		stop.report(t, done)
		requireNoAlarm(t, namespace, "data")
		counts(t, to, counted(t, to)+20)
		after := await.Claim(t, bed.Home.Client(), namespace, "data")
		assert.Equal(t, before.UID, after.UID)
		assert.NotContains(t, after.Finalizers, keys.MoveFinalizer)
		assert.NotContains(t, after.Labels, keys.Moving)
	}
}

// class makes a virtual class of which claims may ask for any real class, and have one
// at home else.
func class(t *testing.T, name, atHome string) {
	t.Helper()
	classes := bed.Home.Client().StorageV1().StorageClasses()
	made := must.Get(t, classes, fabric.Class)
	made.ObjectMeta = metav1.ObjectMeta{Name: name}
	made.Parameters = map[string]string{keys.LocalClass: atHome, keys.Classes: fabric.HomeWait + "," + fabric.HomeNow + "," + fabric.WestWait +
		"," + fabric.WestNow}
	must.Create(t, classes, made)
	t.Cleanup(func() { _ = classes.Delete(context.Background(), name, metav1.DeleteOptions{}) })
}

// realClass returns the real class that a claim's data is in.
func realClass(t *testing.T, namespace, claim string) string {
	t.Helper()
	volume := await.Volume(t, bed.Home.Client(), await.Claim(t, bed.Home.Client(), namespace, claim).Spec.VolumeName)
	ref, err := backing.RefOf(volume)
	require.NoError(t, err)
	cluster := bed.West
	if ref.Cluster == keys.Home {
		cluster = bed.Home
	}
	return *await.Claim(t, cluster.Client(), ref.Namespace, ref.Name).Spec.StorageClassName
}

func TestAVolumeGoesFromOneRealClassToAnother(t *testing.T) {
	testbed.NotInShort(t)
	t.Parallel()
	namespace := space(t)
	class(t, namespace, fabric.HomeWait)
	deploysIn(t, namespace, namespace, "data")
	require.Equal(t, fabric.HomeWait, realClass(t, namespace, "data"))
	for _, row := range []struct{ cluster, class string }{
		{keys.Home, fabric.HomeNow}, {keys.Home, fabric.HomeWait}, {"west", fabric.WestNow}, {keys.Home, fabric.HomeNow},
	} {
		from := folder(t, namespace, "data")
		done := reaches(t, move(t, namespace, "data", row.cluster, func(m *v1alpha1.VolumeMove) {
			m.Name, m.GenerateName, m.Spec.ClassName = "", "to-", row.class
		}), v1alpha1.MoveDone, v1alpha1.MoveFailed, v1alpha1.MoveAborted)
		require.Equal(t, v1alpha1.MoveDone, done.Status.Phase, done.Status.Message)
		assert.Equal(t, row.class, realClass(t, namespace, "data"))
		at := folder(t, namespace, "data")
		assert.NotEqual(t, from, at)
		counts(t, at, counted(t, at)+10)
	}
}

// east is a second remote cluster: the one of another bed, whose home is not used.
var east *fabric.Fabric

// joins starts east, and registers it at home.
func joins(t *testing.T) {
	t.Helper()
	mover, err := fabric.BuildMover(t.Context())
	require.NoError(t, err)
	east, err = fabric.Start(t.Context(),
		fabric.Options{ControllerManagerQPS: 500, Agent: true, Programs: map[string]string{"lodestone-mover": mover}})
	require.NoError(t, err)
	t.Cleanup(east.Stop)
	_, err = east.StartAgent(t.Context())
	require.NoError(t, err)
	system := must.Get(t, bed.Home.Client().CoreV1().Namespaces(), metav1.NamespaceSystem)
	kubeconfig, err := east.Tenant(t.Context(), func(home *remotev1alpha1.HomeCluster) {
		home.Name, home.Spec.ClusterUID = string(system.UID)[:8], string(system.UID)
	})
	require.NoError(t, err)
	require.NoError(t, bed.Register(t.Context(), "east", kubeconfig))
	t.Cleanup(func() { _ = bed.Remotes.Delete(context.Background(), "east", metav1.DeleteOptions{}) })
	require.NoError(t, bed.AwaitReady(t.Context(), "east", metav1.ConditionTrue))
	require.NoError(t, bed.AwaitNode(t.Context(), "east", corev1.ConditionTrue))
}

func TestAVolumeGoesFromOneRemoteClusterToAnother(t *testing.T) {
	testbed.NotInShort(t)
	namespace := space(t)
	joins(t)
	deploys(t, namespace, "data")
	before := await.Claim(t, bed.Home.Client(), namespace, "data")
	for _, cluster := range []string{"west", "east", "west", keys.Home} {
		done := reaches(t, move(t, namespace, "data", cluster, func(m *v1alpha1.VolumeMove) { m.Name, m.GenerateName = "", "to-" }),
			v1alpha1.MoveDone, v1alpha1.MoveFailed, v1alpha1.MoveAborted)
		require.Equal(t, v1alpha1.MoveDone, done.Status.Phase, done.Status.Message)
		assert.Equal(t, cluster, done.Status.Target.Cluster)
		t.Log("to", cluster, "downtime", done.Status.Downtime.Duration, spans(done))
		at := folder(t, namespace, "data")
		counts(t, at, counted(t, at)+10)
		nothingLeft(t, namespace, done)
	}
	assert.Equal(t, before.UID, await.Claim(t, bed.Home.Client(), namespace, "data").UID)
}

// database makes StatefulSet db, whose replicas count in a volume each that is at home.
func database(t *testing.T, namespace string) (claims []string) {
	t.Helper()
	claims = []string{"data-db-0", "data-db-1"}
	first := application(namespace, "first", claims[0])
	first.Spec.Volumes = append(first.Spec.Volumes, corev1.Volume{Name: "other", VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claims[1]}}})
	begins(t, namespace, first, claims...)
	pod := application(namespace, "db", "data")
	pod.Spec.Volumes = nil
	pod.Spec.Tolerations = append(pod.Spec.Tolerations, corev1.Toleration{Key: keys.RemoteTaint, Operator: corev1.TolerationOpExists})
	labels := map[string]string{"app": "db"}
	template := fabric.NewClaim(namespace, "data", fabric.Class)
	template.Namespace = ""
	sets := bed.Home.Client().AppsV1().StatefulSets(namespace)
	must.Create(t, sets, &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: "db"},
		Spec: appsv1.StatefulSetSpec{
			Replicas: ptr.To(int32(2)), PodManagementPolicy: appsv1.ParallelPodManagement, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template:             corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: pod.Spec},
			VolumeClaimTemplates: []corev1.PersistentVolumeClaim{*template},
		},
	})
	t.Cleanup(func() { _ = sets.Delete(context.Background(), "db", metav1.DeleteOptions{}) })
	for _, claim := range claims {
		at := folder(t, namespace, claim)
		counts(t, at, counted(t, at)+10)
	}
	return claims
}

func TestTheReplicasOfAStatefulSetMoveTogether(t *testing.T) {
	testbed.NotInShort(t)
	t.Parallel()
	namespace := space(t)
	claims := database(t, namespace)

	code, out, said := plugin(t, "move", "statefulset", "db", "-n", namespace, "--target-cluster", "west", "--together", "-o", "json")
	require.Zero(t, code, said)
	var list struct {
		Kind  string
		Items []v1alpha1.VolumeMove
	}
	require.NoError(t, json.Unmarshal([]byte(out), &list))
	assert.Equal(t, "List", list.Kind)
	require.Len(t, list.Items, 2)
	for i, claim := range claims {
		assert.Equal(t, "VolumeMove", list.Items[i].Kind)
		assert.Equal(t, []string{claim}, list.Items[i].Spec.Claims)
		at := folder(t, namespace, claim)
		counts(t, at, counted(t, at)+10)
	}
	for _, pod := range []string{"db-0", "db-1"} {
		assert.Equal(t, fabric.WestNode, bed.AwaitRunning(t, namespace, pod))
	}

	// The copies at the source are still kept.
	code, out, said = plugin(t, "move", "statefulset", "db", "-n", namespace, "--target-cluster", "west")
	require.Zero(t, code, said)
	assert.Equal(t, "nothing to do: all claims have their data there\n", out)
	await.Until(t, "what moved nothing is gone", func() bool {
		kept, err := moves(t, namespace).List(t.Context(), metav1.ListOptions{})
		return err == nil && len(kept.Items) == 2
	})

	code, _, said = plugin(t, "move", "statefulset", "db", "-n", namespace, "--target-cluster", keys.Home, "--together")
	require.Zero(t, code, "what is kept forbids nothing: %s", said)
	await.Until(t, "only the copies of the last moves are kept", func() bool {
		all, err := moves(t, namespace).List(t.Context(), metav1.ListOptions{})
		return err == nil && len(all.Items) == 4 && slices.IndexFunc(all.Items, func(m v1alpha1.VolumeMove) bool {
			first := slices.ContainsFunc(list.Items, func(before v1alpha1.VolumeMove) bool { return before.UID == m.UID })
			return first != (m.Status.Phase == v1alpha1.MoveDone)
		}) < 0
	})
}
