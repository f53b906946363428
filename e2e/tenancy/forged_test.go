package tenancy

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/instant"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

var neverDeleted = instant.Behavior{DeleteNever: true}

// untouched checks that a claim is what it was: neither written nor deleted.
func untouched(t *testing.T, cluster *testbed.Cluster, was *corev1.PersistentVolumeClaim) {
	t.Helper()
	now := claimOf(t, cluster, was.Namespace, was.Name)
	require.NotNil(t, now)
	assert.Equal(t, was.UID, now.UID)
	assert.Nil(t, now.DeletionTimestamp)
	assert.Equal(t, was.Labels, now.Labels)
	for key, value := range was.Annotations {
		assert.Equal(t, value, now.Annotations[key], key)
	}
	assert.NotContains(t, now.Finalizers, keys.BackingFinalizer)
}

func TestAClaimThatHoldsTheNameOfAShadowIsNotTouched(t *testing.T) {
	owner, other := newTenant(t), newTenant(t)
	stranger := other.claim("stranger", nil)
	for name, labels := range map[string]map[string]string{
		"plain":           nil,
		"of-another":      forged(t, stranger),
		"of-nobody":       {keys.ClaimUID: "00000000-0000-0000-0000-000000000000", keys.HomeID: homeID(t)},
		"of-another-home": {keys.ClaimUID: string(stranger.UID), keys.HomeID: "elsewhere"},
	} {
		t.Run(name, func(t *testing.T) {
			there := owner.claimInWest(name, labels, map[string]string{keys.Claim: owner.namespace + "/" + name})
			owner.claim(name, nil)
			owner.pod(fabric.InWest(fabric.NewPod(owner.namespace, name, name)))
			owner.told(name, "ForeignClaim")
			untouched(t, bed.West, there)
			assert.NotEqual(t, corev1.ClaimBound, claimOf(t, bed.Home, owner.namespace, name).Status.Phase)
		})
	}
}

// TestAForgedShadowDoesNotHideAnotherTenants has a tenant's claim in west say that
// it is the backing claim of another tenant's claim, which is then deleted: what
// was made for that one must still be found and removed.
func TestAForgedShadowDoesNotHideAnotherTenants(t *testing.T) {
	victim, attacker := newTenant(t), newTenant(t)
	bed.WestStorage.SetClaim(victim.namespace, "data", instant.Behavior{Never: true})
	t.Cleanup(func() { bed.WestStorage.ResetClaim(victim.namespace, "data") })
	class := virtualClass(t, victim.namespace, map[string]string{keys.RemoteClass: fabric.WestNow})
	data := victim.claim("data", func(c *corev1.PersistentVolumeClaim) { c.Spec.StorageClassName = &class })
	victim.pod(fabric.InWest(fabric.NewPod(victim.namespace, "db", "data")))
	await.Until(t, "the shadow is there", func() bool { return claimOf(t, bed.West, victim.namespace, "data") != nil }, func() any { return victim.events() })

	// The real volume of this shadow never comes, so no virtual volume tells
	// where it is.
	var fakes []*corev1.PersistentVolumeClaim
	for name, says := range map[string]string{"a": attacker.namespace + "/data", "b": victim.namespace + "/other", "c": "nonsense"} {
		fakes = append(fakes, attacker.claimInWest(name, forged(t, data), map[string]string{keys.Claim: says, keys.Unpublished: "true"}))
	}
	victim.delete("db", "data")
	await.Until(t, "the shadow is removed", func() bool { return claimOf(t, bed.West, victim.namespace, "data") == nil }, func() any { return victim.events() })
	for _, fake := range fakes {
		untouched(t, bed.West, fake)
	}
}

func virtualClass(t *testing.T, name string, parameters map[string]string) string {
	t.Helper()
	classes := bed.Home.Client().StorageV1().StorageClasses()
	class, err := classes.Get(t.Context(), fabric.Class, metav1.GetOptions{})
	require.NoError(t, err)
	class.ObjectMeta = metav1.ObjectMeta{Name: name}
	class.Parameters = parameters
	_, err = classes.Create(t.Context(), class, metav1.CreateOptions{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, classes.Delete(context.Background(), name, metav1.DeleteOptions{})) })
	return name
}

func TestAClaimMadeByHandInTheStorageNamespaceIsNoTwin(t *testing.T) {
	user := newTenant(t)
	claim := user.claim("data", nil)
	storage := bed.Home.Client().CoreV1().PersistentVolumeClaims(fabric.Storage)
	byHand := func(name string, labels map[string]string) *corev1.PersistentVolumeClaim {
		stray := fabric.NewClaim(fabric.Storage, name, fabric.HomeNow)
		stray.Labels = labels
		stray.Annotations = map[string]string{keys.Claim: user.namespace + "/data", keys.Unpublished: "true"}
		created, err := storage.Create(t.Context(), stray, metav1.CreateOptions{})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, storage.Delete(context.Background(), name, metav1.DeleteOptions{})) })
		return created
	}
	// With our labels under another name, and under the twin's name without them.
	misnamed := byHand("stray-"+user.namespace, forged(t, claim))
	unlabelled := byHand("pvc-"+string(claim.UID), nil)
	user.pod(fabric.AtHome(fabric.NewPod(user.namespace, "db", "data")))
	user.told("data", "ForeignClaim")
	untouched(t, bed.Home, misnamed)
	untouched(t, bed.Home, unlabelled)
	assert.NotEqual(t, corev1.ClaimBound, claimOf(t, bed.Home, user.namespace, "data").Status.Phase)

	user.delete("db", "data")
	await.Never(t, "claims that are not ours are not cleaned up", func() bool {
		return claimOf(t, bed.Home, fabric.Storage, misnamed.Name) == nil || claimOf(t, bed.Home, fabric.Storage, unlabelled.Name) == nil
	})
	untouched(t, bed.Home, misnamed)
	untouched(t, bed.Home, unlabelled)
}

func TestAVirtualClaimInTheStorageNamespaceIsNotServed(t *testing.T) {
	testbed.Require(t)
	claims := bed.Home.Client().CoreV1().PersistentVolumeClaims(fabric.Storage)
	claim := fabric.NewClaim(fabric.Storage, "virtual", fabric.Class)
	claim.Annotations = map[string]string{keys.SelectedNode: "home-1"}
	made, err := claims.Create(t.Context(), claim, metav1.CreateOptions{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, claims.Delete(context.Background(), made.Name, metav1.DeleteOptions{})) })
	await.Never(t, "a twin has no twin", func() bool { return claimOf(t, bed.Home, fabric.Storage, "pvc-"+string(made.UID)) != nil })
}
