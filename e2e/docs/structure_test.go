package docs

import (
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

// tree returns the folders that CONTRIBUTING.md lists, and whether each is marked as pure.
func tree(t *testing.T) map[string]bool {
	data, err := os.ReadFile(filepath.Join(root, "CONTRIBUTING.md"))
	require.NoError(t, err)
	_, block, ok := strings.Cut(string(data), "## Structure\n\n```\n")
	require.True(t, ok)
	block, _, ok = strings.Cut(block, "```")
	require.True(t, ok)
	listed := map[string]bool{}
	var parents []string
	for line := range strings.Lines(block) {
		name, about, _ := strings.Cut(strings.TrimSpace(line), " ")
		depth := (len(line) - len(strings.TrimLeft(line, " "))) / 2
		require.LessOrEqual(t, depth, len(parents), line)
		parents = append(parents[:depth], strings.TrimSuffix(name, "/"))
		listed[path.Join(parents...)] = strings.Contains(about, "(pure)")
	}
	require.Greater(t, len(listed), 50)
	return listed
}

// packages returns the folders of this module that hold Go packages of programs.
func packages(t *testing.T) []string {
	command := exec.CommandContext(t.Context(), "git", "ls-files", "--cached", "--others", "--exclude-standard", "--", "*.go")
	command.Dir = root
	output, err := command.Output()
	if err != nil {
		t.Skip("this tree is not a clone: the packages cannot be listed")
	}
	var found []string
	for file := range strings.Lines(string(output)) {
		folder := path.Dir(strings.TrimSpace(file))
		if _, err := os.Stat(filepath.Join(root, strings.TrimSpace(file))); err != nil || strings.HasSuffix(strings.TrimSpace(file), "_test.go") {
			continue
		}
		if top, _, _ := strings.Cut(folder, "/"); top != "e2e" && top != ".tools" && top != "hack" {
			found = append(found, folder)
		}
	}
	slices.Sort(found)
	return slices.Compact(found)
}

func TestTheTreeInCONTRIBUTINGIsTheTree(t *testing.T) {
	listed := tree(t)
	for folder := range listed {
		info, err := os.Stat(filepath.Join(root, folder))
		assert.True(t, err == nil && info.IsDir(), "CONTRIBUTING.md lists %s, which is not there", folder)
	}
	for _, folder := range packages(t) {
		assert.Contains(t, listed, folder, "CONTRIBUTING.md does not list the package")
	}
}

func TestTheLinterHoldsPurePackagesToBePure(t *testing.T) {
	data, err := os.ReadFile(filepath.Join(root, ".golangci.yml"))
	require.NoError(t, err)
	var config struct {
		Linters struct {
			Settings struct {
				Depguard struct {
					Rules struct{ Pure struct{ Files []string } }
				}
			}
			Exclusions struct {
				Rules []struct {
					PathExcept string `json:"path-except"`
					Linters    []string
				}
			}
		}
	}
	require.NoError(t, yaml.Unmarshal(data, &config))
	var pure, ruled []string
	for folder, is := range tree(t) {
		if is {
			pure = append(pure, folder)
		}
	}
	for _, pattern := range config.Linters.Settings.Depguard.Rules.Pure.Files {
		if folder, ok := strings.CutPrefix(strings.TrimSuffix(pattern, "/*.go"), "**/"); ok {
			ruled = append(ruled, folder)
		}
	}
	assert.ElementsMatch(t, pure, ruled, "what CONTRIBUTING.md marks as pure, and what depguard holds to it")
	// Outside of them forbidigo says nothing of clocks and chance.
	rules := slices.DeleteFunc(config.Linters.Exclusions.Rules, func(one struct {
		PathExcept string `json:"path-except"`
		Linters    []string
	}) bool {
		return one.PathExcept == "" || !slices.Contains(one.Linters, "forbidigo")
	})
	require.Len(t, rules, 1)
	within := regexp.MustCompile(rules[0].PathExcept)
	for _, folder := range packages(t) {
		assert.Equal(t, slices.Contains(pure, folder), within.MatchString(folder+"/x.go"), folder)
	}
}
