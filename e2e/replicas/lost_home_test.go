package replicas

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/must"
	"github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// goesOn has a pod of west itself count in a claim there, and returns how far it has counted once it is beyond a number.
func goesOn(t *testing.T, namespace string, number int) (n int) {
	t.Helper()
	must.Create(t, bed.West.Client().CoreV1().Pods(namespace), application(namespace, "own"))
	await.Until(t, "a pod of west counts on", func() bool {
		if at := bed.FolderOf(t, bed.West, namespace, "data"); at != "" {
			n = counted(t, at)
		}
		return n > number
	}, func() any { return await.Events(t, bed.West.Client(), namespace) })
	return n
}

// homeIsLost stops home's programs, and returns its HomeCluster once west misses it.
func homeIsLost(t *testing.T, home string) (now *v1alpha1.HomeCluster) {
	t.Helper()
	require.NoError(t, errors.Join(provisioner.Stop(), virtualNode.Stop()))
	await.Until(t, "west misses home", func() bool {
		now := must.Get(t, bed.Agents.HomeClusters(), home)
		return meta.IsStatusConditionFalse(now.Status.Conditions, v1alpha1.Connected)
	}, func() any { return now.Status })
	return now
}

// homeComesBack starts home's programs once nothing is left of home in west, and peers the two anew: what is west's own stays that.
func homeComesBack(t *testing.T, home string) {
	t.Helper()
	await.Until(t, "nothing is left of home", func() bool {
		_, err := bed.Agents.HomeClusters().Get(t.Context(), home, metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})

	ctx := context.WithoutCancel(t.Context())
	var err error
	provisioner, err = bed.StartProvisioner(ctx)
	require.NoError(t, err)
	virtualNode, err = bed.StartVirtualNode(ctx)
	require.NoError(t, err)
	require.NoError(t, bed.AwaitReady(t.Context(), "west", metav1.ConditionFalse))
	await.Until(t, "the tenant's namespace is gone", func() bool {
		_, err := bed.West.Client().CoreV1().Namespaces().Get(t.Context(), keys.TenantPrefix+home, metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
	kubeconfig, err := bed.Tenant(t.Context(), nil)
	require.NoError(t, err)
	patch := must.Get(t, bed.Home.Client().CoreV1().Secrets(fabric.System), "west")
	patch.Data["kubeconfig"] = kubeconfig
	must.Update(t, bed.Home.Client().CoreV1().Secrets(fabric.System), patch)
	require.NoError(t, bed.AwaitReady(t.Context(), "west", metav1.ConditionTrue))
	require.NoError(t, bed.AwaitNode(t.Context(), fabric.WestNode, "True"))
}

// TestTheOwnerOfWestKeepsWhatALostHomeHadThere ends with a home that comes back, and is peered again.
func TestTheOwnerOfWestKeepsWhatALostHomeHadThere(t *testing.T) {
	copied, there, taken := space(t), space(t), space(t)
	counts(t, copied, virtual, keys.Home)
	counts(t, there, virtual, "west")
	counts(t, taken, virtual, keys.Home)
	sealed(t, replicate(t, copied, "west"), time.Time{})
	sealed(t, replicate(t, taken, "west"), time.Time{})
	home, err := bed.HomeID(t.Context())
	require.NoError(t, err)

	code, _, said := plugin(t, "adopt", home, "--context", bed.West.Name(), "--yes")
	assert.Equal(t, 3, code)
	assert.Contains(t, said, "is not lost: it renews its heartbeat")
	code, _, said = plugin(t, "adopt", home, "--yes")
	assert.Equal(t, 1, code)
	assert.Contains(t, said, "give --context of the remote cluster")

	homeIsLost(t, home)
	lines := bed.West.Client().CoreV1().PersistentVolumeClaims(there)
	before := await.Claim(t, bed.West.Client(), there, "data")
	code, out, said := plugin(t, "adopt", home, "--context", bed.West.Name(), "--dry-run")
	require.Zero(t, code, said)
	assert.Regexp(t, copied+` +data +made of version \d+, which has what was written in the home cluster until `, out)
	assert.Regexp(t, there+` +data +kept: its data is here\n`, out)
	code, _, said = plugin(t, "adopt", home, "--context", bed.West.Name())
	assert.Equal(t, 3, code)
	assert.Contains(t, said, "nothing was changed")
	now := must.Get(t, bed.Agents.HomeClusters(), home)
	require.Nil(t, now.DeletionTimestamp)
	assert.Equal(t, before.ResourceVersion, await.Claim(t, bed.West.Client(), there, "data").ResourceVersion)

	// Whoever stops before the pods have ended goes on by the same command.
	code, _, _ = plugin(t, "adopt", home, "--context", bed.West.Name(), "--yes", "--timeout", "300ms")
	assert.Equal(t, 1, code)
	// Somebody in west has a claim of that name: it is left, and made once that is gone.
	stranger := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "data"}, Spec: *before.Spec.DeepCopy()}
	stranger.Spec.VolumeName, stranger.Spec.DataSource, stranger.Spec.DataSourceRef = "", nil, nil
	strangers := bed.West.Client().CoreV1().PersistentVolumeClaims(taken)
	must.Create(t, strangers, stranger)
	code, out, said = plugin(t, "adopt", home, "--context", bed.West.Name(), "--yes")
	require.Zero(t, code, said)
	assert.NotContains(t, out, "adopted in namespace "+taken)
	assert.Contains(t, said, "namespace "+taken+" stays as it is, so that the command can be run again")
	must.Delete(t, strangers, "data")
	await.Until(t, "the claim of the same name is gone", func() bool { return await.Claim(t, bed.West.Client(), taken, "data") == nil })
	code, again, said := plugin(t, "adopt", home, "--context", bed.West.Name(), "--yes")
	require.Zero(t, code, said)
	assert.Contains(t, again, "persistentvolumeclaim/data adopted in namespace "+taken)
	assert.NotContains(t, said, "stays as it is, so that the command can be run again")
	for _, namespace := range []string{copied, there} {
		assert.Contains(t, out, "persistentvolumeclaim/data adopted in namespace "+namespace)
	}
	pods := must.List(t, bed.West.Client().CoreV1().Pods(there))
	assert.Empty(t, pods.Items, "pods of home have ended before")
	kept := must.Get(t, lines, "data")
	assert.Equal(t, before.UID, kept.UID)
	assert.NotContains(t, kept.Finalizers, keys.BackingFinalizer)
	assert.NotContains(t, kept.Labels, keys.HomeID)
	had := counted(t, bed.FolderOf(t, bed.West, there, "data"))
	goesOn(t, there, had)
	made := await.Claim(t, bed.West.Client(), copied, "data")
	version := counted(t, contentOf(t, bed.West, westDriver, copied, made.Annotations[keys.AdoptedFrom]))
	require.Positive(t, version)
	goesOn(t, copied, version)
	homeComesBack(t, home)
	for namespace, uid := range map[string]types.UID{copied: made.UID, there: kept.UID} {
		number := counted(t, bed.FolderOf(t, bed.West, namespace, "data"))
		await.Until(t, "the pod of west still counts", func() bool { return counted(t, bed.FolderOf(t, bed.West, namespace, "data")) > number })
		claim := await.Claim(t, bed.West.Client(), namespace, "data")
		assert.Equal(t, uid, claim.UID)
		assert.Nil(t, claim.DeletionTimestamp)
		// Only its owner ends it.
		must.Delete(t, bed.West.Client().CoreV1().Namespaces(), namespace)
	}
}
