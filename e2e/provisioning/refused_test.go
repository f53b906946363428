package provisioning

import (
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

func TestClaimThatTheRemoteClusterRefusesGoesHome(t *testing.T) {
	t.Parallel()
	for _, refusal := range []struct {
		name   string
		setUp  func(t *testing.T) (namespace string)
		reason string
		says   string
	}{
		{
			name: "its quota leaves no room",
			setUp: func(t *testing.T) string {
				t.Helper()
				namespace := space(t)
				limitClaims(t, namespace, "0")
				return namespace
			},
			reason: "QuotaExceeded", says: "exceeded quota: claims",
		},
		{
			name: "it has no such namespace",
			setUp: func(t *testing.T) string {
				t.Helper()
				namespace := testbed.Namespace(t, bed.Home)
				offload(t, namespace)
				return namespace
			},
			// Rights in a namespace that does not exist cannot be had.
			reason: "NotAllowed", says: "no such namespace, no rights in it",
		},
		{
			name: "home has no rights in the namespace",
			setUp: func(t *testing.T) string {
				t.Helper()
				namespace := testbed.Namespace(t, bed.Home, bed.West)
				offload(t, namespace)
				return namespace
			},
			reason: "NotAllowed", says: "no such namespace, no rights in it",
		},
		{
			name: "its admission refuses the claim",
			setUp: func(t *testing.T) string {
				t.Helper()
				namespace := space(t)
				refuseClaims(t, namespace)
				return namespace
			},
			reason: "NotValid", says: "the owner of this cluster says no",
		},
		{
			name: "somebody else has a claim of that name there",
			setUp: func(t *testing.T) string {
				t.Helper()
				namespace := space(t)
				_, err := bed.West.Client().CoreV1().PersistentVolumeClaims(namespace).Create(t.Context(), fabric.NewClaim(namespace, "data", fabric.WestNow), metav1.CreateOptions{})
				require.NoError(t, err)
				return namespace
			},
			reason: "ForeignClaim", says: "does not belong to this one",
		},
	} {
		t.Run(refusal.name, func(t *testing.T) {
			t.Parallel()
			namespace := refusal.setUp(t)
			before := claimOf(t, bed.West, namespace, "data")
			claim := createClaim(t, fabric.NewClaim(namespace, "data", fabric.Class))
			createPod(t, preferWest(fabric.NewPod(namespace, "db", "data")))

			assert.Contains(t, await.Event(t, bed.Home.Client(), namespace, "data", refusal.reason), refusal.says)
			assert.NotEqual(t, fabric.WestNode, runs(t, namespace, "db"))
			bound(t, bed.Home, fabric.Storage, twinOf(claim))
			after := claimOf(t, bed.West, namespace, "data")
			if before == nil {
				assert.Nil(t, after, "nothing of ours may stay in west")
				return
			}
			require.NotNil(t, after)
			assert.Equal(t, before.UID, after.UID)
			assert.Empty(t, after.Labels)
			assert.Empty(t, after.Annotations[keys.Claim])
		})
	}
}

func TestClaimsOfOnePodGoHomeTogetherWhenOneIsRefused(t *testing.T) {
	t.Parallel()
	namespace := space(t)
	limitClaims(t, namespace, "1")
	var claims []*corev1.PersistentVolumeClaim
	for _, name := range []string{"one", "two", "three"} {
		claims = append(claims, createClaim(t, fabric.NewClaim(namespace, name, fabric.Class)))
	}
	createPod(t, preferWest(fabric.NewPod(namespace, "db", "one", "two", "three")))

	assert.NotEqual(t, fabric.WestNode, runs(t, namespace, "db"))
	for _, claim := range claims {
		bound(t, bed.Home, fabric.Storage, twinOf(claim))
		assert.Nil(t, claimOf(t, bed.West, namespace, claim.Name))
	}
}

func TestTwinIsMadeAnewWhenTheRealProvisionerHasNoRoomOnTheNode(t *testing.T) {
	t.Parallel()
	namespace := space(t)
	twins := watchClaims(t, bed.Home, fabric.Storage)
	claim := createClaim(t, fabric.NewClaim(namespace, "data", fabric.Class))
	bed.HomeStorage.SetClaim(fabric.Storage, twinOf(claim), instant.Behavior{FullNodes: []string{"home-1"}})
	createPod(t, fabric.Prefer(fabric.AtHome(fabric.NewPod(namespace, "db", "data")), "home-1"))

	assert.Contains(t, await.Event(t, bed.Home.Client(), namespace, "data", "NoCapacity"), `"home-1"`)
	assert.Equal(t, "home-2", runs(t, namespace, "db"))
	twin, _ := bound(t, bed.Home, fabric.Storage, twinOf(claim))
	assert.Equal(t, "home-2", twin.Annotations[keys.SelectedNode])
	assert.Len(t, twins(twinOf(claim)), 2)
}

func TestPodWaitsAtHomeUntilThereIsRoom(t *testing.T) {
	t.Parallel()
	namespace := space(t)
	claim := createClaim(t, fabric.NewClaim(namespace, "data", fabric.Class))
	bed.HomeStorage.SetClaim(fabric.Storage, twinOf(claim), instant.Behavior{FullNodes: []string{instant.EveryNode}})
	createPod(t, fabric.AtHome(fabric.NewPod(namespace, "db", "data")))
	await.Event(t, bed.Home.Client(), namespace, "data", "NoCapacity")
	bed.HomeStorage.ResetClaim(fabric.Storage, twinOf(claim))
	runs(t, namespace, "db")
}
