package deploy

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
)

// free are fields of which a schema can refuse no text, with what judges them.
var free = map[string]string{
	"RemoteCluster spec.kubeconfigSecretRef.key": "the provisioner looks for it in the Secret, and says so in a condition",
	"RemoteCluster spec.storageClassName":        "the provisioner looks for the class in the remote cluster",
	"HomeCluster spec.user":                      "whoever logs in with that name; the remote API server knows it",
	"HomeCluster spec.clusterUID":                "compared with that of home",
	"HomeCluster spec.namespaces.limits.type":    "the type is Kubernetes' own, and judged where the LimitRange is made",
	"NamespaceRequest spec.homeNamespaceUID":     "compared with that of the namespace",
}

// leaves returns the paths of all fields of a schema that have no fields in them, without the indices of lists.
func leaves(of map[string]any, path string) []string {
	if items, ok := of["items"].(map[string]any); ok && items["properties"] != nil {
		of = items
	}
	fields, _ := of["properties"].(map[string]any)
	if len(fields) == 0 {
		return []string{path}
	}
	var all []string
	for name, field := range fields {
		if inner, ok := field.(map[string]any); ok {
			all = append(all, leaves(inner, path+"."+name)...)
		}
	}
	return all
}

// given returns the paths of all that a value gives, as leaves does.
func given(value any, path string) (paths []string) {
	switch v := value.(type) {
	case map[string]any:
		for name, inner := range v {
			paths = append(paths, given(inner, path+"."+name)...)
		}
	case []any:
		for _, inner := range v {
			paths = append(paths, given(inner, path)...)
		}
	}
	if len(paths) == 0 {
		paths = []string{path}
	}
	return paths
}

// within tells whether a path is another one or is below it.
func within(path, other string) bool { return path == other || strings.HasPrefix(path, other+".") }

var index = regexp.MustCompile(`\[[^]]*\]`)

// blamed returns those of the given paths that an error is about. A rule of a whole object blames all that is given of it.
func blamed(err error, paths []string) (found []string) {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Details == nil || len(status.Status().Details.Causes) == 0 {
		return paths
	}
	for _, cause := range status.Status().Details.Causes {
		field := index.ReplaceAllString(cause.Field, "")
		for _, path := range paths {
			if within(path, field) || within(field, path) {
				found = append(found, path)
			}
		}
	}
	return found
}

// requireAllTried checks that each field of our kinds was tried wrong, or is free. What a ShadowPod has is a pod, which Kubernetes judges.
func requireAllTried(t *testing.T, tried map[string][]string) {
	t.Helper()
	all, err := dynamic.NewForConfig(cluster.AdminConfig())
	require.NoError(t, err)
	definitions := all.Resource(schema.GroupVersionResource{
		Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions",
	})
	unused := map[string]bool{}
	for field := range free {
		unused[field] = true
	}
	for kind, known := range kinds {
		if kind == "ShadowPod" {
			continue
		}
		definition, err := definitions.Get(t.Context(), known.resource.Resource+"."+known.resource.Group, metav1.GetOptions{})
		require.NoError(t, err)
		versions, _, err := unstructured.NestedSlice(definition.Object, "spec", "versions")
		require.NoError(t, err)
		var fields []string
		for _, version := range versions {
			if version := version.(map[string]any); version["name"] == known.resource.Version {
				spec, _, err := unstructured.NestedMap(version, "schema", "openAPIV3Schema", "properties", "spec")
				require.NoError(t, err)
				fields = leaves(spec, "spec")
			}
		}
		require.NotEmpty(t, fields, kind)
		for _, leaf := range fields {
			name := fmt.Sprintf("%s %s", kind, leaf)
			isTried := false
			for _, path := range tried[kind] {
				isTried = isTried || within(path, leaf)
			}
			assert.True(t, isTried || free[name] != "", "%s is never tried with a value that is refused", name)
			assert.False(t, isTried && free[name] != "", "%s is refused, so it is not free", name)
			delete(unused, name)
		}
	}
	assert.Empty(t, unused, "there are no such fields")
}
