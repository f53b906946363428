package tenancy

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

func TestATenantSeesNothingOfTheFabric(t *testing.T) {
	attacker := newTenant(t)
	core := attacker.home.CoreV1()
	for what, err := range map[string]error{
		"list twins":          second(core.PersistentVolumeClaims(fabric.Storage).List(t.Context(), metav1.ListOptions{})),
		"make a twin":         second(core.PersistentVolumeClaims(fabric.Storage).Create(t.Context(), fabric.NewClaim(fabric.Storage, "mine", fabric.HomeNow), metav1.CreateOptions{})),
		"list volumes":        second(core.PersistentVolumes().List(t.Context(), metav1.ListOptions{})),
		"read kubeconfigs":    second(core.Secrets(fabric.System).Get(t.Context(), "west", metav1.GetOptions{})),
		"list namespaces":     second(core.Namespaces().List(t.Context(), metav1.ListOptions{})),
		"list clusters":       attacker.home.Discovery().RESTClient().Get().AbsPath("/apis/lodestone.dev/v1alpha1/remoteclusters").Do(t.Context()).Error(),
		"offload a namespace": second(core.Namespaces().Patch(t.Context(), attacker.namespace, "application/merge-patch+json", []byte(`{"metadata":{"labels":{"lodestone.dev/offload":null}}}`), metav1.PatchOptions{})),
	} {
		assert.True(t, apierrors.IsForbidden(err), "%s: %v", what, err)
	}
}

func second[T any](_ T, err error) error { return err }

// TestForgedClaimsReachNoOther puts all that can be forged on claims of a tenant's
// own, and looks whether another tenant's volumes change hands or state.
func TestForgedClaimsReachNoOther(t *testing.T) {
	victim, attacker := newTenant(t), newTenant(t)
	victim.claim("home", nil)
	victim.pod(fabric.AtHome(fabric.NewPod(victim.namespace, "home", "home")))
	victim.claim("west", nil)
	victim.pod(fabric.InWest(fabric.NewPod(victim.namespace, "west", "west")))

	taken := map[string]bool{}
	for _, name := range []string{"home", "west"} {
		claim, volume := victim.bound(name)
		taken[volume.Spec.CSI.VolumeHandle] = true
		forge := func(forged *corev1.PersistentVolumeClaim) {
			forged.Labels = map[string]string{keys.ClaimUID: string(claim.UID), keys.HomeID: homeID(t), keys.Cluster: "west"}
			forged.Annotations = map[string]string{
				keys.Claim:                           victim.namespace + "/" + name,
				keys.Backing:                         volume.Annotations[keys.Backing],
				keys.BackingVolume:                   volume.Annotations[keys.BackingVolume],
				keys.Routed:                          "../" + victim.namespace,
				keys.ClusterChanged:                  "forged",
				"volume.kubernetes.io/selected-node": "",
			}
			forged.Finalizers = []string{keys.BackingFinalizer}
		}
		// Under the victim's names too: shadows are named as their claims.
		for _, own := range []string{name, name + "-of-" + string(claim.UID)} {
			attacker.claim(own, forge)
			t.Cleanup(func() { unhold(t, attacker.namespace, own) })
		}
	}
	attacker.pod(fabric.AtHome(fabric.NewPod(attacker.namespace, "home", "home")))
	attacker.pod(fabric.InWest(fabric.NewPod(attacker.namespace, "west", "west")))
	for _, name := range []string{"home", "west"} {
		claim, volume := attacker.bound(name)
		assert.False(t, taken[volume.Spec.CSI.VolumeHandle], "a volume of its own")
		assert.Equal(t, "pvc-"+string(claim.UID), volume.Name)
		assert.NotContains(t, volume.Annotations[keys.Backing], victim.namespace)
	}
	for _, name := range []string{"home", "west"} {
		claim, volume := victim.bound(name)
		assert.Equal(t, claim.UID, volume.Spec.ClaimRef.UID)
		assert.Nil(t, volume.DeletionTimestamp)
	}
	shadow := claimOf(t, bed.West, victim.namespace, "west")
	require.NotNil(t, shadow)
	assert.Nil(t, shadow.DeletionTimestamp)
	assertWritesStayInMappedNamespaces(t)
}

// unhold takes the finalizers off a claim that a test forged.
func unhold(t *testing.T, namespace, name string) {
	t.Helper()
	_, err := bed.Home.Kubectl(context.Background(), "", "patch", "pvc", "-n", namespace, name, "--type=merge", "-p", `{"metadata":{"finalizers":null}}`)
	require.NoError(t, err)
}

// assertWritesStayInMappedNamespaces looks through every claim of both clusters:
// what Lodestone made is only where it belongs.
func assertWritesStayInMappedNamespaces(t *testing.T) {
	t.Helper()
	twins, err := bed.Home.Client().CoreV1().PersistentVolumeClaims("").List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	uids := map[string]string{}
	for _, claim := range twins.Items {
		uids[string(claim.UID)] = claim.Namespace
		if claim.Annotations[keys.Claim] != "" && len(claim.OwnerReferences) == 0 && strings.HasPrefix(claim.Name, "pvc-") {
			assert.Equal(t, fabric.Storage, claim.Namespace, claim.Name)
		}
	}
	shadows, err := bed.West.Client().CoreV1().PersistentVolumeClaims("").List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	for _, shadow := range shadows.Items {
		if home, ok := uids[shadow.Labels[keys.ClaimUID]]; ok {
			assert.Equal(t, home, shadow.Namespace, "shadow %s", shadow.Name)
		}
	}
}

func TestAnotherTenantsVolumeCannotBeAskedForByName(t *testing.T) {
	victim, attacker := newTenant(t), newTenant(t)
	victim.claim("data", nil)
	victim.pod(fabric.InWest(fabric.NewPod(victim.namespace, "db", "data")))
	_, volume := victim.bound("data")
	attacker.claim("steal", func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeName = volume.Name })
	attacker.pod(fabric.NewPod(attacker.namespace, "thief", "steal"))
	attacker.stays("steal")
	_, after := victim.bound("data")
	assert.Equal(t, volume.Spec.ClaimRef.UID, after.Spec.ClaimRef.UID)
	assert.Nil(t, claimOf(t, bed.West, attacker.namespace, "steal"), "nothing is made for a claim that names its volume")
	for _, twin := range claimsIn(t, fabric.Storage) {
		assert.NotEqual(t, attacker.namespace+"/steal", twin.Annotations[keys.Claim])
	}

	// Neither when its owner has let it go, and before it is deleted.
	bed.WestStorage.SetClaim(victim.namespace, "data", neverDeleted)
	t.Cleanup(func() { bed.WestStorage.ResetClaim(victim.namespace, "data") })
	victim.delete("db", "data")
	await.Until(t, "the volume is released", func() bool {
		now, err := bed.Home.Client().CoreV1().PersistentVolumes().Get(t.Context(), volume.Name, metav1.GetOptions{})
		require.NoError(t, err)
		return now.Status.Phase == corev1.VolumeReleased
	}, func() any { return victim.events() })
	attacker.stays("steal")
}

func claimsIn(t *testing.T, namespace string) []corev1.PersistentVolumeClaim {
	t.Helper()
	list, err := bed.Home.Client().CoreV1().PersistentVolumeClaims(namespace).List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	return list.Items
}

func TestARealClassThatIsNotListedIsNotGiven(t *testing.T) {
	attacker := newTenant(t)
	for name, class := range map[string]string{"real": fabric.HomeNow, "virtual": fabric.Class, "path": "../" + fabric.HomeNow} {
		attacker.claim(name, func(c *corev1.PersistentVolumeClaim) {
			c.Annotations = map[string]string{keys.Class: class, keys.SelectedNode: "home-1"}
		})
		attacker.told(name, "InvalidClaim")
		assert.Nil(t, claimOf(t, bed.Home, fabric.Storage, "pvc-"+string(claimOf(t, bed.Home, attacker.namespace, name).UID)))
		attacker.delete("", name)
	}
}

func TestANodeChosenByHandReachesNoClusterThatTheNamespaceMayNotUse(t *testing.T) {
	attacker := newTenant(t)
	_, err := bed.Home.Kubectl(t.Context(), "", "label", "namespace", attacker.namespace, keys.Offload+"-")
	require.NoError(t, err)
	attacker.claim("data", func(c *corev1.PersistentVolumeClaim) {
		c.Annotations = map[string]string{keys.SelectedNode: fabric.WestNode, keys.Routed: "west"}
	})
	attacker.told("data", "NotOffloaded")
	assert.Nil(t, claimOf(t, bed.West, attacker.namespace, "data"))
}

func TestARefusedAnnotationHarmsOnlyItsOwnClaim(t *testing.T) {
	victim, attacker := newTenant(t), newTenant(t)
	forever := `{"cluster":"west","reason":"x","message":"` + strings.Repeat("m", 2000) + `","until":"2999-01-01T00:00:00Z"}`
	huge := "[" + strings.Repeat(forever+",", 50) + forever + "]"
	require.Greater(t, len(huge), 100_000)
	for name, text := range map[string]string{
		"garbage": "][{", "huge-garbage": strings.Repeat("x", 100_000), "wrong-types": `[{"cluster":1,"until":[]}]`, "deep": strings.Repeat("[", 20_000),
		// More than is ever written counts as nothing: to read it would take long.
		"huge": huge,
	} {
		attacker.claim(name, func(c *corev1.PersistentVolumeClaim) { c.Annotations = map[string]string{keys.Refused: text} })
		attacker.pod(fabric.InWest(fabric.NewPod(attacker.namespace, name, name)))
		attacker.bound(name)
	}
	attacker.claim("forever", func(c *corev1.PersistentVolumeClaim) {
		c.Annotations = map[string]string{keys.Refused: "[" + forever + "]"}
	})
	attacker.pod(fabric.InWest(fabric.NewPod(attacker.namespace, "forever", "forever")))
	attacker.stays("forever")

	victim.claim("data", nil)
	victim.pod(fabric.InWest(fabric.NewPod(victim.namespace, "db", "data")))
	victim.bound("data")
}
