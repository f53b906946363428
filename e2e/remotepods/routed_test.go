package remotepods

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/must"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// network sets how pods of home and west reach each other, and the ranges of west's pods.
func network(t *testing.T, network v1alpha1.PodNetwork, ranges ...string) error {
	t.Helper()
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"podNetwork": network, "podCIDRs": ranges}})
	require.NoError(t, err)
	_, err = bed.Remotes.Patch(t.Context(), "west", types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}

// lie has west's owner write an address into the status of a pod.
func lie(t *testing.T, namespace, name, address string) {
	t.Helper()
	patch, err := json.Marshal(map[string]any{"status": map[string]any{"podIP": address, "podIPs": []corev1.PodIP{{IP: address}}}})
	require.NoError(t, err)
	_, err = bed.West.Client().CoreV1().Pods(namespace).Patch(t.Context(), name, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
	require.NoError(t, err)
}

// TestOnlyAddressesOfWestsRangesAreTaken has a peering of before, without ranges, get them,
// and west lie about the address of a pod.
func TestOnlyAddressesOfWestsRangesAreTaken(t *testing.T) {
	namespace := open(t)
	create(t, newPod(namespace, "web"))
	_, west := runs(t, namespace, "web")
	address := func(name string) string { return get(t, bed.Home, namespace, name).Status.PodIP }
	has := func(want string) {
		t.Helper()
		await.Until(t, "home's pod has address "+want, func() bool { return address("web") == want },
			func() any { return await.Events(t, bed.Home.Client(), namespace) })
	}

	require.NoError(t, network(t, v1alpha1.Routed))
	defer func() { assert.NoError(t, network(t, v1alpha1.Isolated)) }()
	assert.Contains(t, await.Event(t, bed.Home.Client(), namespace, "web", "NoPodRanges"), "spec.podCIDRs")
	assert.Empty(t, address("web"), "no ranges are known")
	await.Until(t, "the RemoteCluster says so", func() bool {
		remote := must.Get(t, bed.Remotes, "west")
		said := meta.FindStatusCondition(remote.Status.Conditions, v1alpha1.VirtualNode)
		return said != nil && said.Status == metav1.ConditionTrue && strings.Contains(said.Message, "spec.podCIDRs")
	})

	// The nodes of west give pods addresses from 10.128.0.0/9.
	require.NoError(t, network(t, v1alpha1.Routed, "10.128.0.0/9"))
	has(west.Status.PodIP)
	await.Until(t, "it is told nowhere else", func() bool { return get(t, bed.Home, namespace, "web").Annotations[keys.RemoteIP] == "" })
	assert.Equal(t, west.UID, get(t, bed.West, namespace, "web").UID)

	// 10.96.0.1 is the API server of home to its pods.
	lie(t, namespace, "web", "10.96.0.1")
	assert.Contains(t, await.Event(t, bed.Home.Client(), namespace, "web", "AddressRefused"), "10.96.0.1, which is in none of its pod ranges")
	has("")
	lie(t, namespace, "web", west.Status.PodIP)
	has(west.Status.PodIP)

	// Without the ranges again, as after an upgrade: a pod keeps what it has, and no other gets one.
	require.NoError(t, network(t, v1alpha1.Routed))
	create(t, newPod(namespace, "late"))
	runs(t, namespace, "late")
	await.Event(t, bed.Home.Client(), namespace, "late", "NoPodRanges")
	assert.Empty(t, address("late"))
	assert.Equal(t, west.Status.PodIP, address("web"))

	for _, bad := range []string{"10.0.0.1", "10.1.2.3/16", "0.0.0.0/0", "pods"} {
		err := network(t, v1alpha1.Routed, bad)
		assert.True(t, apierrors.IsInvalid(err), "%s: %v", bad, err)
		assert.ErrorContains(t, err, "podCIDRs", bad)
	}
}
