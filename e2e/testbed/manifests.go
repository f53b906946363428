package testbed

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/e2e/built"
)

// Minor returns the minor version of the cluster's Kubernetes.
func (c *Cluster) Minor(t testing.TB) int {
	t.Helper()
	version, err := c.Client().Discovery().ServerVersion()
	if err != nil {
		t.Fatalf("ask the API server of %s for its version: %v", c.Name(), err)
	}
	minor, err := strconv.Atoi(version.Minor)
	if err != nil {
		t.Fatalf("the API server of %s has version %s.%s", c.Name(), version.Major, version.Minor)
	}
	return minor
}

// ServesPolicies says whether the cluster's API server serves MutatingAdmissionPolicies, as Kubernetes does from 1.36 on.
func (c *Cluster) ServesPolicies() (bool, error) {
	resources, err := c.Client().Discovery().ServerResourcesForGroupVersion("admissionregistration.k8s.io/v1")
	if err != nil {
		return false, fmt.Errorf("ask what the API server of %s serves: %w", c.Name(), err)
	}
	return slices.ContainsFunc(resources.APIResources, func(r metav1.APIResource) bool { return r.Name == "mutatingadmissionpolicies" }), nil
}

// Kustomization returns the path of what users of this cluster's Kubernetes apply for a folder of deploy/: the folder, or where no
// policies are served, the folder with the component behind it that makes webhooks of them.
func (c *Cluster) Kustomization(folder string) (string, error) {
	root, err := built.SourceTree()
	if err != nil {
		return "", err
	}
	folder = filepath.Join(root, "deploy", folder)
	served, err := c.ServesPolicies()
	if served || err != nil {
		return folder, err
	}
	behind, err := os.MkdirTemp(c.dir.file(""), "webhooks-")
	if err != nil {
		return "", fmt.Errorf("make a folder for a kustomization: %w", err)
	}
	// kustomize takes no absolute paths.
	relative, err := filepath.Rel(behind, folder)
	if err != nil {
		return "", fmt.Errorf("say where %s is from %s: %w", folder, behind, err)
	}
	component, err := filepath.Rel(behind, filepath.Join(root, "deploy", "components", "webhook"))
	if err != nil {
		return "", fmt.Errorf("say where the webhook's component is from %s: %w", behind, err)
	}
	content := fmt.Sprintf("apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources: [%s]\ncomponents: [%s]\n",
		relative, component)
	if err := os.WriteFile(filepath.Join(behind, "kustomization.yaml"), []byte(content), 0o600); err != nil {
		return "", fmt.Errorf("write a kustomization: %w", err)
	}
	return behind, nil
}
