package moves

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/must"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/backing"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/site"
)

// says waits until the status of a move says something.
func says(t *testing.T, made *v1alpha1.VolumeMove, words string) {
	t.Helper()
	var now *v1alpha1.VolumeMove
	await.Until(t, "the move says "+words, func() bool {
		now = must.Get(t, moves(t, made.Namespace), made.Name)
		return strings.Contains(now.Status.Message, words)
	}, func() any { return now.Status })
}

func TestATargetThatStaysAwayLetsThePodsGoOnAtTheSource(t *testing.T) {
	namespace := space(t)
	deploys(t, namespace, "data", stubborn)
	from := folder(t, namespace, "data")
	made := move(t, namespace, "data", "west", func(m *v1alpha1.VolumeMove) {
		m.Spec.RollBackAfter = &metav1.Duration{Duration: 2 * time.Second}
	})
	reaches(t, made, v1alpha1.MoveQuiesce, v1alpha1.MoveFence)
	require.NoError(t, bed.West.PauseAPIServer())
	away := true
	comes := func() {
		if away {
			away = false
			require.NoError(t, bed.West.ResumeAPIServer())
		}
	}
	defer comes()
	back := reaches(t, made, v1alpha1.MoveRollBack)
	t.Log(back.Status.Message)
	assert.Contains(t, back.Status.Message, "spec.rollBackAfter")
	counts(t, from, counted(t, from)+20)
	assert.Equal(t, from, folder(t, namespace, "data"))
	comes()
	failed := reaches(t, made, v1alpha1.MoveFailed, v1alpha1.MoveDone, v1alpha1.MoveAborted)
	assert.Equal(t, v1alpha1.MoveFailed, failed.Status.Phase)
	nothingLeft(t, namespace, made)
}

func TestAMoveWaitsForTheNodeWhosePodWasDeletedByForce(t *testing.T) {
	testbed.NotInShort(t)
	namespace := space(t)
	deploys(t, namespace, "data", heavy)
	core := bed.Home.Client().CoreV1()
	pods := must.List(t, core.Pods(namespace), metav1.ListOptions{LabelSelector: "app=data"})
	require.Len(t, pods.Items, 1)
	pod := pods.Items[0]
	made := move(t, namespace, "data", "west", slowly, func(m *v1alpha1.VolumeMove) { m.Spec.Passes = ptr.To(int32(1)) })
	reaches(t, made, v1alpha1.MovePreCopy)

	// Its node falls silent; the pod goes on there, but for home it is gone.
	require.NoError(t, bed.HomeNodes.SetAlive(pod.Spec.NodeName, false))
	alive := func() { require.NoError(t, bed.HomeNodes.SetAlive(pod.Spec.NodeName, true)) }
	defer alive()
	unready := []byte(`{"status":{"conditions":[{"type":"Ready","status":"Unknown","reason":"NodeStatusUnknown"}]}}`)
	_, err := core.Nodes().PatchStatus(t.Context(), pod.Spec.NodeName, unready)
	require.NoError(t, err)
	require.NoError(t, core.Pods(namespace).Delete(t.Context(), pod.Name, metav1.DeleteOptions{GracePeriodSeconds: ptr.To(int64(0))}))

	says(t, made, "nobody writes on node "+pod.Spec.NodeName)
	await.Never(t, "the volume must not be taken from a pod that may still write", func() bool {
		volume := await.Volume(t, bed.Home.Client(), await.Claim(t, bed.Home.Client(), namespace, "data").Spec.VolumeName)
		return volume == nil || volume.DeletionTimestamp != nil
	})
	// It comes back, and ends what nobody wants there any more.
	bed.HomePods.End(namespace, pod.Name)
	alive()
	done := reaches(t, made, v1alpha1.MoveDone, v1alpha1.MoveFailed, v1alpha1.MoveAborted)
	require.Equal(t, v1alpha1.MoveDone, done.Status.Phase, done.Status.Message)
	at := folder(t, namespace, "data")
	counts(t, at, counted(t, at)+10)
}

func TestAVolumeThatIsUsedInTheRemoteClusterIsWaitedFor(t *testing.T) {
	testbed.NotInShort(t)
	t.Parallel()
	namespace := space(t)
	deploys(t, namespace, "data")
	done := reaches(t, move(t, namespace, "data", "west"), v1alpha1.MoveDone, v1alpha1.MoveFailed)
	require.Equal(t, v1alpha1.MoveDone, done.Status.Phase, done.Status.Message)
	volume := await.Volume(t, bed.Home.Client(), await.Claim(t, bed.Home.Client(), namespace, "data").Spec.VolumeName)
	ref, err := backing.RefOf(volume)
	require.NoError(t, err)
	shadow := await.Claim(t, bed.West.Client(), ref.Namespace, ref.Name)
	attachments := bed.West.Client().StorageV1().VolumeAttachments()
	attached := must.Create(t, attachments, &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: "moves-" + namespace},
		Spec: storagev1.VolumeAttachmentSpec{
			Attacher: "disk.west.test", NodeName: "west-gone",
			Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &shadow.Spec.VolumeName},
		}})

	// A pod of west's owner, behind more pods than are read at once.
	user := fabric.NewPod(namespace, "zz-user", shadow.Name)
	crowd := []*corev1.Pod{user}
	for i := range site.PageSize + 50 {
		crowd = append(crowd, fabric.NewPod(namespace, fmt.Sprintf("crowd-%03d", i)))
	}
	there := bed.West.Client().CoreV1().Pods(namespace)
	var making errgroup.Group
	making.SetLimit(16)
	for _, pod := range crowd {
		pod.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "test.lodestone.dev/wait"}}
		making.Go(func() error {
			_, err := there.Create(t.Context(), pod, metav1.CreateOptions{})
			return err
		})
	}
	require.NoError(t, making.Wait())
	t.Cleanup(func() {
		_ = there.DeleteCollection(context.Background(), metav1.DeleteOptions{}, metav1.ListOptions{FieldSelector: "spec.nodeName="})
	})

	made := move(t, namespace, "data", keys.Home)
	says(t, made, "pod zz-user in west")
	must.Delete(t, there, user.Name)
	says(t, made, "node west-gone, which it is attached to")
	await.Never(t, "its virtual volume must stay", func() bool {
		volume := await.Volume(t, bed.Home.Client(), volume.Name)
		return volume == nil || volume.DeletionTimestamp != nil
	})
	must.Delete(t, attachments, attached.Name)
	done = reaches(t, made, v1alpha1.MoveDone, v1alpha1.MoveFailed, v1alpha1.MoveAborted)
	require.Equal(t, v1alpha1.MoveDone, done.Status.Phase, done.Status.Message)
}

func TestAPodWithoutAnOwnerHasItsMoveRefused(t *testing.T) {
	t.Parallel()
	namespace := space(t)
	makes(t, fabric.NewClaim(namespace, "data", fabric.Class), fabric.AtHome(application(namespace, "bare", "data")))
	refused := reaches(t, move(t, namespace, "data", "west"), v1alpha1.MoveFailed, v1alpha1.MoveDone)
	assert.Equal(t, v1alpha1.MoveFailed, refused.Status.Phase)
	assert.Contains(t, refused.Status.Message, `pod "bare" uses the volume and nobody would make it anew`)
	from := folder(t, namespace, "data")
	counts(t, from, counted(t, from)+5)

	// Without it the claim moves, and a pod that is made meanwhile waits and runs there.
	core := bed.Home.Client().CoreV1()
	must.Delete(t, core.Pods(namespace), "bare")
	await.Until(t, "the pod is gone", func() bool {
		_, err := core.Pods(namespace).Get(t.Context(), "bare", metav1.GetOptions{})
		return err != nil
	})
	done := reaches(t, move(t, namespace, "data", "west", func(m *v1alpha1.VolumeMove) { m.Name = "again" }), v1alpha1.MoveDone,
		v1alpha1.MoveFailed)
	require.Equal(t, v1alpha1.MoveDone, done.Status.Phase, done.Status.Message)
	pod := application(namespace, "bare", "data")
	pod.Spec.Tolerations = append(pod.Spec.Tolerations, corev1.Toleration{Key: keys.RemoteTaint, Operator: corev1.TolerationOpExists})
	must.Create(t, core.Pods(namespace), pod)
	assert.Equal(t, fabric.WestNode, bed.AwaitRunning(t, namespace, "bare"))
}

// tidy has an application write something two seconds after it was asked to end.
func tidy(pod *corev1.Pod) {
	pod.Spec.TerminationGracePeriodSeconds = ptr.To(int64(5))
	pod.Spec.Containers[0].Command[2] = "trap 'sleep 2; echo last words > /data/last; sync /data/last; exit' TERM; " +
		pod.Spec.Containers[0].Command[2]
}

// words returns what such an application has written last.
func words(t *testing.T, folder string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(folder, "last"))
	if !os.IsNotExist(err) {
		require.NoError(t, err)
	}
	return string(data)
}

func TestNothingIsLostOfAPodThatWritesOnAfterAForcedDeletion(t *testing.T) {
	testbed.NotInShort(t)
	t.Parallel()
	namespace := space(t)
	deploys(t, namespace, "data", tidy)
	core := bed.Home.Client().CoreV1()
	writesOn(t, core, namespace, "west", metav1.ListOptions{LabelSelector: "app=data"})
}

func TestNothingIsLostOfAPodThatIsDeletedByForceInItsRemoteCluster(t *testing.T) {
	testbed.NotInShort(t)
	t.Parallel()
	namespace := space(t)
	deploys(t, namespace, "data", tidy)
	there := reaches(t, move(t, namespace, "data", "west"), v1alpha1.MoveDone, v1alpha1.MoveFailed)
	require.Equal(t, v1alpha1.MoveDone, there.Status.Phase, there.Status.Message)
	at := folder(t, namespace, "data")
	counts(t, at, counted(t, at)+10)
	require.NoError(t, os.Remove(filepath.Join(at, "last")))
	writesOn(t, bed.West.Client().CoreV1(), namespace, keys.Home, metav1.ListOptions{LabelSelector: keys.PodUID})
}

// writesOn moves the claim data of a namespace, and deletes the pod that uses it by force
// in the middle, in the cluster where that is.
func writesOn(t *testing.T, core corev1client.CoreV1Interface, namespace, cluster string, those metav1.ListOptions) {
	t.Helper()
	from := folder(t, namespace, "data")
	pods := must.List(t, core.Pods(namespace), those)
	require.Len(t, pods.Items, 1)
	pod := pods.Items[0]

	made := move(t, namespace, "data", cluster, func(m *v1alpha1.VolumeMove) { m.Spec.KeepSourceFor = &metav1.Duration{Duration: time.Hour} })
	reaches(t, made, v1alpha1.MoveQuiesce)
	await.Until(t, "the pod is to end", func() bool {
		leaving := must.Get(t, core.Pods(namespace), pod.Name)
		return leaving.DeletionTimestamp != nil
	})
	require.NoError(t, core.Pods(namespace).Delete(t.Context(), pod.Name, metav1.DeleteOptions{GracePeriodSeconds: ptr.To(int64(0))}))
	require.Empty(t, words(t, from), "it is gone for the API server, and goes on")

	said := ""
	await.Until(t, "the pods go on at the target", func() bool {
		now := must.Get(t, moves(t, namespace), made.Name)
		if strings.Contains(now.Status.Message, "deleted by force") {
			said = now.Status.Message
		}
		require.NotContains(t, []v1alpha1.MovePhase{v1alpha1.MoveRollBack, v1alpha1.MoveFailed}, now.Status.Phase, now.Status.Message)
		return now.Status.Phase == v1alpha1.MoveRetain
	}, func() any { return said })
	await.Until(t, "it has ended", func() bool { return words(t, from) != "" })
	to := folder(t, namespace, "data")
	assert.Equal(t, "last words\n", words(t, to), "what it wrote last is not at the target")
	assert.Contains(t, said, "pod "+pod.Name+", which may still write on node "+pod.Spec.NodeName)
	counts(t, to, counted(t, to)+10)

	act(t, made, v1alpha1.ActionFinalize)
	done := reaches(t, made, v1alpha1.MoveDone)
	nothingLeft(t, namespace, done)
}

// gate is what pods wait at while a volume of theirs is moved.
const gate = "lodestone.dev/moving"

func gated(pod *corev1.Pod) bool {
	return slices.Contains(pod.Spec.SchedulingGates, corev1.PodSchedulingGate{Name: gate})
}

// lock sets or, with an empty value, takes off the label that locks a claim.
func lock(t *testing.T, namespace, claim, value string) {
	t.Helper()
	patch := fmt.Appendf(nil, `{"metadata":{"labels":{%q:%q}}}`, gate, value)
	if value == "" {
		patch = fmt.Appendf(nil, `{"metadata":{"labels":{%q:null}}}`, gate)
	}
	must.Patch(t, bed.Home.Client().CoreV1().PersistentVolumeClaims(namespace), claim, types.MergePatchType, patch)
	if bed.Webhook == nil {
		return
	}
	// As the provisioner does, which these tests stop.
	label := fmt.Appendf(nil, `{"metadata":{"labels":{%q:%q}}}`, keys.Moving, keys.MovingNow)
	must.Patch(t, bed.Home.Client().CoreV1().Namespaces(), namespace, types.MergePatchType, label)
}

// tries asks what the API server would make of a pod.
func tries(t *testing.T, pod *corev1.Pod) (*corev1.Pod, error) {
	t.Helper()
	return bed.Home.Client().CoreV1().Pods(pod.Namespace).Create(t.Context(), pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
}

func TestPodsOfALockedClaimWaitAtTheGateWhateverOwnsThem(t *testing.T) {
	namespace, other := space(t), space(t)
	// It unlocks claims that no move holds.
	require.NoError(t, provisioner.Stop())
	defer resume(t)
	for _, claim := range []*corev1.PersistentVolumeClaim{
		fabric.NewClaim(namespace, "data", fabric.Class), fabric.NewClaim(namespace, "free", fabric.Class),
		fabric.NewClaim(other, "data", fabric.Class),
	} {
		must.Create(t, bed.Home.Client().CoreV1().PersistentVolumeClaims(claim.Namespace), claim)
	}
	lock(t, namespace, "data", "true")
	await.Until(t, "the gate is closed", func() bool {
		pod, err := tries(t, fabric.NewPod(namespace, "db", "data"))
		return err == nil && gated(pod)
	})

	for name, row := range map[string]struct {
		pod  *corev1.Pod
		want bool
	}{
		"one of several claims":        {fabric.NewPod(namespace, "db", "free", "data"), true},
		"another claim":                {fabric.NewPod(namespace, "db", "free"), false},
		"no claim":                     {fabric.NewPod(namespace, "db"), false},
		"its namesake elsewhere":       {fabric.NewPod(other, "db", "data"), false},
		"a scratch volume of its name": {fabric.WithScratch(fabric.NewPod(namespace, "db"), fabric.Class), false},
	} {
		pod, err := tries(t, row.pod)
		require.NoError(t, err, name)
		assert.Equal(t, row.want, gated(pod), name)
	}

	held := fabric.NewPod(namespace, "db", "data")
	held.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "example.com/own"}}
	pod, err := tries(t, held)
	require.NoError(t, err)
	assert.Len(t, pod.Spec.SchedulingGates, 2, "the gates of others stay")

	bound := fabric.NewPod(namespace, "db", "data")
	bound.Spec.NodeName = "home-1"
	_, err = tries(t, bound)
	require.True(t, apierrors.IsForbidden(err), "%v", err)
	assert.Contains(t, err.Error(), "the volume of claim data is being moved: leave spec.nodeName out")

	// An owner that makes pods as it likes has them wait.
	labels := map[string]string{"app": "db"}
	template := fabric.NewPod(namespace, "", "data")
	template.Spec.TerminationGracePeriodSeconds = ptr.To(int64(0))
	must.Create(t, bed.Home.Client().AppsV1().Deployments(namespace), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "db"},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To(int32(2)), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: template.Spec},
		},
	})
	var pods *corev1.PodList
	await.Until(t, "the Deployment has made its pods", func() bool {
		pods = must.List(t, bed.Home.Client().CoreV1().Pods(namespace), metav1.ListOptions{LabelSelector: "app=db"})
		return len(pods.Items) == 2
	})
	for i := range pods.Items {
		assert.True(t, gated(&pods.Items[i]))
	}

	lock(t, namespace, "data", "")
	await.Until(t, "the gate is open", func() bool {
		pod, err := tries(t, fabric.NewPod(namespace, "new", "data"))
		return err == nil && !gated(pod)
	})
}

func TestTheProvisionerMayDoNothingToPodsButEndThemAndOpenTheirGate(t *testing.T) {
	namespace := space(t)
	kubeconfig, err := bed.Home.ServiceAccountConfig(t.Context(), fabric.System, "lodestone-provisioner")
	require.NoError(t, err)
	provisioner, err := kubernetes.NewForConfig(kubeconfig)
	require.NoError(t, err)
	pods := provisioner.CoreV1().Pods(namespace)

	create := func(name string, claims ...string) *corev1.Pod {
		pod := fabric.NewPod(namespace, name, claims...)
		if name == "remote" {
			pod.Finalizers = []string{keys.RemotePodFinalizer}
		}
		pod.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: gate}, {Name: "example.com/own"}}
		return must.Create(t, bed.Home.Client().CoreV1().Pods(namespace), pod)
	}
	create("db", "data")
	create("web")
	create("remote", "data")
	patch := func(name, patch string) error {
		_, err := pods.Patch(t.Context(), name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{})
		return err
	}
	open := `{"spec":{"schedulingGates":[{"$patch":"delete","name":"lodestone.dev/moving"}]}}`
	for name, row := range map[string]struct{ pod, patch, refusal string }{
		"an image":      {"db", `{"spec":{"containers":[{"name":"app","image":"evil"}]}}`, "nothing of a pod but its gate"},
		"a node":        {"db", `{"spec":{"nodeSelector":{"a":"b"}}}`, "nothing of a pod but its gate"},
		"a label":       {"db", `{"metadata":{"labels":{"app":"evil"}}}`, "nothing of a pod but its gate"},
		"an annotation": {"db", `{"metadata":{"annotations":{"a":"b"}}}`, "nothing of a pod but its gate"},
		"a finalizer":   {"db", `{"metadata":{"finalizers":["a.example.com/b"]}}`, "only the finalizer of remote pods off a pod"},
		"a live pod of a cluster": {"remote", `{"metadata":{"$deleteFromPrimitiveList/finalizers":["lodestone.dev/remote-pod"]}}`,
			"only of one that is being deleted"},
		"the gate of another":   {"db", `{"spec":{"schedulingGates":[{"$patch":"delete","name":"example.com/own"}]}}`, "only its own gate"},
		"a pod without a claim": {"web", open, "only pods that use a claim"},
	} {
		err := patch(row.pod, row.patch)
		if assert.True(t, apierrors.IsForbidden(err), "%s: %v", name, err) {
			assert.Contains(t, err.Error(), row.refusal, name)
		}
	}
	require.True(t, apierrors.IsForbidden(pods.Delete(t.Context(), "web", metav1.DeleteOptions{})))
	for _, dryRun := range [][]string{nil, {metav1.DryRunAll}} {
		_, err := pods.Create(t.Context(), fabric.NewPod(namespace, "new", "data"), metav1.CreateOptions{DryRun: dryRun})
		require.True(t, apierrors.IsForbidden(err), "%v", err)
		assert.Contains(t, err.Error(), "the provisioner makes no pods here")
	}

	require.NoError(t, patch("db", open))
	pod := must.Get(t, pods, "db")
	assert.Equal(t, []corev1.PodSchedulingGate{{Name: "example.com/own"}}, pod.Spec.SchedulingGates)
	must.Delete(t, pods, "db")
}

// podsOf returns the pods of a Deployment.
func podsOf(t *testing.T, namespace, app string) []corev1.Pod {
	t.Helper()
	pods := must.List(t, bed.Home.Client().CoreV1().Pods(namespace), metav1.ListOptions{LabelSelector: "app=" + app})
	return pods.Items
}

// sender returns the node of the mover at home of a move; empty while there is none.
func sender(t *testing.T, made *v1alpha1.VolumeMove) string {
	t.Helper()
	pods := must.List(t, bed.Home.Client().CoreV1().Pods(""), metav1.ListOptions{LabelSelector: keys.MoveOf + "=" + string(made.UID)})
	for _, pod := range pods.Items {
		if pod.DeletionTimestamp == nil {
			return pod.Spec.NodeName
		}
	}
	return ""
}

// wants has the pods of a Deployment stop before new ones start, on a node.
func wants(t *testing.T, namespace, name, affinity string) {
	t.Helper()
	patch := fmt.Sprintf(`{"spec":{"strategy":{"type":"Recreate","rollingUpdate":null},"template":{"spec":{"affinity":%s}}}}`, affinity)
	must.Patch(t, bed.Home.Client().AppsV1().Deployments(namespace), name, types.MergePatchType, []byte(patch))
}

func TestAMoverMakesWayForAPodThatGoesToAnotherNode(t *testing.T) {
	testbed.NotInShort(t)
	t.Parallel()
	namespace := space(t)
	class(t, namespace, fabric.HomeNow) // its volumes are reached from both nodes
	deploysIn(t, namespace, namespace, "data")
	from := folder(t, namespace, "data")
	fill(t, from)
	made := move(t, namespace, "data", "west", limited)
	reaches(t, made, v1alpha1.MovePreCopy)
	var before string
	await.Until(t, "the mover runs", func() bool { before = sender(t, made); return before != "" })
	require.Equal(t, before, podsOf(t, namespace, "data")[0].Spec.NodeName, "beside the pod")

	other := map[string]string{"home-1": "home-2", "home-2": "home-1"}[before]
	wants(t, namespace, "data",
		fmt.Sprintf(`{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[{"matchFields":[{"key":"metadata.name","operator":"In","values":[%q]}]}]}}}`, other))
	var running []corev1.Pod
	await.Until(t, "the pod runs on the other node", func() bool {
		running = podsOf(t, namespace, "data")
		return len(running) == 1 && running[0].Spec.NodeName == other && running[0].Status.Phase == corev1.PodRunning
	}, func() any { return running }, func() any { return await.Events(t, bed.Home.Client(), namespace) },
		func() any { return movers(t, made) })
	counts(t, from, counted(t, from)+10)
	await.Until(t, "the mover runs beside it again", func() bool { return sender(t, made) == other }, func() any { return movers(t, made) })

	wants(t, namespace, "data", "null")
	done := reaches(t, made, v1alpha1.MoveDone, v1alpha1.MoveFailed, v1alpha1.MoveAborted)
	require.Equal(t, v1alpha1.MoveDone, done.Status.Phase, done.Status.Message)
	to := folder(t, namespace, "data")
	assert.NotEqual(t, from, to)
	counts(t, to, counted(t, to)+10)
	nothingLeft(t, namespace, done)
}
