package provisioning

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// ofClass is the name of the quota of what claims of a class ask for together.
func ofClass(class string) corev1.ResourceName {
	return corev1.ResourceName(class + ".storageclass.storage.k8s.io/requests.storage")
}

// limitTo makes a quota in a namespace, named storage-limit, and waits until it is
// counted.
func limitTo(t *testing.T, cluster *testbed.Cluster, namespace string, hard corev1.ResourceList) {
	t.Helper()
	quotas := cluster.Client().CoreV1().ResourceQuotas(namespace)
	name := "storage-limit"
	if namespace == fabric.Storage {
		name += "-" + rand.String(6)
		t.Cleanup(func() { _ = quotas.Delete(context.Background(), name, metav1.DeleteOptions{}) })
	}
	_, err := quotas.Create(t.Context(), &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.ResourceQuotaSpec{Hard: hard}}, metav1.CreateOptions{})
	require.NoError(t, err)
	eventually(t, func() bool {
		have, err := quotas.Get(t.Context(), name, metav1.GetOptions{})
		return err == nil && len(have.Status.Used) == len(hard)
	}, func() string { return "the quota is not counted" })
}

// bounds makes a LimitRange for claims in a namespace of west. It is in force once
// a claim that breaks it is refused.
func bounds(t *testing.T, namespace string, item corev1.LimitRangeItem) {
	t.Helper()
	item.Type = corev1.LimitTypePersistentVolumeClaim
	_, err := bed.West.Client().CoreV1().LimitRanges(namespace).Create(t.Context(), &corev1.LimitRange{
		ObjectMeta: metav1.ObjectMeta{Name: "sizes"}, Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{item}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	eventually(t, func() bool {
		_, err := bed.West.Client().CoreV1().PersistentVolumeClaims(namespace).Create(t.Context(), fabric.NewClaim(namespace, "probe", fabric.WestNow), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return apierrors.IsForbidden(err)
	}, func() string { return "the limits are not in force" })
}

func size(quantity string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(quantity)}
}

// Whichever way its real class binds, a shadow is refused when it is made.
func TestClaimGoesHomeWhereQuotasAndLimitsOfTheRemoteNamespaceDoNotAllowIt(t *testing.T) {
	t.Parallel()
	for _, class := range []string{fabric.WestNow, fabric.WestWait} {
		for name, test := range map[string]struct {
			limit  func(t *testing.T, namespace string)
			reason string
			says   []string
		}{
			"a quota of what claims ask for together": {
				limit: func(t *testing.T, namespace string) {
					t.Helper()
					limitTo(t, bed.West, namespace, corev1.ResourceList{corev1.ResourceRequestsStorage: resource.MustParse("512Mi")})
				}, reason: "QuotaExceeded", says: []string{"storage-limit", "requests.storage=512Mi"}},
			"a quota of the real class": {
				limit: func(t *testing.T, namespace string) {
					t.Helper()
					limitTo(t, bed.West, namespace, corev1.ResourceList{ofClass(class): resource.MustParse("512Mi")})
				}, reason: "QuotaExceeded", says: []string{"storage-limit", class}},
			"a LimitRange with a maximum": {
				limit: func(t *testing.T, namespace string) {
					t.Helper()
					bounds(t, namespace, corev1.LimitRangeItem{Max: size("512Mi")})
				}, reason: "OutsideLimits", says: []string{"maximum storage usage per PersistentVolumeClaim is 512Mi, but request is 1Gi", "LimitRange"}},
			"a LimitRange with a minimum": {
				limit: func(t *testing.T, namespace string) {
					t.Helper()
					bounds(t, namespace, corev1.LimitRangeItem{Min: size("2Gi")})
				}, reason: "OutsideLimits", says: []string{"minimum storage usage per PersistentVolumeClaim is 2Gi, but request is 1Gi"}},
		} {
			t.Run(name+", "+class, func(t *testing.T) {
				t.Parallel()
				namespace := space(t)
				test.limit(t, namespace)
				virtual := newClass(t, with(keys.RemoteClass, class))
				hasRoom(t, virtual, fabric.WestNode)
				claim := createClaim(t, fabric.NewClaim(namespace, "data", virtual))
				createPod(t, preferWest(fabric.NewPod(namespace, "db", "data")))
				told := await.Event(t, bed.Home.Client(), namespace, "data", test.reason)
				for _, says := range test.says {
					assert.Contains(t, told, says)
				}
				assert.NotEqual(t, fabric.WestNode, runs(t, namespace, "db"))
				bound(t, bed.Home, fabric.Storage, twinOf(claim))
				assert.Nil(t, claimOf(t, bed.West, namespace, "data"))
			})
		}
	}
}

func TestClaimGoesThereOnceTheQuotaOfTheRemoteNamespaceIsRaised(t *testing.T) {
	t.Parallel()
	namespace := space(t)
	limitTo(t, bed.West, namespace, corev1.ResourceList{corev1.ResourceRequestsStorage: resource.MustParse("512Mi")})
	createClaim(t, fabric.NewClaim(namespace, "data", fabric.Class))
	createPod(t, fabric.InWest(fabric.NewPod(namespace, "db", "data")))
	assert.Contains(t, await.Event(t, bed.Home.Client(), namespace, "data", "QuotaExceeded"), "storage-limit")
	_, err := bed.West.Kubectl(t.Context(), "", "patch", "resourcequota", "-n", namespace, "storage-limit", "-p", `{"spec":{"hard":{"requests.storage":"1Gi"}}}`)
	require.NoError(t, err)
	assert.Equal(t, fabric.WestNode, runs(t, namespace, "db"))
	bound(t, bed.West, namespace, "data")
}

func TestClaimGoesElsewhereWhenTheQuotaOfTheStorageNamespaceLeavesNoRoom(t *testing.T) {
	t.Parallel()
	namespace := space(t)
	real := makeClass(t, bed.Home, bed.HomeStorage.Class("limited-"+namespace, storagev1.VolumeBindingWaitForFirstConsumer))
	limitTo(t, bed.Home, fabric.Storage, corev1.ResourceList{ofClass(real): resource.MustParse("1Gi")})
	class := newClass(t, with(keys.LocalClass, real))
	createClaim(t, fabric.NewClaim(namespace, "first", class))
	createPod(t, fabric.AtHome(fabric.NewPod(namespace, "one", "first")))
	runs(t, namespace, "one")
	createClaim(t, fabric.NewClaim(namespace, "data", class))
	createPod(t, fabric.Prefer(fabric.NewPod(namespace, "db", "data"), "home-1"))
	told := await.Event(t, bed.Home.Client(), namespace, "data", "QuotaExceeded")
	assert.Contains(t, told, "storage-limit")
	assert.Contains(t, told, fabric.Storage)
	assert.Equal(t, fabric.WestNode, runs(t, namespace, "db"))
	bound(t, bed.West, namespace, "data")
}

// A virtual claim counts once, in the namespace of its user, as one of the virtual
// class; its twin counts elsewhere, as one of the real class.
func TestVirtualClaimsCountInTheQuotasOfTheirNamespace(t *testing.T) {
	t.Parallel()
	namespace := space(t)
	class := newClass(t)
	hard := corev1.ResourceList{
		ofClass(class): resource.MustParse("3Gi"), ofClass(fabric.HomeWait): resource.MustParse("0"), corev1.ResourceRequestsStorage: resource.MustParse("3Gi"),
		corev1.ResourcePersistentVolumeClaims: resource.MustParse("2"),
	}
	limitTo(t, bed.Home, namespace, hard)
	createClaim(t, sized(fabric.NewClaim(namespace, "home", class), "2Gi"))
	createPod(t, fabric.AtHome(fabric.NewPod(namespace, "one", "home")))
	createClaim(t, fabric.NewClaim(namespace, "west", class))
	createPod(t, fabric.InWest(fabric.NewPod(namespace, "two", "west")))
	runs(t, namespace, "one")
	runs(t, namespace, "two")
	_, err := bed.Home.Client().CoreV1().PersistentVolumeClaims(namespace).Create(t.Context(), fabric.NewClaim(namespace, "more", class), metav1.CreateOptions{})
	require.True(t, apierrors.IsForbidden(err), "%v", err)
	assert.ErrorContains(t, err, "storage-limit")
	quota, err := bed.Home.Client().CoreV1().ResourceQuotas(namespace).Get(t.Context(), "storage-limit", metav1.GetOptions{})
	require.NoError(t, err)
	for name, want := range map[corev1.ResourceName]string{
		ofClass(class): "3Gi", ofClass(fabric.HomeWait): "0", corev1.ResourceRequestsStorage: "3Gi", corev1.ResourcePersistentVolumeClaims: "2"} {
		used := quota.Status.Used[name]
		assert.Zero(t, used.Cmp(resource.MustParse(want)), "%s: used %s", name, used.String())
	}
}
