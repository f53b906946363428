package deploy

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/lodestone-storage/lodestone/e2e/must"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
)

// stored is the version that our objects are stored as, and beta the one that they are served as too.
const stored, beta = "v1alpha1", "v1beta1"

// specs has each of our kinds but ShadowPod, with a spec that is good and a status.
var specs = []struct {
	group, kind, resource string
	cluster               bool
	spec, status          map[string]any
}{
	{"lodestone.dev", "RemoteCluster", "remoteclusters", true,
		map[string]any{"kubeconfigSecretRef": map[string]any{"namespace": "lodestone-system", "name": "west"}},
		map[string]any{"observedGeneration": int64(1)}},
	{"lodestone.dev", "VolumeMove", "volumemoves", false,
		map[string]any{"claims": []any{"data"}, "target": map[string]any{"cluster": "west"}}, map[string]any{"message": "a sentence"}},
	{"lodestone.dev", "VolumeReplica", "volumereplicas", false, map[string]any{
		"claims": []any{"data"}, "standbys": []any{map[string]any{"cluster": "west"}}}, map[string]any{"primary": "home"}},
	{"network.lodestone.dev", "NetworkLink", "networklinks", false,
		map[string]any{"podCIDRs": []any{"10.1.0.0/16"}}, map[string]any{"observedGeneration": int64(1)}},
	{"remote.lodestone.dev", "HomeCluster", "homeclusters", true,
		map[string]any{"namespaces": map[string]any{"maximum": int64(3)}}, map[string]any{"observedGeneration": int64(1)}},
	{"remote.lodestone.dev", "NamespaceRequest", "namespacerequests", false,
		map[string]any{"homeNamespace": "shop"}, map[string]any{"observedGeneration": int64(1)}},
}

var definitionsOf = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

// applyDefinitions applies all of ours, and waits until both versions of each are served.
func applyDefinitions(t *testing.T, client dynamic.Interface) {
	t.Helper()
	apply(t, "base")
	apply(t, "remote")
	apply(t, "network/program/crds")
	all, err := client.Resource(definitionsOf).List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	known := map[string]bool{}
	for _, of := range specs {
		known[of.resource+"."+of.group] = true
		awaitServed(t, client, of.group, of.resource, stored, true)
		awaitServed(t, client, of.group, of.resource, beta, true)
	}
	for _, definition := range all.Items {
		group, _, err := unstructured.NestedString(definition.Object, "spec", "group")
		require.NoError(t, err)
		ours := slices.Contains([]string{"lodestone.dev", "network.lodestone.dev", "remote.lodestone.dev"}, group)
		assert.Equal(t, ours && definition.GetName() != "shadowpods.remote.lodestone.dev", known[definition.GetName()], "%s is not tried",
			definition.GetName())
	}
}

func awaitServed(t *testing.T, client dynamic.Interface, group, resource, version string, want bool) {
	t.Helper()
	of := schema.GroupVersionResource{Group: group, Version: version, Resource: resource}
	require.Eventually(t, func() bool {
		_, err := client.Resource(of).List(t.Context(), metav1.ListOptions{})
		return (err == nil) == want && (want || apierrors.IsNotFound(err))
	}, waitLong, poll, "%s is served: %v", of, want)
}

// write creates an object of each kind as one version, by server-side apply as install does it, with a status; what they are is returned
// by their kinds.
func write(t *testing.T, client dynamic.Interface, version, name string) map[string]*unstructured.Unstructured {
	t.Helper()
	written := map[string]*unstructured.Unstructured{}
	for _, of := range specs {
		o := &unstructured.Unstructured{Object: map[string]any{"spec": of.spec}}
		o.SetGroupVersionKind(schema.GroupVersionKind{Group: of.group, Version: version, Kind: of.kind})
		o.SetName(name)
		api := in(client, of.group, of.resource, version, of.cluster)
		made, err := api.Apply(t.Context(), name, o, metav1.ApplyOptions{FieldManager: "a-test"})
		require.NoError(t, err, of.kind)
		t.Cleanup(func() {
			api := in(client, of.group, of.resource, stored, of.cluster)
			_ = api.Delete(context.WithoutCancel(t.Context()), name, metav1.DeleteOptions{})
		})
		made.Object["status"] = of.status
		made, err = api.UpdateStatus(t.Context(), made, metav1.UpdateOptions{})
		require.NoError(t, err, of.kind)
		written[of.kind] = made
	}
	return written
}

func in(client dynamic.Interface, group, resource, version string, ofCluster bool) dynamic.ResourceInterface {
	of := client.Resource(schema.GroupVersionResource{Group: group, Version: version, Resource: resource})
	if ofCluster {
		return of
	}
	return of.Namespace(metav1.NamespaceDefault)
}

// assertThere asserts that each object is served as a version, and is what was written but for that.
func assertThere(t *testing.T, client dynamic.Interface, version string, written map[string]*unstructured.Unstructured) {
	t.Helper()
	require.Len(t, written, len(specs))
	for _, of := range specs {
		want := written[of.kind]
		o, err := in(client, of.group, of.resource, version, of.cluster).Get(t.Context(), want.GetName(), metav1.GetOptions{})
		require.NoError(t, err, of.kind)
		assert.Equal(t, of.group+"/"+version, o.GetAPIVersion())
		assert.Equal(t, want.GetUID(), o.GetUID(), of.kind)
		assert.Equal(t, want.Object["spec"], o.Object["spec"], of.kind)
		assert.Equal(t, want.Object["status"], o.Object["status"], of.kind)
		for field, value := range of.spec {
			assert.Contains(t, o.Object["spec"], field, "%s: %v", of.kind, value)
		}
		assert.Subset(t, slices.Collect(maps.Keys(o.Object)), slices.Collect(maps.Keys(want.Object)), of.kind)
	}
}

func TestAnObjectThatWasWrittenAsOneVersionIsReadAsTheOther(t *testing.T) {
	testbed.Require(t)
	client, err := dynamic.NewForConfig(cluster.AdminConfig())
	require.NoError(t, err)
	applyDefinitions(t, client)
	assertThere(t, client, beta, write(t, client, stored, "versions-stored"))
	assertThere(t, client, stored, write(t, client, beta, "versions-beta"))
}

// TestDefinitionsOfTheReleaseBeforeKeepEachObject applies definitions that know v1alpha1 alone, as a downgrade does, and those of this
// tree again. Their schemas are those of this tree: e2e/upgrade compares them with those of an earlier version.
func TestDefinitionsOfTheReleaseBeforeKeepEachObject(t *testing.T) {
	testbed.Require(t)
	client, err := dynamic.NewForConfig(cluster.AdminConfig())
	require.NoError(t, err)
	applyDefinitions(t, client)
	t.Cleanup(func() {
		for _, directory := range []string{"base", "remote", "network/program/crds"} {
			_, _ = cluster.Kubectl(context.WithoutCancel(t.Context()), "", "apply", "-k", root+directory)
		}
	})
	both := []map[string]*unstructured.Unstructured{write(t, client, stored, "kept-stored"), write(t, client, beta, "kept-beta")}
	for _, of := range specs {
		definition, err := client.Resource(definitionsOf).Get(t.Context(), of.resource+"."+of.group, metav1.GetOptions{})
		require.NoError(t, err)
		versions, _, err := unstructured.NestedSlice(definition.Object, "status", "storedVersions")
		require.NoError(t, err)
		assert.Equal(t, []any{stored}, versions, "what is stored as another version could not be read after a downgrade")
		served, _, err := unstructured.NestedSlice(definition.Object, "spec", "versions")
		require.NoError(t, err)
		require.Len(t, served, 2)
		require.NoError(t, unstructured.SetNestedSlice(definition.Object, served[:1], "spec", "versions"))
		_, err = client.Resource(definitionsOf).Update(t.Context(), definition, metav1.UpdateOptions{})
		require.NoError(t, err)
		awaitServed(t, client, of.group, of.resource, beta, false)
		awaitServed(t, client, of.group, of.resource, stored, true)
	}
	for _, written := range both {
		assertThere(t, client, stored, written)
	}
	// The earlier release goes on with them: its programs update, its users apply.
	for _, of := range specs {
		api, o := in(client, of.group, of.resource, stored, of.cluster), both[1][of.kind]
		_, err := api.Patch(t.Context(), o.GetName(), types.MergePatchType, []byte(`{"metadata": {"labels": {"a": "b"}}}`), metav1.PatchOptions{})
		require.NoError(t, err, of.kind)
		now, err := api.Get(t.Context(), o.GetName(), metav1.GetOptions{})
		require.NoError(t, err, of.kind)
		_, err = api.UpdateStatus(t.Context(), now, metav1.UpdateOptions{})
		require.NoError(t, err, of.kind)
		// That the API server cannot apply over fields which somebody owns as a version that is gone is in docs/upgrade.md, with this.
		_, err = api.Patch(t.Context(), o.GetName(), types.JSONPatchType,
			[]byte(`[{"op": "replace", "path": "/metadata/managedFields", "value": [{}]}]`), metav1.PatchOptions{})
		require.NoError(t, err, of.kind)
	}
	for i, name := range []string{"kept-stored", "kept-beta"} {
		for kind, o := range write(t, client, stored, name) {
			assert.Equal(t, both[i][kind].GetUID(), o.GetUID(), kind)
		}
	}
	applyDefinitions(t, client)
	for _, written := range both {
		assertThere(t, client, beta, written)
	}
}

// TestWhoMayNotGiveUpMayNotAsAnyVersion: policies name v1alpha1, and API servers ask them for the other, too.
func TestWhoMayNotGiveUpMayNotAsAnyVersion(t *testing.T) {
	testbed.Require(t)
	admin, err := dynamic.NewForConfig(cluster.AdminConfig())
	require.NoError(t, err)
	applyDefinitions(t, admin)
	const user = "versions-user"
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: user}, Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{"lodestone.dev"}, Resources: []string{"volumemoves"}, Verbs: []string{"create"},
	}}}
	must.Create(t, cluster.Client().RbacV1().ClusterRoles(), role)
	must.Create(t, cluster.Client().RbacV1().ClusterRoleBindings(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: user}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: user},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: user}},
	})
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		_ = cluster.Client().RbacV1().ClusterRoles().Delete(ctx, user, metav1.DeleteOptions{})
		_ = cluster.Client().RbacV1().ClusterRoleBindings().Delete(ctx, user, metav1.DeleteOptions{})
	})
	config := rest.CopyConfig(cluster.AdminConfig())
	config.Impersonate = rest.ImpersonationConfig{UserName: user}
	client, err := dynamic.NewForConfig(config)
	require.NoError(t, err)
	dryRun := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	for _, version := range []string{stored, beta} {
		for action, allowed := range map[string]bool{"Move": true, "GiveUp": false} {
			o := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
				"claims": []any{"data"}, "target": map[string]any{"cluster": "west"}, "action": action}}}
			o.SetGroupVersionKind(schema.GroupVersionKind{Group: "lodestone.dev", Version: version, Kind: "VolumeMove"})
			o.SetName("given-up")
			require.EventuallyWithT(t, func(c *assert.CollectT) {
				_, err := in(client, "lodestone.dev", "volumemoves", version, false).Create(t.Context(), o, dryRun)
				if allowed {
					assert.NoError(c, err)
					return
				}
				assert.ErrorContains(c, err, "only who may giveup remoteclusters")
			}, waitLong, poll, fmt.Sprint(version, " ", action))
		}
	}
}
