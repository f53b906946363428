package namespaces

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/pkg/keys"
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
		_, err := bed.Home.Client().CoreV1().Pods(closed).Create(t.Context(), pod, metav1.CreateOptions{})
		require.NoError(t, err)
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
	kept, gone := space(t, "shop-", true), space(t, "shop-", true)
	t.Parallel()
	for _, namespace := range []string{kept, gone} {
		use(t, namespace, inWest(namespace))
		runsOn(t, namespace, true)
	}
	_, err := bed.Agents.ShadowPods(kept).Create(t.Context(), shadowPod(heldPod(t, kept, "left")), metav1.CreateOptions{})
	require.NoError(t, err)

	kubectl(t, "label", "namespace", kept, keys.Offload+"-")
	first := requested(t, kept).UID
	drop(t, kept)
	kubectl(t, "delete", "namespace", gone, "--wait=false")
	await.Until(t, "the data in both is deleted", func() bool { return !hasShadow(t, kept) && !hasShadow(t, gone) }, func() any { return await.Events(t, bed.Home.Client(), kept) })
	await.Until(t, "the namespace whose home is gone is given back", func() bool { return requested(t, gone) == nil }, func() any { return requested(t, gone) })
	assert.False(t, recorded(t, gone), "and forgotten")

	// The other one was empty of claims for as long.
	await.Never(t, "pods are left there", func() bool { return requested(t, kept) == nil })
	require.NoError(t, bed.Agents.ShadowPods(kept).Delete(t.Context(), "left", metav1.DeleteOptions{}))
	await.Until(t, "the closed namespace is given back", func() bool { return requested(t, kept) == nil }, func() any { return requested(t, kept) })
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
	require.NoError(t, bed.Agents.NamespaceRequests(owner.tenant()).Delete(t.Context(), namespace, metav1.DeleteOptions{}))
	awaitGiven(t, namespace)
	drop(t, namespace)
	await.Until(t, "the data is deleted", func() bool { return !hasShadow(t, namespace) }, func() any { return await.Events(t, bed.Home.Client(), namespace) })
}
