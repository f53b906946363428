// The life of a namespace in west that home has asked for, and of the claims in it, is one file: its tests share the
// agent that is silenced and the program that is killed.

package namespaces

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/must"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/homeepoch"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	provisioner "github.com/lodestone-storage/lodestone/provisioner/app"
	agent "github.com/lodestone-storage/lodestone/remoteagent/app"
)

func TestAClaimInANewNamespaceGetsItsVolumeInWest(t *testing.T) {
	namespace := space(t, "shop-", true)
	t.Parallel()
	use(t, namespace, inWest(namespace))
	runsOn(t, namespace, true)
	require.True(t, hasShadow(t, namespace))
	assert.Equal(t, namespace, requested(t, namespace).Spec.HomeNamespace)
	assert.True(t, recorded(t, namespace))
	for _, reason := range []string{"NotAllowed", "NamespaceMissing", "NamespaceRefused", "NamespaceNotMade"} {
		assert.NotContains(t, strings.Join(await.Events(t, bed.Home.Client(), namespace), "\n"), reason, "no word of refusal")
	}
}

func TestANamespaceIsAskedForBeforeAnybodyNeedsIt(t *testing.T) {
	namespace := space(t, "shop-", true)
	t.Parallel()
	awaitGiven(t, namespace)
	assert.False(t, recorded(t, namespace), "no backing claim was made there")
}

func TestAClosedNamespaceIsNotAskedFor(t *testing.T) {
	closed, narrow := space(t, "shop-", false), space(t, "shop-", true, keys.OffloadClusters+"=east")
	t.Parallel()
	use(t, narrow, inWest(narrow))
	await.Never(t, "no request", func() bool { return requested(t, closed) != nil || requested(t, narrow) != nil })
	node, _ := podNode(t, narrow)
	assert.Empty(t, node, "the namespace lists other clusters")
	kubectl(t, "annotate", "namespace", narrow, keys.OffloadClusters+"=east,west", "--overwrite")
	runsOn(t, narrow, true)
}

func TestAPodWithoutClaimsStaysAtHomeWithItsNamespace(t *testing.T) {
	closed := space(t, "shop-", false)
	t.Parallel()
	create := func(pod *corev1.Pod) {
		must.Create(t, bed.Home.Client().CoreV1().Pods(closed), pod)
	}
	create(fabric.Prefer(fabric.NewPod(closed, "app"), fabric.WestNode))
	runsOn(t, closed, false)
	create(fabric.InWest(fabric.NewPod(closed, "must")))
	await.Never(t, "the pod must wait", func() bool {
		pod, err := bed.Home.Client().CoreV1().Pods(closed).Get(context.Background(), "must", metav1.GetOptions{})
		return err != nil || pod.Spec.NodeName != ""
	})
}

func TestARefusedNamespaceSendsTheClaimElsewhere(t *testing.T) {
	namespace := space(t, refusedPrefix, true)
	t.Parallel()
	use(t, namespace, preferWest(namespace))
	runsOn(t, namespace, false)
	assert.Contains(t, await.Event(t, bed.Home.Client(), namespace, "data", "NamespaceRefused"), refusal)
}

func TestANamespaceIsKeptAsLongAsSomethingIsLeftThere(t *testing.T) {
	testbed.NotInShort(t)
	kept, gone := space(t, "shop-", true), space(t, "shop-", true)
	t.Parallel()
	for _, namespace := range []string{kept, gone} {
		use(t, namespace, inWest(namespace))
		runsOn(t, namespace, true)
	}
	must.Create(t, bed.Agents.ShadowPods(kept), shadowPod(heldPod(t, kept, "left")))

	kubectl(t, "label", "namespace", kept, keys.Offload+"-")
	first := requested(t, kept).UID
	drop(t, kept)
	kubectl(t, "delete", "namespace", gone, "--wait=false")
	await.Until(t, "the data in both is deleted", func() bool { return !hasShadow(t, kept) && !hasShadow(t, gone) }, func() any {
		return await.Events(t, bed.Home.Client(), kept)
	})
	await.Until(t, "the namespace whose home is gone is given back", func() bool { return requested(t, gone) == nil },
		func() any { return requested(t, gone) })
	assert.False(t, recorded(t, gone), "and forgotten")

	// The other one was empty of claims for as long.
	await.Never(t, "pods are left there", func() bool { return requested(t, kept) == nil })
	must.Delete(t, bed.Agents.ShadowPods(kept), "left")
	await.Until(t, "the closed namespace is given back", func() bool { return requested(t, kept) == nil }, func() any {
		return requested(t, kept)
	})
	assert.True(t, recorded(t, kept), "its home namespace may open it again")

	kubectl(t, "label", "namespace", kept, keys.Offload+"="+keys.OffloadEnabled)
	awaitGiven(t, kept)
	assert.NotEqual(t, first, requested(t, kept).UID)
	use(t, kept, inWest(kept))
	runsOn(t, kept, true)
}

func TestAClosedNamespaceKeepsTheRightsToDeleteItsData(t *testing.T) {
	namespace := space(t, "shop-", true)
	t.Parallel()
	use(t, namespace, inWest(namespace))
	runsOn(t, namespace, true)
	kubectl(t, "label", "namespace", namespace, keys.Offload+"-")
	must.Delete(t, bed.Agents.NamespaceRequests(owner.tenant()), namespace)
	awaitGiven(t, namespace)
	drop(t, namespace)
	await.Until(t, "the data is deleted", func() bool { return !hasShadow(t, namespace) }, func() any {
		return await.Events(t, bed.Home.Client(), namespace)
	})
}

// TestANamespaceMadeAgainGetsNothingOfTheEarlierOne deletes a home namespace whose volume is retained,
// and makes another one of its name.
func TestANamespaceMadeAgainGetsNothingOfTheEarlierOne(t *testing.T) {
	namespace := space(t, "shop-", true)
	t.Parallel()
	use(t, namespace, inWest(namespace))
	runsOn(t, namespace, true)
	core := bed.Home.Client().CoreV1()
	claim := must.Get(t, core.PersistentVolumeClaims(namespace), "data")
	retained := claim.Spec.VolumeName
	kubectl(t, "patch", "pv", retained, "-p", `{"spec":{"persistentVolumeReclaimPolicy":"Retain"}}`)
	first := must.Get(t, bed.West.Client().CoreV1().Namespaces(), namespace)
	earlier := must.Get(t, core.Namespaces(), namespace)
	assert.Equal(t, string(earlier.UID), first.Annotations[keys.HomeNamespaceUID])

	// A request of an earlier version says no UID: home adds it.
	must.Patch(t, bed.Agents.NamespaceRequests(owner.tenant()), namespace, types.MergePatchType,
		[]byte(`{"spec":{"homeNamespaceUID":null}}`))
	await.Until(t, "the request says which namespace it is for", func() bool {
		return requested(t, namespace).Spec.HomeNamespaceUID == earlier.UID
	}, func() any { return requested(t, namespace) })

	kubectl(t, "delete", "namespace", namespace, "--timeout=60s")
	require.True(t, hasShadow(t, namespace), "its data is kept")

	require.NoError(t, bed.Home.MakeNamespace(t.Context(), namespace))
	kubectl(t, "label", "namespace", namespace, keys.Offload+"="+keys.OffloadEnabled)
	await.Until(t, "west does not give the new namespace what it has of the earlier one", func() bool {
		request := requested(t, namespace)
		return request != nil && meta.IsStatusConditionFalse(request.Status.Conditions, remotev1alpha1.Ready)
	}, func() any { return requested(t, namespace) })
	use(t, namespace, preferWest(namespace))
	runsOn(t, namespace, false)
	assert.Contains(t, await.Event(t, bed.Home.Client(), namespace, "data", "NamespaceRefused"), "kubectl lodestone rebind namespace "+
		namespace)

	// What home records is deleted all the same; then the namespace is made anew.
	kubectl(t, "patch", "pv", retained, "-p", `{"spec":{"persistentVolumeReclaimPolicy":"Delete"}}`)
	await.Until(t, "the retained volume is deleted", func() bool {
		_, err := core.PersistentVolumes().Get(t.Context(), retained, metav1.GetOptions{})
		return apierrors.IsNotFound(err) && !hasShadow(t, namespace)
	}, func() any { return requested(t, namespace) })
	await.Until(t, "another namespace is there, for the present one", func() bool { return given(t, namespace) }, func() any {
		return requested(t, namespace)
	})
	now := must.Get(t, bed.West.Client().CoreV1().Namespaces(), namespace)
	assert.NotEqual(t, first.UID, now.UID)
}

// rebinds runs the plugin for the owner of west.
func rebinds(t *testing.T, namespace string) {
	t.Helper()
	contexts, err := bed.Contexts()
	require.NoError(t, err)
	program, err := bed.BuildPlugin(t.Context())
	require.NoError(t, err)
	out, err := exec.CommandContext(t.Context(), program, "--kubeconfig", contexts, "--context", bed.West.Name(), "rebind", "namespace",
		namespace, "--yes").CombinedOutput()
	require.NoError(t, err, string(out))
}

// TestARestoredClaimTakesItsDataOverAndIsDeletedWithIt deletes a home namespace whose volume is retained, and restores it
// with claim and volume as backup programs do: namespace and claim get other UIDs, and the volume names the claim by name.
func TestARestoredClaimTakesItsDataOverAndIsDeletedWithIt(t *testing.T) {
	testbed.NotInShort(t)
	namespace := space(t, "shop-", true)
	t.Parallel()
	use(t, namespace, inWest(namespace))
	runsOn(t, namespace, true)
	core := bed.Home.Client().CoreV1()
	claim := must.Get(t, core.PersistentVolumeClaims(namespace), "data")
	kubectl(t, "patch", "pv", claim.Spec.VolumeName, "-p", `{"spec":{"persistentVolumeReclaimPolicy":"Retain"}}`)
	volume := await.Volume(t, bed.Home.Client(), claim.Spec.VolumeName)
	shadow := await.Claim(t, bed.West.Client(), namespace, "data")

	kubectl(t, "delete", "namespace", namespace, "--timeout=60s")
	kubectl(t, "delete", "pv", volume.Name, "--timeout=60s")
	require.True(t, hasShadow(t, namespace), "its data is kept")

	require.NoError(t, bed.Home.MakeNamespace(t.Context(), namespace))
	kubectl(t, "label", "namespace", namespace, keys.Offload+"="+keys.OffloadEnabled)
	volume.ObjectMeta = metav1.ObjectMeta{Name: volume.Name, Labels: volume.Labels, Annotations: volume.Annotations}
	volume.Spec.ClaimRef.UID, volume.Spec.ClaimRef.ResourceVersion = "", ""
	must.Create(t, core.PersistentVolumes(), volume)
	for _, key := range []string{"pv.kubernetes.io/bind-completed", "pv.kubernetes.io/bound-by-controller", keys.SelectedNode,
		keys.StorageProvisioner, keys.BetaStorageProvisioner} {
		delete(claim.Annotations, key)
	}
	claim.ObjectMeta = metav1.ObjectMeta{Name: claim.Name, Labels: claim.Labels, Annotations: claim.Annotations}
	restored := must.Create(t, core.PersistentVolumeClaims(namespace), claim)
	assert.Contains(t, await.Event(t, bed.Home.Client(), namespace, "data", "NamespaceRefused"), "kubectl lodestone rebind namespace "+
		namespace)
	assert.NotEqual(t, string(restored.UID), await.Claim(t, bed.West.Client(), namespace, "data").Labels[keys.ClaimUID],
		"nothing is changed before its owner agrees")

	rebinds(t, namespace)
	awaitGiven(t, namespace)
	must.Create(t, core.Pods(namespace), inWest(namespace))
	runsOn(t, namespace, true)
	await.Until(t, "the real claim is that of the restored one", func() bool {
		now := await.Claim(t, bed.West.Client(), namespace, "data")
		return now.UID == shadow.UID && now.Spec.VolumeName == shadow.Spec.VolumeName && now.Labels[keys.ClaimUID] == string(restored.UID)
	}, func() any { return await.Events(t, bed.Home.Client(), namespace) })
	for _, event := range await.Events(t, bed.Home.Client(), namespace) {
		assert.NotContains(t, event, "BackingMissing")
	}

	// Somebody restores claim and volume once more, beside these.
	twice, second := volume.DeepCopy(), claim.DeepCopy()
	twice.Name, twice.Spec.ClaimRef.Name = volume.Name+"-copy", "copy"
	twice.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimDelete
	second.Name, second.Spec.VolumeName = "copy", twice.Name
	must.Create(t, core.PersistentVolumes(), twice)
	must.Create(t, core.PersistentVolumeClaims(namespace), second)
	assert.Contains(t, await.Event(t, bed.Home.Client(), namespace, "copy", "NotRestored"), volume.Name)
	kubectl(t, "delete", "pvc", "copy", "-n", namespace, "--timeout=60s")
	await.Until(t, "its volume is released", func() bool {
		return await.Volume(t, bed.Home.Client(), twice.Name).Status.Phase == corev1.VolumeReleased
	})
	await.Always(t, "the data is another claim's and stays", func() bool {
		now := await.Claim(t, bed.West.Client(), namespace, "data")
		return now != nil && now.DeletionTimestamp == nil && now.Labels[keys.ClaimUID] == string(restored.UID)
	})
	kubectl(t, "delete", "pv", twice.Name, "--timeout=60s")

	kubectl(t, "patch", "pv", volume.Name, "-p", `{"spec":{"persistentVolumeReclaimPolicy":"Delete"}}`)
	drop(t, namespace)
	await.Until(t, "it is deleted with its data", func() bool {
		return await.Volume(t, bed.Home.Client(), volume.Name) == nil && !hasShadow(t, namespace) &&
			await.Volume(t, bed.West.Client(), shadow.Spec.VolumeName) == nil
	}, func() any { return await.Volume(t, bed.Home.Client(), volume.Name) })
}

// shadowPod is the copy of a home pod.
func shadowPod(home *corev1.Pod) *remotev1alpha1.ShadowPod {
	return &remotev1alpha1.ShadowPod{
		ObjectMeta: metav1.ObjectMeta{
			Name: home.Name, Namespace: home.Namespace, Finalizers: []string{keys.ShadowPodFinalizer},
			Labels: map[string]string{keys.HomeID: owner.homeID, keys.PodUID: string(home.UID)},
		},
		Spec: remotev1alpha1.ShadowPodSpec{
			Home: remotev1alpha1.HomePod{Cluster: owner.homeID, Namespace: home.Namespace, Name: home.Name, UID: home.UID},
			Pod:  corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "app"}}}},
		},
	}
}

// heldPod makes a pod at home that no scheduler places.
func heldPod(t *testing.T, namespace, name string) *corev1.Pod {
	t.Helper()
	return must.Create(t, bed.Home.Client().CoreV1().Pods(namespace), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PodSpec{
			SchedulingGates: []corev1.PodSchedulingGate{{Name: "test.lodestone.dev/held"}},
			Containers:      []corev1.Container{{Name: "app", Image: "app"}},
		},
	})
}

// No virtual node runs here: what a pod has left in west when its home pod is gone,
// given up by a user for instance, the provisioner ends before it leaves.
// It does not run in parallel: it takes west away.
func TestARemovedClusterGivesBackItsNamespaces(t *testing.T) {
	namespace := space(t, "shop-", true)
	awaitGiven(t, namespace)
	kept, gone := heldPod(t, namespace, "kept"), heldPod(t, namespace, "gone")
	must.Delete(t, bed.Home.Client().CoreV1().Pods(namespace), gone.Name)
	for _, home := range []*corev1.Pod{kept, gone} {
		must.Create(t, bed.Agents.ShadowPods(namespace), shadowPod(home))
	}
	must.Delete(t, bed.Remotes, "west")
	await.Until(t, "the pods are told of", func() bool {
		ready := condition(t, v1alpha1.Ready)
		return ready.Reason == "Leaving" && ready.Message == "pods of this cluster are left there in namespace "+namespace+": delete them at home"
	}, func() any { return condition(t, v1alpha1.Ready) })
	must.Get(t, bed.Agents.ShadowPods(namespace), kept.Name)
	must.Delete(t, bed.Home.Client().CoreV1().Pods(namespace), kept.Name)
	await.Until(t, "west is let go", func() bool {
		_, err := bed.Remotes.Get(context.Background(), "west", metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	}, func() any { return condition(t, v1alpha1.Ready) })
	await.Until(t, "nothing is asked for any more", func() bool {
		list, err := bed.Agents.NamespaceRequests(owner.tenant()).List(context.Background(), metav1.ListOptions{})
		return err == nil && len(list.Items) == 0
	}, func() any { return "requests are left" })

	kubeconfig, err := owner.kubeconfig(t.Context())
	require.NoError(t, err)
	must.Delete(t, bed.Home.Client().CoreV1().Secrets(fabric.System), "west")
	require.NoError(t, bed.Register(t.Context(), "west", kubeconfig))
	require.NoError(t, bed.AwaitReady(t.Context(), "west", metav1.ConditionTrue))
	use(t, namespace, inWest(namespace))
	runsOn(t, namespace, true)
	assert.True(t, recorded(t, namespace))
}

// The steps are those of docs/lifecycle.md.
func TestTheNamespaceOfTwinsCanBeHadAgain(t *testing.T) {
	namespace := space(t, "twins-", false)
	use(t, namespace, fabric.AtHome(fabric.NewPod(namespace, "app", "data")))
	runsOn(t, namespace, false)
	claim := must.Get(t, bed.Home.Client().CoreV1().PersistentVolumeClaims(namespace), "data")
	virtual := volume(t, claim.Spec.VolumeName)
	real := volume(t, virtual.Annotations[keys.BackingVolume])
	require.Equal(t, corev1.PersistentVolumeReclaimDelete, real.Spec.PersistentVolumeReclaimPolicy)

	kubectl(t, "delete", "namespace", fabric.Storage, "--wait=false")
	assert.Contains(t, await.Event(t, bed.Home.Client(), namespace, "data", "BackingDeleted"), "namespace "+fabric.Storage+" is being deleted")
	kubectl(t, "annotate", "pv", virtual.Name, keys.Healing+"="+string(real.Spec.PersistentVolumeReclaimPolicy))
	await.Until(t, "the namespace is gone", func() bool {
		_, err := bed.Home.Client().CoreV1().Namespaces().Get(context.Background(), fabric.Storage, metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	}, func() any { return await.Events(t, bed.Home.Client(), namespace) })
	assert.Equal(t, corev1.PersistentVolumeReclaimRetain, volume(t, real.Name).Spec.PersistentVolumeReclaimPolicy)

	base := filepath.Join(fabric.Root(), "deploy", "base")
	kubectl(t, "apply", "-f", filepath.Join(base, "namespaces.yaml"))
	kubectl(t, "apply", "-k", filepath.Join(base, "provisioner"))
	await.Event(t, bed.Home.Client(), namespace, "data", "BackingHealed")
	after := volume(t, real.Name)
	assert.Equal(t, real.UID, after.UID)
	assert.Equal(t, corev1.PersistentVolumeReclaimDelete, after.Spec.PersistentVolumeReclaimPolicy)
	assert.Equal(t, corev1.VolumeBound, after.Status.Phase)
	assert.NotEqual(t, real.Spec.ClaimRef.UID, after.Spec.ClaimRef.UID)
	_, phase := podNode(t, namespace)
	assert.Equal(t, corev1.PodRunning, phase)
	drop(t, namespace)
	await.Until(t, "the volume goes with its data", func() bool {
		_, err := bed.Home.Client().CoreV1().PersistentVolumes().Get(context.Background(), real.Name, metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
}

func volume(t *testing.T, name string) *corev1.PersistentVolume {
	t.Helper()
	return must.Get(t, bed.Home.Client().CoreV1().PersistentVolumes(), name)
}

// grow makes the claim of use ask for a size.
func grow(t *testing.T, namespace, size string) {
	t.Helper()
	must.Patch(t, bed.Home.Client().CoreV1().PersistentVolumeClaims(namespace), "data", types.MergePatchType,
		fmt.Appendf(nil, `{"spec":{"resources":{"requests":{"storage":%q}}}}`, size))
}

// grown waits until the claim of use, its volume and its shadow have a size.
func grown(t *testing.T, namespace, size string) {
	t.Helper()
	var have [3]string
	await.Until(t, "claim, volume and shadow have "+size, func() bool {
		claim := must.Get(t, bed.Home.Client().CoreV1().PersistentVolumeClaims(namespace), "data")
		volume := must.Get(t, bed.Home.Client().CoreV1().PersistentVolumes(), claim.Spec.VolumeName)
		shadow := must.Get(t, bed.West.Client().CoreV1().PersistentVolumeClaims(namespace), "data")
		have = [3]string{claim.Status.Capacity.Storage().String(), volume.Spec.Capacity.Storage().String(),
			shadow.Spec.Resources.Requests.Storage().String()}
		return have == [3]string{size, size, size}
	}, func() any { return have }, func() any { return await.Events(t, bed.Home.Client(), namespace) })
}

// TestAKillAtAnyWriteOfAnExpansionIsResumed also shows that the rights which the
// agent gives home are enough to expand.
func TestAKillAtAnyWriteOfAnExpansionIsResumed(t *testing.T) {
	namespace := space(t, "shop-", true)
	use(t, namespace, inWest(namespace))
	runsOn(t, namespace, true)
	grown(t, namespace, "1Gi")
	var killed atomic.Int64
	for writes := range int64(4) {
		require.NoError(t, running.Stop())
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 20*time.Second)
		k := &killer{kill: sync.OnceFunc(func() { killed.Add(1); cancel() })}
		k.left.Store(writes)
		program, err := bed.StartProvisioner(ctx, func(c *provisioner.Config) {
			c.LeaderElect = false
			k.wrap(c.Home)
		})
		require.NoError(t, err)
		size := fmt.Sprintf("%dGi", writes+2)
		grow(t, namespace, size)
		_ = program.Wait() // killed at a write to home, or done after a while
		cancel()
		running, err = startProvisioner(context.WithoutCancel(t.Context()))
		require.NoError(t, err)
		grown(t, namespace, size)
	}
	assert.GreaterOrEqual(t, killed.Load(), int64(2), "an expansion takes two writes at home at least")
	drop(t, namespace)
	await.Until(t, "the data is deleted", func() bool { return !hasShadow(t, namespace) }, func() any {
		return await.Events(t, bed.Home.Client(), namespace)
	})
	require.NoError(t, bed.AwaitReady(t.Context(), "west", "True"))
}

// TestAClaimSaysThatTheNodeOfItsDataInWestIsGone also has the RemoteCluster say so,
// until the node is back.
func TestAClaimSaysThatTheNodeOfItsDataInWestIsGone(t *testing.T) {
	namespace := space(t, "shop-", true)
	t.Parallel()
	remove, err := fabric.MakeLocalVolume(t.Context(), bed.West, namespace)
	t.Cleanup(remove)
	require.NoError(t, err)
	classes := bed.Home.Client().StorageV1().StorageClasses()
	must.Create(t, classes, &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: namespace}, Provisioner: keys.Driver,
		VolumeBindingMode: ptr.To(storagev1.VolumeBindingWaitForFirstConsumer),
		Parameters:        map[string]string{keys.RemoteClass: namespace},
	})
	t.Cleanup(func() { _ = classes.Delete(context.Background(), namespace, metav1.DeleteOptions{}) })
	claims := bed.Home.Client().CoreV1().PersistentVolumeClaims(namespace)
	claim := fabric.NewClaim(namespace, "data", namespace)
	claim.Annotations = map[string]string{keys.SelectedNode: fabric.WestNode}
	must.Create(t, claims, claim)
	await.Until(t, "the claim is bound", func() bool {
		claim := must.Get(t, claims, "data")
		return claim.Status.Phase == corev1.ClaimBound
	}, func() any { return await.Events(t, bed.Home.Client(), namespace) })

	must.Delete(t, bed.West.Client().CoreV1().Nodes(), namespace)
	told := await.Event(t, bed.Home.Client(), namespace, "data", "BackingNodeGone")
	assert.Contains(t, told, "in cluster west can be used on no node that is left there: let its administrator bring the node back")
	gone := func() bool {
		remote := must.Get(t, bed.Remotes, "west")
		if remote.Status.VolumeHealth != nil {
			for _, trouble := range remote.Status.VolumeHealth.Troubles {
				if trouble.Reason == "BackingNodeGone" {
					return true
				}
			}
		}
		return false
	}
	await.Until(t, "the RemoteCluster says so, too", gone)

	require.NoError(t, fabric.MakeEmptyNode(t.Context(), bed.West, namespace))
	await.Until(t, "the RemoteCluster says no more that a node is gone", func() bool { return !gone() })
}

// The owner of west gives namespaces of one pattern only; refusal is in what the
// remote agent says of others.
const (
	allowed       = "shop-*"
	refusedPrefix = "refused-"
	refusal       = "namespaces named shop-* only"
)

// tenancy is west as its owner sees it: the remote agent, and home as its tenant.
type tenancy struct {
	homeID  string
	program *fabric.Program
}

// serve starts west's remote agent.
func (o *tenancy) serve(ctx context.Context) (err error) {
	o.program, err = bed.StartAgent(ctx, func(c *agent.Config) { c.LeaderElect = false })
	return err
}

// admit makes home a tenant of west and returns its kubeconfig.
func (o *tenancy) admit(ctx context.Context) (kubeconfig []byte, err error) {
	if o.homeID, err = bed.HomeID(ctx); err != nil {
		return nil, err
	}
	return bed.Tenant(ctx, func(home *remotev1alpha1.HomeCluster) {
		home.Spec.Namespaces.Names = []string{allowed}
		home.Spec.StorageClasses = []string{"*"} // local volumes, too
	})
}

// silence stops the remote agent until speak is called or the test ends.
func (o *tenancy) silence(t *testing.T) (speak func()) {
	t.Helper()
	require.NoError(t, o.program.Stop())
	silent := true
	speak = func() {
		if silent {
			silent = false
			require.NoError(t, o.serve(context.Background()))
		}
	}
	t.Cleanup(speak)
	return speak
}

func (o *tenancy) tenant() string { return keys.TenantPrefix + o.homeID }

// kubeconfig returns a new kubeconfig of home's identity in west.
func (o *tenancy) kubeconfig(ctx context.Context) ([]byte, error) {
	return bed.West.ServiceAccountKubeconfig(ctx, o.tenant(), keys.HomeAccount)
}

// The tests of this file do not run in parallel: they silence what others use.

func TestAClaimWaitsForTheAgentAndIsWokenByItsAnswer(t *testing.T) {
	patient, moved := space(t, "shop-", false), space(t, "shop-", false)
	speak := owner.silence(t)
	for _, namespace := range []string{patient, moved} {
		kubectl(t, "label", "namespace", namespace, "lodestone.dev/offload=enabled")
	}
	use(t, patient, inWest(patient))
	use(t, moved, preferWest(moved))
	await.Event(t, bed.Home.Client(), patient, "data", "WaitingForNamespace")
	assert.False(t, hasShadow(t, patient))
	runsOn(t, moved, false)
	assert.Contains(t, await.Event(t, bed.Home.Client(), moved, "data", "NamespaceNotMade"), "remote agent")
	speak()
	runsOn(t, patient, true)
}

// killer ends a program at its n-th write.
type killer struct {
	left atomic.Int64
	kill func()
}

var errKilled = errors.New("killed")

func (k *killer) wrap(config *rest.Config) {
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(request *http.Request) (*http.Response, error) {
			// What is renewed all the time is no step.
			if request.Method == http.MethodGet || strings.Contains(request.URL.Path, "leases") ||
				strings.Contains(request.URL.Path, "selfsubject") || strings.Contains(request.URL.Path, "/secrets/"+homeepoch.SecretName("")) {
				return next.RoundTrip(request)
			}
			if k.left.Add(-1) < 0 {
				k.kill()
				return nil, errKilled
			}
			return next.RoundTrip(request)
		})
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }

func TestAKillAtAnyWriteIsResumed(t *testing.T) {
	for writes := range int64(5) {
		namespace := space(t, "shop-", false)
		require.NoError(t, running.Stop())
		ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
		k := &killer{kill: cancel}
		k.left.Store(writes)
		program, err := bed.StartProvisioner(ctx, func(c *provisioner.Config) {
			c.LeaderElect = false
			k.wrap(c.Home)
		})
		require.NoError(t, err)
		kubectl(t, "label", "namespace", namespace, "lodestone.dev/offload=enabled")
		use(t, namespace, inWest(namespace))
		_ = program.Wait() // killed at a write to home, however it took that
		cancel()
		running, err = startProvisioner(context.WithoutCancel(t.Context()))
		require.NoError(t, err)
		runsOn(t, namespace, true)
		drop(t, namespace)
		await.Until(t, "the data is deleted", func() bool { return !hasShadow(t, namespace) }, func() any {
			return await.Events(t, bed.Home.Client(), namespace)
		})
	}
	require.NoError(t, bed.AwaitReady(t.Context(), "west", "True"))
}
