package moves

import (
	"context"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/must"
	"github.com/lodestone-storage/lodestone/e2e/sidecars"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// attached is a driver of home whose volumes are attached to nodes: by the attach-detach
// controller of the control plane and the real external-attacher. The nodes, which are
// played, wait for that, and say which volumes they use.
const attached = "attached.home.test"

// attaches starts that driver, and makes a virtual class that has it at home.
func attaches(t *testing.T, class string) *sidecars.Driver {
	t.Helper()
	programs, err := sidecars.Build(t.Context(), os.Stderr)
	require.NoError(t, err)
	driver, err := sidecars.Start(context.WithoutCancel(t.Context()), bed.Home, programs,
		sidecars.Options{Name: attached, Pool: 100 << 30, Attach: true})
	require.NoError(t, err)
	t.Cleanup(driver.Kill)
	classes := bed.Home.Client().StorageV1().StorageClasses()
	must.Create(t, classes, driver.Class(attached, storagev1.VolumeBindingWaitForFirstConsumer))
	must.Create(t, classes, &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: class}, Provisioner: keys.Driver,
		VolumeBindingMode: ptr.To(storagev1.VolumeBindingWaitForFirstConsumer),
		Parameters:        map[string]string{keys.LocalClass: attached, keys.RemoteClass: fabric.WestWait},
	})
	t.Cleanup(func() { _ = classes.Delete(context.Background(), class, metav1.DeleteOptions{}) })
	return driver
}

// attachedAs returns the names of the volumes under which the data of a claim at home is
// attached to nodes.
func attachedAs(t *testing.T, namespace, claim string) (names []string) {
	t.Helper()
	virtual := await.Claim(t, bed.Home.Client(), namespace, claim).Spec.VolumeName
	real, _ := realOf(t, namespace, claim)
	all := must.List(t, bed.Home.Client().StorageV1().VolumeAttachments())
	for i := range all.Items {
		if name := *all.Items[i].Spec.Source.PersistentVolumeName; name == virtual || name == real.Name {
			names = append(names, name)
		}
	}
	return names
}

// TestAVolumeThatIsAttachedToItsNodeIsDetachedAndMoves is about drivers as those of most
// clouds. The virtual volume is the one that is attached, and its attacher keeps it until
// it is detached, which does not happen while a mover on that node has it too.
func TestAVolumeThatIsAttachedToItsNodeIsDetachedAndMoves(t *testing.T) {
	testbed.NotInShort(t)
	namespace := space(t)
	driver := attaches(t, namespace)
	deploysIn(t, namespace, namespace, "data")
	claim := await.Claim(t, bed.Home.Client(), namespace, "data")
	require.Equal(t, []string{claim.Spec.VolumeName}, attachedAs(t, namespace, "data"), "the pod came first")
	volume := await.Volume(t, bed.Home.Client(), claim.Spec.VolumeName)
	require.Contains(t, volume.Finalizers, ofAttacher)
	released := watchReleases(t)

	for _, cluster := range []string{"west", keys.Home} {
		if cluster == keys.Home {
			require.NoError(t, driver.Fail("ControllerPublishVolume", sidecars.Fault{Code: "UNAVAILABLE", Message: "the storage is away"}))
		}
		from := folder(t, namespace, "data")
		made := move(t, namespace, "data", cluster)
		if cluster == keys.Home {
			saysWhyItsMoverWaits(t, driver, made)
		}
		done := reaches(t, made, v1alpha1.MoveDone, v1alpha1.MoveFailed, v1alpha1.MoveAborted)
		require.Equal(t, v1alpha1.MoveDone, done.Status.Phase, done.Status.Message)
		t.Log("to", cluster, "downtime", done.Status.Downtime.Duration, spans(done))
		at := folder(t, namespace, "data")
		assert.NotEqual(t, from, at)
		counts(t, at, counted(t, at)+10)
		left, err := driver.Volumes()
		require.NoError(t, err)
		assert.Len(t, left, map[string]int{"west": 0, keys.Home: 1}[cluster], "what was left is not attached, and gone")
	}

	// A storage that does not detach: the move goes back by itself. The pods go on when the
	// attach-detach controller has seen that it does again, which takes minutes.
	deploysIn(t, namespace, namespace, "stuck")
	at := folder(t, namespace, "stuck")
	require.NoError(t, driver.Fail("ControllerUnpublishVolume", sidecars.Fault{Code: "UNAVAILABLE", Message: "the storage is away"}))
	back := reaches(t, move(t, namespace, "stuck", "west", func(m *v1alpha1.VolumeMove) {
		m.Spec.RollBackAfter = &metav1.Duration{Duration: time.Second}
	}), v1alpha1.MoveFailed, v1alpha1.MoveDone)
	require.NoError(t, driver.Heal("ControllerUnpublishVolume"))
	require.Equal(t, v1alpha1.MoveFailed, back.Status.Phase, back.Status.Message)
	assert.Contains(t, back.Status.Message, "which it is attached to")
	assert.Contains(t, back.Status.Message, "spec.rollBackAfter")
	assert.Equal(t, at, folder(t, namespace, "stuck"))
	nothingLeft(t, namespace, back)
	assert.Contains(t, await.Volume(t, bed.Home.Client(), await.Claim(t, bed.Home.Client(), namespace, "stuck").Spec.VolumeName).Finalizers,
		ofAttacher, "nobody has detached it")
	attachments := released()
	assert.NotEmpty(t, attachments, "volumes were detached on the way")
	for uid, names := range attachments {
		assert.Empty(t, names, "volume %s is let go once it is not attached", uid)
	}
}

// ofAttacher is the finalizer of that driver's attacher.
const ofAttacher = "external-attacher/attached-home-test"

// watchReleases watches the volumes of home until the returned function is called, which returns the UIDs of those that lost the
// attacher's finalizer, with the attachments that they had then.
func watchReleases(t *testing.T) func() map[types.UID][]string {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	volumes := bed.Home.Client().CoreV1().PersistentVolumes()
	list, err := volumes.List(ctx, metav1.ListOptions{})
	require.NoError(t, err)
	stream, err := volumes.Watch(ctx, metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	require.NoError(t, err)
	held, released := map[types.UID]bool{}, map[types.UID][]string{}
	look := func(volume *corev1.PersistentVolume) {
		had := held[volume.UID]
		held[volume.UID] = slices.Contains(volume.Finalizers, ofAttacher)
		if !had || held[volume.UID] {
			return
		}
		all, err := bed.Home.Client().StorageV1().VolumeAttachments().List(t.Context(), metav1.ListOptions{})
		assert.NoError(t, err)
		released[volume.UID] = nil
		for i := range all.Items {
			if name := all.Items[i].Spec.Source.PersistentVolumeName; name != nil && *name == volume.Name {
				released[volume.UID] = append(released[volume.UID], all.Items[i].Name)
			}
		}
	}
	for i := range list.Items {
		look(&list.Items[i])
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for event := range stream.ResultChan() {
			if volume, ok := event.Object.(*corev1.PersistentVolume); ok {
				look(volume)
			}
		}
	}()
	return func() map[types.UID][]string {
		cancel()
		<-ended
		return released
	}
}

// TestAVolumeThatItsAttacherDoesNotLetGoGoesBack has the virtual volume deleted, which the finalizer of an attacher keeps that is away.
func TestAVolumeThatItsAttacherDoesNotLetGoGoesBack(t *testing.T) {
	testbed.NotInShort(t)
	t.Parallel()
	namespace := space(t)
	deploys(t, namespace, "data")
	at := folder(t, namespace, "data")
	const away = "external-attacher/away-home-test"
	volumes := bed.Home.Client().CoreV1().PersistentVolumes()
	name := await.Claim(t, bed.Home.Client(), namespace, "data").Spec.VolumeName
	must.Patch(t, volumes, name, types.JSONPatchType,
		[]byte(`[{"op":"add","path":"/metadata/finalizers/-","value":"`+away+`"}]`))
	made := move(t, namespace, "data", "west", func(m *v1alpha1.VolumeMove) { m.Spec.RollBackAfter = &metav1.Duration{Duration: time.Second} })
	reaches(t, made, v1alpha1.MoveFence)
	begun := time.Now()
	says(t, made, away)
	back := reaches(t, made, v1alpha1.MoveRollBack)
	t.Log("it goes back after", time.Since(begun), back.Status.Message)
	assert.Contains(t, back.Status.Message, "spec.rollBackAfter")
	await.Always(t, "the attacher's finalizer stays", func() bool {
		held := await.Volume(t, bed.Home.Client(), name)
		return held != nil && held.DeletionTimestamp != nil && slices.Contains(held.Finalizers, away)
	})
	says(t, made, away)

	// The attacher is back, and lets it go.
	held := await.Volume(t, bed.Home.Client(), name)
	remove := `[{"op":"remove","path":"/metadata/finalizers/` + strconv.Itoa(slices.Index(held.Finalizers, away)) + `"}]`
	must.Patch(t, volumes, name, types.JSONPatchType, []byte(remove))
	failed := reaches(t, made, v1alpha1.MoveFailed, v1alpha1.MoveDone)
	require.Equal(t, v1alpha1.MoveFailed, failed.Status.Phase, failed.Status.Message)
	assert.Equal(t, at, folder(t, namespace, "data"))
	counts(t, at, counted(t, at)+10)
	nothingLeft(t, namespace, made)
}

// saysWhyItsMoverWaits waits until a move says, long before it gives up, what events of its mover at the target say: that the
// volume cannot be attached, which the status of the pod does not. Then the volume can.
func saysWhyItsMoverWaits(t *testing.T, driver *sidecars.Driver, made *v1alpha1.VolumeMove) {
	t.Helper()
	await.Until(t, "the move says why its mover does not run", func() bool {
		message := seen(t, made).Status.Message
		return strings.Contains(message, "waiting until the mover of claim data runs at the target") &&
			strings.Contains(message, "FailedAttachVolume") && strings.Contains(message, "the storage is away")
	}, func() any { return seen(t, made).Status }, func() any { return await.Events(t, bed.Home.Client(), fabric.Storage) })
	require.NoError(t, driver.Heal("ControllerPublishVolume"))
}

// TestNoPodIsStoppedWhereNothingHoldsTheNextOneBack takes the gate away from a namespace, as
// an administrator may.
func TestNoPodIsStoppedWhereNothingHoldsTheNextOneBack(t *testing.T) {
	testbed.NotInShort(t)
	t.Parallel()
	namespace := space(t)
	deploys(t, namespace, "data")
	running, from := podsOf(t, namespace, "data")[0], folder(t, namespace, "data")
	others := `{"key":"kubernetes.io/metadata.name","operator":"NotIn","values":["` + namespace + `"]}`
	leaveOut, undo := `{"spec":{"matchResources":{"namespaceSelector":{"matchExpressions":[`+others+`]}}}}`, `{"spec":{"matchResources":null}}`
	patch := func(ctx context.Context, content string) error {
		_, err := bed.Home.Client().AdmissionregistrationV1().MutatingAdmissionPolicyBindings().Patch(ctx, "lodestone-move-gate",
			types.MergePatchType, []byte(content), metav1.PatchOptions{})
		return err
	}
	if bed.Webhook != nil {
		const selected = "/webhooks/0/namespaceSelector/matchExpressions/"
		leaveOut, undo = `[{"op":"add","path":"`+selected+`0","value":`+others+`}]`, `[{"op":"remove","path":"`+selected+`0"}]`
		patch = func(ctx context.Context, content string) error {
			_, err := bed.Home.Client().AdmissionregistrationV1().MutatingWebhookConfigurations().Patch(ctx, "lodestone-move-gate",
				types.JSONPatchType, []byte(content), metav1.PatchOptions{})
			return err
		}
	}
	require.NoError(t, patch(t.Context(), leaveOut))
	t.Cleanup(func() { assert.NoError(t, patch(context.Background(), undo)) })

	back := reaches(t, move(t, namespace, "data", "west"), v1alpha1.MoveFailed, v1alpha1.MoveDone)
	require.Equal(t, v1alpha1.MoveFailed, back.Status.Phase, back.Status.Message)
	assert.Contains(t, back.Status.Message, "pod "+running.Name+" is not stopped, for a new one would not be held back")
	assert.Contains(t, back.Status.Message, "lodestone-move-gate")
	now := podsOf(t, namespace, "data")
	require.Len(t, now, 1)
	assert.Equal(t, running.UID, now[0].UID)
	assert.Nil(t, now[0].DeletionTimestamp)
	counts(t, from, counted(t, from)+10)
	nothingLeft(t, namespace, back)
}
