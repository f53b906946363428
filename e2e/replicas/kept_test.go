package replicas

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/must"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/volumesnapshot"
)

// keepVersions has the owner of west say how old versions must be before home may delete them, as JSON, and waits until the namespace
// says so.
func keepVersions(t *testing.T, namespace, minimumAge, says string) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	home, err := bed.HomeID(ctx)
	require.NoError(t, err)
	_, err = bed.Agents.HomeClusters().Patch(ctx, home, types.MergePatchType,
		fmt.Appendf(nil, `{"spec":{"replicas":{"minimumAge":%s}}}`, minimumAge), metav1.PatchOptions{})
	require.NoError(t, err)
	await.Until(t, "versions are kept for "+minimumAge, func() bool {
		at, err := bed.West.Client().CoreV1().Namespaces().Get(ctx, namespace, metav1.GetOptions{})
		return err == nil && at.Annotations[keys.VersionsKeptFor] == says
	})
}

// asHome is a client with home's credentials in west.
func asHome(t *testing.T) dynamic.Interface {
	t.Helper()
	home, err := bed.HomeID(t.Context())
	require.NoError(t, err)
	kubeconfig, err := bed.West.ServiceAccountKubeconfig(t.Context(), keys.TenantPrefix+home, keys.HomeAccount)
	require.NoError(t, err)
	config, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
	require.NoError(t, err)
	client, err := dynamic.NewForConfig(config)
	require.NoError(t, err)
	return client
}

// spoiled says whether a version has a log that the application has scrambled.
func spoiled(t *testing.T, namespace, version string) bool {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(contentOf(t, bed.West, westDriver, namespace, version), "log"))
	require.NoError(t, err)
	return strings.HasPrefix(string(data), "scrambled\n")
}

// TestAVersionFromBeforeTheDataWasSpoiledIsThereAndIsRestored has the application scramble its files, and a hostile home try all that
// could make the version from before go.
func TestAVersionFromBeforeTheDataWasSpoiledIsThereAndIsRestored(t *testing.T) {
	testbed.NotInShort(t)
	namespace := space(t)
	counts(t, namespace, virtual, keys.Home)
	made := replicate(t, namespace, "west")
	good := versionsOf(sealed(t, made, time.Time{}))[0]
	keepVersions(t, namespace, `"1h"`, "1h0m0s")
	t.Cleanup(func() { keepVersions(t, namespace, "null", "") })
	has := counted(t, contentOf(t, bed.West, westDriver, namespace, good))

	require.NoError(t, os.WriteFile(filepath.Join(folder(t, namespace), "log"), []byte("scrambled\n"), 0o600))
	now := until(t, "more scrambled versions are sealed than are wanted", made, func(now *v1alpha1.VolumeReplica) bool {
		all := versionsOf(now)
		return len(all) > 4 && spoiled(t, namespace, all[0]) && spoiled(t, namespace, all[1]) && spoiled(t, namespace, all[2])
	})
	require.Contains(t, versionsOf(now), good)
	now = until(t, "nothing is wrong, and it says which stay", made, func(now *v1alpha1.VolumeReplica) bool {
		healthy := meta.FindStatusCondition(now.Status.Conditions, v1alpha1.ReplicaHealthy)
		return healthy.Status == metav1.ConditionTrue && strings.Contains(healthy.Message, " versions more than spec.versions says "+
			"stay for now: cluster west: the owner of this cluster keeps sealed versions for 1h0m0s, so this one stays until ")
	})
	t.Log(meta.FindStatusCondition(now.Status.Conditions, v1alpha1.ReplicaHealthy).Message)
	now = pause(t, made)
	kept := versionsOf(now)
	require.Greater(t, len(kept), 4)

	hostileHome(t, namespace, good, kept)

	// One command.
	code, _, said := plugin(t, "failover", "data", "-n", namespace, "--version", good, "--yes")
	require.Zero(t, code, said)
	require.True(t, strings.HasPrefix(folder(t, namespace), filepath.Join(bed.Disks.Root, westDriver)))
	beyond(t, namespace, has)

	// What is kept goes once it may.
	must.Delete(t, objects(t).Replicas(namespace), made.Name)
	moves, err := objects(t).In(namespace).List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	for i := range moves.Items {
		act(t, &moves.Items[i], v1alpha1.ActionFinalize)
	}
	says(t, made, "BeingRemoved", fmt.Sprintf("the versions that are left (%d) are removed once they may be; VolumeSnapshot %s/", len(kept),
		namespace))
	says(t, made, "BeingRemoved", ": cluster west: the owner of this cluster keeps sealed versions for 1h0m0s, so this one stays until ")
	assert.Len(t, left(t, made), len(kept)+1, "the versions, and the record")
	keepVersions(t, namespace, `"1s"`, "1s")
	may := asHome(t).Resource(volumesnapshot.Snapshots).Namespace(namespace)
	await.Until(t, "home may delete what is old enough", func() bool {
		return may.Delete(t.Context(), good, metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}) == nil
	})
	keepVersions(t, namespace, "null", "")
	// It is asked for again after some minutes, and after a start.
	require.NoError(t, provisioner.Stop())
	provisioner, err = bed.StartProvisioner(context.WithoutCancel(t.Context()))
	require.NoError(t, err)
	await.Until(t, "all is gone", func() bool { return len(left(t, made)) == 0 }, func() any { return left(t, made) })
}

// hostileHome tries, with home's credentials, first with its own rights and then with all, what could make versions go, or look like
// something else. Nothing of it may be possible.
func hostileHome(t *testing.T, namespace, version string, all []string) {
	t.Helper()
	home, err := bed.HomeID(t.Context())
	require.NoError(t, err)
	client := asHome(t)
	snapshots := client.Resource(volumesnapshot.Snapshots).Namespace(namespace)
	content := must.Kubectl(t, bed.West, "", "get", "volumesnapshot", "-n", namespace, version, "-o",
		"jsonpath={.status.boundVolumeSnapshotContentName}")
	state := func() string {
		t.Helper()
		text := must.Kubectl(t, bed.West, "", "get", "volumesnapshot", "-n", namespace, "-l", keys.ReplicaOf, "-o",
			`jsonpath={range .items[*]}{.metadata.uid} {.metadata.labels} {.metadata.annotations} {.metadata.finalizers} `+
				`{.metadata.ownerReferences} {.metadata.deletionTimestamp}{"\n"}{end}`)
		policy := must.Kubectl(t, bed.West, "", "get", "volumesnapshotcontent", content, "-o",
			"jsonpath={.spec.deletionPolicy} {.metadata.deletionTimestamp}")
		return text + policy
	}
	before := state()
	patch := func(of dynamic.ResourceInterface, name, patch string, sub ...string) error {
		_, err := of.Patch(t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}, sub...)
		return err
	}
	at := func(group, version, plural string) dynamic.NamespaceableResourceInterface {
		return client.Resource(schema.GroupVersionResource{Group: group, Version: version, Resource: plural})
	}
	ways := []struct {
		what string
		try  func() error
		// says is what the refusal says where home has the right by a role.
		says string
	}{
		{"delete it", func() error { return snapshots.Delete(t.Context(), version, metav1.DeleteOptions{}) },
			"the owner of this cluster keeps sealed versions for 1h0m0s, so this one stays until "},
		{"delete it at once", func() error {
			return snapshots.Delete(t.Context(), version, metav1.DeleteOptions{GracePeriodSeconds: new(int64)})
		}, "the owner of this cluster keeps sealed versions"},
		{"delete all of the namespace", func() error {
			return snapshots.DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{})
		}, "the owner of this cluster keeps sealed versions"},
		{"have it look like no sealed version", func() error {
			return patch(snapshots, version, `{"metadata":{"annotations":{"lodestone.dev/seal":null}}}`)
		}, "a home cluster may change nothing of a sealed version"},
		{"have it say something else", func() error {
			return patch(snapshots, version, `{"metadata":{"annotations":{"lodestone.dev/seal":"{}"}}}`)
		}, "a home cluster may change nothing of a sealed version"},
		{"take the label of its replica off", func() error {
			return patch(snapshots, version, `{"metadata":{"labels":{"lodestone.dev/replica":null}}}`)
		}, "a home cluster may change nothing of a sealed version"},
		{"give it to another home", func() error {
			return patch(snapshots, version, `{"metadata":{"labels":{"lodestone.dev/home":"other"}}}`)
		}, "must have the label lodestone.dev/home="},
		{"have the garbage collector delete it", func() error {
			return patch(snapshots, version,
				`{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"none","uid":"none"}]}}`)
		}, "a home cluster may change nothing of a sealed version"},
		{"take its finalizers off", func() error { return patch(snapshots, version, `{"metadata":{"finalizers":null}}`) },
			"a home cluster may change nothing of a sealed version"},
		{"change its class", func() error { return patch(snapshots, version, `{"spec":{"volumeSnapshotClassName":"other"}}`) },
			"a home cluster may change nothing of a sealed version"},
		{"change its status", func() error { return patch(snapshots, version, `{"status":{"readyToUse":false}}`, "status") },
			"a home cluster may not change snapshot.storage.k8s.io/volumesnapshots/status"},
		{"delete its content", func() error {
			return client.Resource(volumesnapshot.Contents).Delete(t.Context(), content, metav1.DeleteOptions{})
		}, "may change nothing outside its namespaces"},
		{"have its content's data stay or go", func() error {
			return patch(client.Resource(volumesnapshot.Contents), content, `{"spec":{"deletionPolicy":"Retain"}}`)
		}, "may change nothing outside its namespaces"},
		{"delete its class", func() error {
			return client.Resource(volumesnapshot.Classes).Delete(t.Context(), westDriver, metav1.DeleteOptions{})
		}, "may change nothing outside its namespaces"},
		{"delete the namespace", func() error {
			return at("", "v1", "namespaces").Delete(t.Context(), namespace, metav1.DeleteOptions{})
		}, "may change nothing in namespace " + namespace},
		{"have the namespace keep nothing", func() error {
			return patch(at("", "v1", "namespaces"), namespace, `{"metadata":{"annotations":{"lodestone.dev/versions-kept-since":null}}}`)
		}, "may change nothing in namespace " + namespace},
		{"have its HomeCluster say something else", func() error {
			return patch(at("remote.lodestone.dev", "v1alpha1", "homeclusters"), home, `{"spec":{"replicas":null}}`)
		}, "may change nothing outside its namespaces"},
	}
	bindings := bed.West.Client().RbacV1().ClusterRoleBindings()
	for _, rights := range []string{"its own rights", "all rights"} {
		if rights == "all rights" {
			must.Create(t, bindings, &rbacv1.ClusterRoleBinding{
				ObjectMeta: metav1.ObjectMeta{Name: "hostile"},
				RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
				Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: keys.TenantPrefix + home, Name: keys.HomeAccount}},
			})
			await.Until(t, "home has all rights", func() bool {
				_, err := at("", "v1", "secrets").Namespace("kube-system").List(t.Context(), metav1.ListOptions{})
				return err == nil
			})
		}
		for _, way := range ways {
			err := way.try()
			assert.True(t, apierrors.IsForbidden(err), "with %s: %s: %v", rights, way.what, err)
			if rights == "all rights" && err != nil {
				assert.Contains(t, err.Error(), way.says, way.what)
			}
			t.Logf("with %s: %s: %v", rights, way.what, err)
		}
	}
	must.Delete(t, bindings, "hostile")
	assert.Equal(t, before, state(), "nothing was changed")
	assert.Len(t, strings.Split(before, "\n"), len(all)+1, "all of them were looked at")
}

func TestTheQuotaOfTheStandbysOwnerIsTold(t *testing.T) {
	testbed.NotInShort(t)
	t.Parallel()
	namespace := space(t)
	counts(t, namespace, virtual, keys.Home)
	made := replicate(t, namespace, "west", func(r *v1alpha1.VolumeReplica) { r.Spec.Versions.Keep = 8 })
	sealed(t, made, time.Time{})
	const count = "count/volumesnapshots.snapshot.storage.k8s.io"
	quotas := bed.West.Client().CoreV1().ResourceQuotas(namespace)
	must.Create(t, quotas, &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "versions"},
		Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{count: resource.MustParse("3")}}})
	says(t, made, "PointFailed", "exceeded quota: versions, requested: "+count+"=1, used: "+count+"=3, limited: "+count+"=3")
	now := until(t, "what is sealed stays", made, func(now *v1alpha1.VolumeReplica) bool { return len(versionsOf(now)) == 3 })
	must.Delete(t, quotas, "versions")
	sealed(t, made, now.Status.Standbys[0].Sealed.Time)
	removes(t, made)
}
