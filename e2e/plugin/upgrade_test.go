package plugin

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/must"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/confinement"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// TestBeforeAnUpgradeThePluginSaysWhatItChanges has an installation as versions before left it, in both clusters.
func TestBeforeAnUpgradeThePluginSaysWhatItChanges(t *testing.T) {
	testbed.Require(t)
	t.Cleanup(func() { unpeered(t) })
	check := func(context string) string {
		return lodestone(t, "check-upgrade", "--context", context).ends(t, done).out
	}
	require.NotContains(t, check("west"), "policy "+confinement.Name, "it is that of this version")

	must.Create(t, bed.Agents.HomeClusters(), &remotev1alpha1.HomeCluster{ObjectMeta: metav1.ObjectMeta{Name: "older"}})
	restore := func(ctx context.Context) {
		_, err := bed.West.Kubectl(ctx, "", "apply", "-k", filepath.Join(fabric.Root(), "deploy", "remote", "home"))
		require.NoError(t, err)
	}
	t.Cleanup(func() { restore(context.Background()) })
	must.Kubectl(t, bed.West, "", "delete", "validatingadmissionpolicybinding", confinement.Name)
	west := check("west")
	assert.Contains(t, west, "HomeCluster older: it lists no namespaces and so may have those of any name; after the upgrade")
	assert.Contains(t, west, "policy "+confinement.Name+": ")
	assert.Contains(t, west, "apply all of deploy/remote of the new version, the agent first")

	must.Create(t, bed.Remotes, &v1alpha1.RemoteCluster{ObjectMeta: metav1.ObjectMeta{Name: "routed"},
		Spec: v1alpha1.RemoteClusterSpec{PodNetwork: v1alpha1.Routed,
			KubeconfigSecretRef: v1alpha1.SecretKeyRef{Namespace: fabric.System, Name: "routed"}}})
	assert.Contains(t, check("home"), "RemoteCluster routed: its podNetwork is Routed and it has no podCIDRs; after the upgrade")

	restore(t.Context())
	assert.NotContains(t, check("west"), "policy "+confinement.Name)
}

// TestClaimsThatAreUsedInARemoteClusterAreMarkedBeforeAnUpgrade has a pod run in west with storage that is in both clusters, as versions
// before let it without a mark.
func TestClaimsThatAreUsedInARemoteClusterAreMarkedBeforeAnUpgrade(t *testing.T) {
	peered(t)
	namespace := openNamespace(t)
	home := bed.Home.Client().CoreV1()
	claim := fabric.NewClaim(namespace, "films", "")
	claim.Spec.VolumeName, claim.Annotations = namespace, map[string]string{keys.UsableIn: "west"}
	must.Create(t, home.PersistentVolumes(), &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: namespace},
		Spec: corev1.PersistentVolumeSpec{
			AccessModes: claim.Spec.AccessModes, Capacity: claim.Spec.Resources.Requests,
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
			PersistentVolumeSource:        corev1.PersistentVolumeSource{NFS: &corev1.NFSVolumeSource{Server: "nfs.example.com", Path: "/films"}},
		},
	})
	t.Cleanup(func() { _ = home.PersistentVolumes().Delete(context.Background(), namespace, metav1.DeleteOptions{}) })
	must.Create(t, home.PersistentVolumeClaims(namespace), claim)
	there := bed.West.Client().CoreV1().PersistentVolumeClaims(namespace)
	must.Create(t, there, fabric.NewClaim(namespace, "films", fabric.WestNow))
	t.Cleanup(func() { _ = there.Delete(context.Background(), "films", metav1.DeleteOptions{}) })
	podInWest(t, namespace, "player", "films")
	player := podOf(t, namespace, "player")
	must.Kubectl(t, bed.Home, "", "annotate", "pvc", "films", "-n", namespace, keys.UsableIn+"-")

	about := "claim " + namespace + "/films"
	found := lodestone(t, "check-upgrade").ends(t, done).out
	assert.Contains(t, found, about+": it is not of a class of Lodestone, and pod player uses it in cluster west")
	assert.Contains(t, found, "annotate it "+keys.UsableIn+"=west, which `kubectl lodestone check-upgrade --mark` does")
	mark := func() string { return await.Claim(t, bed.Home.Client(), namespace, "films").Annotations[keys.UsableIn] }
	withInput(t, "no\n", "check-upgrade", "--mark").ends(t, refused)
	assert.Empty(t, mark(), "it asks first")
	marked := lodestone(t, "check-upgrade", "--mark", "--yes").ends(t, done)
	assert.Contains(t, marked.stderr, about+" is used in cluster west by pod player")
	assert.Contains(t, marked.out, "persistentvolumeclaim/films -n "+namespace+" marked "+keys.UsableIn+"=west")
	assert.Equal(t, "west", mark())
	assert.NotContains(t, lodestone(t, "check-upgrade").ends(t, done).out, about)
	assert.Equal(t, player.UID, podOf(t, namespace, "player").UID, "nothing restarts")
	endPod(t, namespace, "player")
	podInWest(t, namespace, "next", "films")
	endPod(t, namespace, "next")
}
