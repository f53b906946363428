package remotepods

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/must"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// cameHome returns the events that came from west to a namespace.
func cameHome(t *testing.T, namespace string) []corev1.Event {
	t.Helper()
	list := must.List(t, bed.Home.Client().CoreV1().Events(namespace), metav1.ListOptions{LabelSelector: keys.Cluster + "=west"})
	return list.Items
}

// found returns those that have a text.
func found(t *testing.T, namespace, text string) []corev1.Event {
	t.Helper()
	return slices.DeleteFunc(cameHome(t, namespace), func(e corev1.Event) bool { return !strings.Contains(e.Message, text) })
}

// comes waits until just one event with a text has come home, and returns it.
func comes(t *testing.T, namespace, text string, count int32) corev1.Event {
	t.Helper()
	var events []corev1.Event
	await.Until(t, fmt.Sprintf("%q came home, said %d times", text, count), func() bool {
		events = found(t, namespace, text)
		return len(events) == 1 && events[0].Count == count
	}, func() any { return await.Events(t, bed.Home.Client(), namespace) })
	return events[0]
}

// recorded records an event in west as the program there would that says so, and returns it.
func recorded(t *testing.T, about *corev1.Pod, kind, reason, message string) *corev1.Event {
	t.Helper()
	return must.Create(t, bed.West.Client().CoreV1().Events(about.Namespace), &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{GenerateName: about.Name + "."},
		InvolvedObject: corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: about.Namespace, Name: about.Name, UID: about.UID,
			FieldPath: "spec.containers{app}"},
		Type: kind, Reason: reason, Message: message, Count: 1, Source: corev1.EventSource{Component: "kubelet", Host: "west-1"},
		FirstTimestamp: metav1.Now(), LastTimestamp: metav1.Now(),
	})
}

// again counts an event of west up.
func again(t *testing.T, event *corev1.Event, count int) {
	t.Helper()
	must.Patch(t, bed.West.Client().CoreV1().Events(event.Namespace), event.Name, types.MergePatchType,
		fmt.Appendf(nil, `{"count": %d}`, count))
}

func TestWhatWestSaysOfAPodComesHome(t *testing.T) {
	namespace := open(t)
	create(t, newPod(namespace, "db"))
	home, west := runs(t, namespace, "db")
	mount := recorded(t, west, corev1.EventTypeWarning, "FailedMount", "MountVolume.SetUp failed for volume \"data\": no such device")
	got := comes(t, namespace, "no such device", 1)
	assert.Equal(t, corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: namespace, Name: "db", UID: home.UID,
		FieldPath: "spec.containers{app}"}, got.InvolvedObject)
	assert.Equal(t, corev1.EventTypeWarning, got.Type)
	assert.Equal(t, "FailedMount", got.Reason)
	assert.Equal(t, "kubelet, cluster west", got.Source.Component)
	assert.Equal(t, "cluster west: MountVolume.SetUp failed for volume \"data\": no such device", got.Message)
	again(t, mount, 2)
	comes(t, namespace, "no such device", 2)

	// As client-go records events, those of schedulers too.
	broadcaster := record.NewBroadcaster()
	broadcaster.StartRecordingToSink(&corev1client.EventSinkImpl{Interface: bed.West.Client().CoreV1().Events("")})
	defer broadcaster.Shutdown()
	recorder := broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "kubelet"})
	recorder.Event(west, corev1.EventTypeNormal, "Pulled", "Successfully pulled image \"app\"")
	comes(t, namespace, "Successfully pulled image", 1)
	recorder.Event(west, corev1.EventTypeWarning, "Unhealthy", "Readiness probe failed: 503")
	comes(t, namespace, "Readiness probe failed", 1)
	recorder.Event(west, corev1.EventTypeWarning, "Unhealthy", "Readiness probe failed: 503")
	comes(t, namespace, "Readiness probe failed", 2)

	// The program starts anew: nothing comes twice, and what happens again is counted up.
	before := len(cameHome(t, namespace))
	require.NoError(t, program.Stop())
	restart(t)
	said := 2
	await.Until(t, "what happens from then on comes home", func() bool {
		said++
		again(t, mount, said)
		got := found(t, namespace, "no such device")
		return len(got) == 1 && got[0].Count > 2
	}, func() any { return await.Events(t, bed.Home.Client(), namespace) })
	comes(t, namespace, "no such device", int32(said))
	recorded(t, west, corev1.EventTypeWarning, "OOMKilling", "Memory cgroup out of memory")
	comes(t, namespace, "Memory cgroup out of memory", 1)
	assert.Len(t, cameHome(t, namespace), before+1)
	shown := must.Kubectl(t, bed.Home, "", "get", "events", "-n", namespace, "-l", keys.Cluster+"=west", "-o", "wide")
	t.Log(shown)
}

// recordedOfClaim records an event about a claim in west, as its provisioner there would, and returns it.
func recordedOfClaim(t *testing.T, about *corev1.PersistentVolumeClaim, kind, reason, message string) *corev1.Event {
	t.Helper()
	return must.Create(t, bed.West.Client().CoreV1().Events(about.Namespace), &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{GenerateName: about.Name + "."},
		InvolvedObject: corev1.ObjectReference{APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: about.Namespace, Name: about.Name,
			UID: about.UID},
		Type: kind, Reason: reason, Message: message, Count: 1, Source: corev1.EventSource{Component: "disk.west.test_provisioner-0"},
		FirstTimestamp: metav1.Now(), LastTimestamp: metav1.Now(),
	})
}

func TestWhatWestSaysOfAClaimComesHome(t *testing.T) {
	namespace := open(t)
	claims := bed.Home.Client().CoreV1().PersistentVolumeClaims(namespace)
	home := must.Create(t, claims, fabric.NewClaim(namespace, "data", fabric.Class))
	pod := newPod(namespace, "db")
	pod.Spec.Volumes = fabric.NewPod(namespace, "db", "data").Spec.Volumes
	create(t, pod)
	runs(t, namespace, "db")
	west := await.Claim(t, bed.West.Client(), namespace, "data")
	require.NotNil(t, west)
	// Others there: a claim of west's owner, an earlier one of the name, and one that says that it is home's.
	owners, earlier := fabric.NewClaim(namespace, "owner", fabric.WestWait), west.DeepCopy()
	earlier.UID = "earlier-uid"
	forged := fabric.NewClaim(namespace, "forged", fabric.WestWait)
	forged.Labels, forged.Annotations = west.Labels, map[string]string{keys.Claim: west.Annotations[keys.Claim]}
	for _, claim := range []*corev1.PersistentVolumeClaim{owners, forged} {
		made := must.Create(t, bed.West.Client().CoreV1().PersistentVolumeClaims(namespace), claim)
		*claim = *made
	}
	for _, claim := range []*corev1.PersistentVolumeClaim{owners, earlier, forged} {
		recordedOfClaim(t, claim, corev1.EventTypeWarning, "ProvisioningFailed", "of another claim")
	}
	recordedOfClaim(t, west, corev1.EventTypeNormal, "Provisioning", "disk 7 is being made")
	failed := recordedOfClaim(t, west, corev1.EventTypeWarning, "ProvisioningFailed", "the pool is full")
	comes(t, namespace, "disk 7 is being made", 1)
	got := comes(t, namespace, "the pool is full", 1)
	assert.Equal(t, corev1.ObjectReference{APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: namespace, Name: "data", UID: home.UID},
		got.InvolvedObject)
	assert.Equal(t, "disk.west.test_provisioner-0, cluster west", got.Source.Component)
	again(t, failed, 7)
	comes(t, namespace, "the pool is full", 7)
	await.Always(t, "nothing of the others comes", func() bool { return len(found(t, namespace, "of another claim")) == 0 })

	shown := must.Kubectl(t, bed.Home, "", "events", "-n", namespace, "--for", "pvc/data")
	t.Log(shown)
	assert.Contains(t, shown, "cluster west: the pool is full")
	assert.Contains(t, shown, "cluster west: disk 7 is being made")
	described := must.Kubectl(t, bed.Home, "", "describe", "pvc", "data", "-n", namespace)
	assert.Contains(t, described, "cluster west: the pool is full")
}

// TestWhatIsSaidInANewNamespaceBeforeItsEventsAreWatchedComesHome has the first pod of a namespace run
// before home's first request for events there is answered.
func TestWhatIsSaidInANewNamespaceBeforeItsEventsAreWatchedComesHome(t *testing.T) {
	testbed.Require(t)
	way.hears(false)
	t.Cleanup(func() { way.hears(true) })
	namespace := open(t)
	create(t, newPod(namespace, "first"))
	_, west := runs(t, namespace, "first")
	recorded(t, west, corev1.EventTypeWarning, "FailedMount", "said only early")
	late := recorded(t, west, corev1.EventTypeWarning, "Unhealthy", "said early and late")
	assert.Empty(t, cameHome(t, namespace))
	way.hears(true)
	comes(t, namespace, "said only early", 1)
	comes(t, namespace, "said early and late", 1)
	again(t, late, 2)
	comes(t, namespace, "said early and late", 2)
	assert.Len(t, cameHome(t, namespace), 2)
}

func TestOfOthersPodsNothingComesHome(t *testing.T) {
	namespace := open(t)
	create(t, newPod(namespace, "db"))
	_, west := runs(t, namespace, "db")
	// A pod of west's owner, an earlier pod of the name, and one that says that it is home's.
	owners, earlier, forged := west.DeepCopy(), west.DeepCopy(), west.DeepCopy()
	owners.Name, owners.UID = "owner", "owner-uid"
	earlier.UID = "earlier-uid"
	forged.ObjectMeta = metav1.ObjectMeta{Namespace: namespace, Name: "forged", Labels: west.Labels}
	forged.Spec = corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "app"}}, NodeName: west.Spec.NodeName}
	forged = must.Create(t, bed.West.Client().CoreV1().Pods(namespace), forged)
	for _, pod := range []*corev1.Pod{owners, earlier, forged} {
		recorded(t, pod, corev1.EventTypeWarning, "FailedMount", "of another pod")
	}
	recorded(t, west, corev1.EventTypeWarning, "no word", "of another pod")
	recorded(t, west, corev1.EventTypeWarning, "FailedMount", "of this pod")
	comes(t, namespace, "of this pod", 1)
	await.Always(t, "nothing of the others comes", func() bool {
		for _, event := range cameHome(t, namespace) {
			if strings.Contains(event.Message, "of another pod") {
				return false
			}
		}
		return true
	})
}

func TestAWestThatSaysTooMuchDoesNotFloodHome(t *testing.T) {
	namespace := open(t)
	create(t, newPod(namespace, "noisy"))
	create(t, newPod(namespace, "quiet"))
	_, noisy := runs(t, namespace, "noisy")
	_, quiet := runs(t, namespace, "quiet")
	for i := range 200 {
		recorded(t, noisy, corev1.EventTypeNormal, "Noise", fmt.Sprintf("\x1b[31m%d %s", i, strings.Repeat("x", 900)))
	}
	recorded(t, noisy, corev1.EventTypeWarning, "FailedMount", "in between")
	recorded(t, quiet, corev1.EventTypeWarning, "FailedMount", "beside it")
	comes(t, namespace, "in between", 1)
	comes(t, namespace, "beside it", 1)
	noise := 0
	for _, event := range cameHome(t, namespace) {
		assert.NotContains(t, event.Message, "\x1b")
		if event.Reason == "Noise" {
			noise++
		}
	}
	assert.LessOrEqual(t, noise, 25)
}
