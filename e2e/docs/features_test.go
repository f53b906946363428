package docs

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var (
	importedAPI = regexp.MustCompile(`"k8s\.io/api/([a-z]+)/(v[0-9a-z]+)"`)
	manifestAPI = regexp.MustCompile(`(?m)^apiVersion: (\S+)$`)
)

// ownNames are the names of API groups that differ from those of their Go packages.
var ownNames = map[string]string{
	"admission": "admission.k8s.io", "admissionregistration": "admissionregistration.k8s.io", "authentication": "authentication.k8s.io",
	"authorization": "authorization.k8s.io", "certificates": "certificates.k8s.io", "coordination": "coordination.k8s.io",
	"discovery": "discovery.k8s.io", "networking": "networking.k8s.io", "rbac": "rbac.authorization.k8s.io", "storage": "storage.k8s.io",
}

// others are the APIs of manifests that are not of Kubernetes or of what is installed with its storage.
var others = []string{"cert-manager.io/", "kustomize.config.k8s.io/", "monitoring.coreos.com/", "lodestone.dev/", "remote.lodestone.dev/",
	"v2"}

// namedAPIs are APIs that code uses without their Go types.
var namedAPIs = []*regexp.Regexp{
	regexp.MustCompile(`Group: "([a-z0-9.-]+)", Version: "(v[0-9a-z]+)"`), regexp.MustCompile(`"/apis/([a-z0-9.-]+)/(v[0-9a-z]+)`),
}

// unstable are APIs that have no v1: not Kubernetes' own, and not needed.
var unstable = []string{"metrics.k8s.io/v1beta1", "multicluster.x-k8s.io/v1alpha1", "multicluster.x-k8s.io/v1beta1"}

// usedAPIs returns the APIs of Kubernetes that programs and manifests of this tree use, as group/version.
func usedAPIs(t *testing.T) []string {
	t.Helper()
	command := exec.CommandContext(t.Context(), "git", "ls-files", "--", "*.go", "deploy/*.yaml")
	command.Dir = root
	output, err := command.Output()
	if err != nil {
		t.Skip("this tree is not a clone: its files cannot be listed")
	}
	var used []string
	for file := range strings.Lines(string(output)) {
		file = strings.TrimSpace(file)
		if strings.HasPrefix(file, "e2e/") || strings.HasSuffix(file, "_test.go") {
			continue
		}
		content, err := os.ReadFile(filepath.Join(root, file))
		if os.IsNotExist(err) {
			continue
		}
		require.NoError(t, err)
		if strings.HasSuffix(file, ".go") {
			for _, found := range importedAPI.FindAllStringSubmatch(string(content), -1) {
				if found[1] == "core" {
					used = append(used, found[2])
					continue
				}
				group := found[1]
				if own := ownNames[group]; own != "" {
					group = own
				}
				used = append(used, group+"/"+found[2])
			}
			for _, named := range namedAPIs {
				for _, found := range named.FindAllStringSubmatch(string(content), -1) {
					if strings.Contains(found[1], "k8s.io") {
						used = append(used, found[1]+"/"+found[2])
					}
				}
			}
			continue
		}
		for _, found := range manifestAPI.FindAllStringSubmatch(string(content), -1) {
			if !slices.ContainsFunc(others, func(other string) bool { return strings.HasPrefix(found[1], other) }) {
				used = append(used, found[1])
			}
		}
	}
	slices.Sort(used)
	return slices.Compact(used)
}

func TestEachAPIOfKubernetesIsOnItsPage(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(root, "docs", "kubernetes-features.md"))
	require.NoError(t, err)
	used := usedAPIs(t)
	require.Greater(t, len(used), 10)
	for _, api := range used {
		assert.Contains(t, string(page), "`"+api+"`", "the table of APIs in docs/kubernetes-features.md has no row for it")
		if slices.Contains(unstable, api) {
			continue
		}
		assert.Regexp(t, `(^|/)v[0-9]+$`, api, "an API that is not stable goes away: say in the page until when, and what comes then")
	}
}
