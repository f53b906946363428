package replicas

import (
	"fmt"
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
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/must"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	"github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/clients"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// successor starts another home cluster that is peered with west, and returns it and its ID.
func successor(t *testing.T) (heir *fabric.Fabric, id string) {
	t.Helper()
	heir, err := bed.Another(t.Context(), "heir", fabric.Options{ControllerManagerQPS: 500, VirtualNode: true})
	require.NoError(t, err)
	t.Cleanup(heir.Home.Stop)
	_, err = heir.StartProvisioner(t.Context())
	require.NoError(t, err)
	_, err = heir.StartExtender(t.Context())
	require.NoError(t, err)
	_, err = heir.StartVirtualNode(t.Context())
	require.NoError(t, err)
	must.Create(t, heir.Home.Client().StorageV1().StorageClasses(), &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: virtual}, Provisioner: keys.Driver,
		VolumeBindingMode: ptr.To(storagev1.VolumeBindingWaitForFirstConsumer), Parameters: map[string]string{keys.RemoteClass: westDriver},
	})
	require.NoError(t, heir.Admit(t.Context(), nil))
	require.NoError(t, heir.AwaitReady(t.Context(), "west", metav1.ConditionTrue))
	require.NoError(t, heir.AwaitNode(t.Context(), fabric.WestNode, corev1.ConditionTrue))
	id, err = heir.HomeID(t.Context())
	require.NoError(t, err)
	return heir, id
}

// answer waits until the agent says of a namespace that a home cluster asks for whether it is given, and why not.
func answer(t *testing.T, home, namespace, reason string) {
	t.Helper()
	var last []metav1.Condition
	await.Until(t, fmt.Sprintf("namespace %s is %s for %s", namespace, reason, home), func() bool {
		request, err := bed.Agents.NamespaceRequests(keys.TenantPrefix+home).Get(t.Context(), namespace, metav1.GetOptions{})
		if err != nil {
			return false
		}
		last = request.Status.Conditions
		ready := meta.FindStatusCondition(last, v1alpha1.Ready)
		return ready != nil && ready.Reason == reason
	}, func() any { return last })
}

// TestASuccessorGetsWhatALostHomeHadAndNothingElse has a new home cluster, which the owner of west names, take over the namespaces of a
// lost one, and their claims with their data.
func TestASuccessorGetsWhatALostHomeHadAndNothingElse(t *testing.T) {
	testbed.NotInShort(t)
	copied, there, own := space(t), space(t), "own-"+rand.String(6)
	counts(t, copied, virtual, keys.Home)
	counts(t, there, virtual, "west")
	sealed(t, replicate(t, copied, "west"), time.Time{})
	// The owner of west has this one.
	require.NoError(t, bed.West.MakeNamespace(t.Context(), own))
	lost, err := bed.HomeID(t.Context())
	require.NoError(t, err)
	heir, id := successor(t)
	for _, namespace := range []string{copied, there, own} {
		require.NoError(t, heir.Home.MakeNamespace(t.Context(), namespace))
		must.Kubectl(t, heir.Home, "", "label", "namespace", namespace, keys.Offload+"="+keys.OffloadEnabled)
		// What it wants of west it asks for with its first claim or pod.
		must.Create(t, heir.Home.Client().CoreV1().Pods(namespace), fabric.InWest(fabric.NewPod(namespace, "asks")))
		answer(t, id, namespace, "NamespaceExists")
	}

	// It cannot say itself that it succeeds.
	kubeconfig, err := bed.West.ServiceAccountKubeconfig(t.Context(), keys.TenantPrefix+id, keys.HomeAccount)
	require.NoError(t, err)
	config, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
	require.NoError(t, err)
	itself, err := clients.NewRemoteClient(config)
	require.NoError(t, err)
	succeeds := fmt.Appendf(nil, `{"spec":{"succeeds":%q}}`, lost)
	_, err = itself.HomeClusters().Patch(t.Context(), id, types.MergePatchType, succeeds, metav1.PatchOptions{})
	assert.True(t, apierrors.IsForbidden(err), "%v", err)

	homeIsLost(t, lost)
	adopt := func(args ...string) (out, said string) {
		t.Helper()
		code, out, said := plugin(t, append([]string{"adopt", lost, "--context", bed.West.Name()}, args...)...)
		require.Zero(t, code, said)
		return out, said
	}
	_, said := adopt("--dry-run")
	assert.NotContains(t, said, id, "its owner has named no successor")
	must.Patch(t, bed.Agents.HomeClusters(), id, types.MergePatchType, succeeds)
	out, said := adopt("--dry-run")
	assert.Regexp(t, there+` +data +kept: its data is here\n`, out)
	assert.Contains(t, said, fmt.Sprintf("Home cluster %s gets namespace %s, with all that is in it", id, there))
	answer(t, id, there, "NamespaceExists")
	had := counted(t, bed.FolderOf(t, bed.West, there, "data"))

	_, said = adopt("--yes")
	assert.Contains(t, said, "kubectl lodestone import pvc/CLAIM")
	answer(t, id, copied, "Given")
	answer(t, id, there, "Given")
	answer(t, id, own, "NamespaceExists")
	uid := await.Claim(t, bed.West.Client(), there, "data").UID
	// A class that waits for the first pod is told where that would be.
	must.Kubectl(t, bed.West, "", "annotate", "pvc", "data", "-n", copied, "volume.kubernetes.io/selected-node=west-1")
	await.Until(t, "the claim that was made of a version is bound", func() bool {
		return await.Claim(t, bed.West.Client(), copied, "data").Status.Phase == corev1.ClaimBound
	}, func() any { return await.Events(t, bed.West.Client(), copied) })
	made := await.Claim(t, bed.West.Client(), copied, "data")
	version := counted(t, contentOf(t, bed.West, westDriver, copied, made.Annotations[keys.AdoptedFrom]))

	both, err := heir.Contexts()
	require.NoError(t, err)
	for namespace, number := range map[string]int{there: had, copied: version} {
		code, _, said := pluginWith(t, both, "import", "pvc/data", "-n", namespace, "--class", virtual, "--cluster", "west", "--remote-context",
			bed.West.Name(), "--yes")
		require.Zero(t, code, said)
		pod := application(namespace, "next")
		pod.Spec.Tolerations = []corev1.Toleration{{Key: keys.RemoteTaint, Operator: corev1.TolerationOpExists}}
		must.Create(t, heir.Home.Client().CoreV1().Pods(namespace), pod)
		await.Until(t, "a pod of the successor follows the data, and counts on", func() bool {
			return counted(t, bed.FolderOf(t, bed.West, namespace, "data")) > number
		}, func() any { return await.Events(t, heir.Home.Client(), namespace) },
			func() any { return await.Events(t, bed.West.Client(), namespace) })
		assert.Equal(t, fabric.WestNode, must.Get(t, heir.Home.Client().CoreV1().Pods(namespace), "next").Spec.NodeName)
	}
	shadow := await.Claim(t, bed.West.Client(), there, "data")
	assert.Equal(t, uid, shadow.UID)
	assert.Equal(t, id, shadow.Labels[keys.HomeID])
	assert.Empty(t, must.List(t, bed.West.Client().CoreV1().Pods(own)).Items)

	// What is deleted at the successor goes, as any claim of it.
	must.Delete(t, heir.Home.Client().CoreV1().Pods(there), "next")
	must.Delete(t, heir.Home.Client().CoreV1().PersistentVolumeClaims(there), "data")
	await.Until(t, "the claim in west is gone", func() bool { return await.Claim(t, bed.West.Client(), there, "data") == nil })

	require.NoError(t, bed.Agents.HomeClusters().Delete(t.Context(), id, metav1.DeleteOptions{}))
	homeComesBack(t, lost)
	for _, namespace := range []string{copied, there, own} {
		must.Delete(t, bed.West.Client().CoreV1().Namespaces(), namespace)
	}
}
