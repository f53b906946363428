package docs

import (
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

func readYAML(t *testing.T, name string, into any) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(root, name))
	require.NoError(t, err)
	require.NoError(t, yaml.UnmarshalStrict(data, into), name)
}

func TestDependabotKnowsEachModule(t *testing.T) {
	command := exec.CommandContext(t.Context(), "git", "ls-files", "--", "go.mod", "*/go.mod")
	command.Dir = root
	output, err := command.Output()
	if err != nil {
		t.Skip("this tree is not a clone: the modules cannot be listed")
	}
	var modules []string
	for file := range strings.Lines(string(output)) {
		modules = append(modules, path.Join("/", path.Dir(strings.TrimSpace(file))))
	}
	require.NotEmpty(t, modules)
	var config struct {
		Version int
		Updates []struct {
			Ecosystem   string `json:"package-ecosystem"`
			Directory   string
			Directories []string
			Schedule    struct{ Interval string }
			Groups      map[string]any
		}
	}
	readYAML(t, ".github/dependabot.yml", &config)
	for _, update := range config.Updates {
		if update.Ecosystem == "gomod" {
			assert.ElementsMatch(t, modules, update.Directories)
			return
		}
	}
	assert.Fail(t, "no modules of Go are updated")
}

// TestFormsOfIssuesAskForSomething reads the forms as GitHub does: a field that it does not know, or an id that is there twice, and the
// whole form is not shown.
func TestFormsOfIssuesAskForSomething(t *testing.T) {
	forms, err := filepath.Glob(filepath.Join(root, ".github", "ISSUE_TEMPLATE", "*.yml"))
	require.NoError(t, err)
	require.Len(t, forms, 3)
	for _, file := range forms {
		name, err := filepath.Rel(root, file)
		require.NoError(t, err)
		if filepath.Base(file) == "config.yml" {
			continue
		}
		var form struct {
			Name, Description string
			Labels            []string
			Body              []struct {
				Type, ID   string
				Attributes struct {
					Label, Description, Render string
					Options                    []string
				}
				Validations struct{ Required bool }
			}
		}
		readYAML(t, name, &form)
		assert.NotEmpty(t, form.Name, name)
		assert.NotEmpty(t, form.Description, name)
		ids, required := map[string]bool{}, 0
		for _, field := range form.Body {
			assert.Contains(t, []string{"input", "textarea", "dropdown"}, field.Type, name)
			assert.NotEmpty(t, field.Attributes.Label, name)
			assert.False(t, ids[field.ID], "%s: %s is there twice", name, field.ID)
			assert.Equal(t, field.Type == "dropdown", len(field.Attributes.Options) > 0, "%s: %s", name, field.ID)
			ids[field.ID] = true
			if field.Validations.Required {
				required++
			}
		}
		assert.NotZero(t, required, "%s requires nothing", name)
	}
}

// TestOwnAddressesLeadSomewhere follows what is said as an address of this repository, in pages and forms.
func TestOwnAddressesLeadSomewhere(t *testing.T) {
	var files []string
	for _, pattern := range []string{"*.md", "docs/*.md", ".github/*", ".github/ISSUE_TEMPLATE/*"} {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		require.NoError(t, err)
		files = append(files, found...)
	}
	all, own := pages(t), regexp.MustCompile(regexp.QuoteMeta(repository(t))+`/blob/main/([^\s)#]+)(?:#([^\s)]+))?`)
	found := 0
	for _, file := range files {
		if info, err := os.Stat(file); err != nil || info.IsDir() {
			continue
		}
		data, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, match := range own.FindAllStringSubmatch(string(data), -1) {
			found++
			_, err := os.Stat(filepath.Join(root, match[1]))
			assert.NoError(t, err, "%s: %s", file, match[0])
			assert.True(t, match[2] == "" || all[match[1]].anchors[match[2]], "%s: %s", file, match[0])
		}
	}
	require.NotZero(t, found)
}

// TestWorkflowsRunWhatIsThere has each action pinned to a commit, since a tag may be moved, and each target of make in the Makefile.
func TestWorkflowsRunWhatIsThere(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(root, ".github", "workflows", "*.yml"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	require.NoError(t, err)
	pinned := regexp.MustCompile(`^[a-z0-9-]+/[a-z0-9-]+(/[a-z0-9-]+)*@[0-9a-f]{40} # v\d+\.\d+\.\d+$`)
	used := regexp.MustCompile(`(?m)^\s*(?:- )?uses: (.*)$`)
	made := regexp.MustCompile(`\bmake ([a-z0-9-]+)`)
	for _, file := range files {
		data, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, action := range used.FindAllStringSubmatch(string(data), -1) {
			assert.Regexp(t, pinned, action[1], file)
		}
		for _, target := range made.FindAllStringSubmatch(string(data), -1) {
			assert.Regexp(t, `(?m)^`+target[1]+`:`, string(makefile), file)
		}
		var workflow struct {
			Permissions map[string]string
			Jobs        map[string]struct {
				Strategy struct {
					Matrix struct {
						Target  []string
						Include []struct{ Target string }
					}
				}
			}
		}
		require.NoError(t, yaml.Unmarshal(data, &workflow), file)
		assert.NotEmpty(t, workflow.Permissions, "%s says what its token may do", file)
		for _, job := range workflow.Jobs {
			targets := job.Strategy.Matrix.Target
			for _, include := range job.Strategy.Matrix.Include {
				targets = append(targets, include.Target)
			}
			for _, target := range targets {
				assert.Regexp(t, `(?m)^`+target+`:`, string(makefile), file)
			}
		}
	}
}

// TestResultsOfEachJobHaveANameOfTheirOwn: upload-artifact refuses a name that another job of the same run has taken.
func TestResultsOfEachJobHaveANameOfTheirOwn(t *testing.T) {
	type job struct {
		Name     string
		Strategy struct {
			Matrix struct {
				Target  []string
				Include []struct{ Target, Arguments string }
			}
		}
		Steps []struct {
			Uses string
			With map[string]any
		}
	}
	uploads := 0
	for _, name := range []string{"checks", "nightly"} {
		var workflow struct{ Jobs map[string]job }
		data, err := os.ReadFile(filepath.Join(root, ".github", "workflows", name+".yml"))
		require.NoError(t, err)
		require.NoError(t, yaml.Unmarshal(data, &workflow))
		for _, job := range workflow.Jobs {
			rows := job.Strategy.Matrix.Include
			for _, target := range job.Strategy.Matrix.Target {
				rows = append(rows, struct{ Target, Arguments string }{Target: target})
			}
			named, results := map[string]bool{}, map[string]bool{}
			for i, row := range rows {
				filled := strings.NewReplacer("${{ matrix.target }}", row.Target, "${{ matrix.arguments }}", row.Arguments,
					"${{ strategy.job-index }}", strconv.Itoa(i))
				title := filled.Replace(job.Name)
				assert.False(t, named[title], "%s: two jobs are called %q", name, title)
				named[title] = true
				for _, step := range job.Steps {
					if !strings.HasPrefix(step.Uses, "actions/upload-artifact@") {
						continue
					}
					result, is := step.With["name"].(string)
					require.True(t, is, name)
					result = filled.Replace(result)
					assert.False(t, results[result], "%s: two jobs upload %q", name, result)
					results[result] = true
					uploads++
				}
			}
		}
	}
	require.NotZero(t, uploads)
}

// TestThePageNamesTheCosignThatSigns: commands of another version may not read its signatures.
func TestThePageNamesTheCosignThatSigns(t *testing.T) {
	workflow, err := os.ReadFile(filepath.Join(root, ".github", "workflows", "release.yml"))
	require.NoError(t, err)
	page, err := os.ReadFile(filepath.Join(root, "docs", "releasing.md"))
	require.NoError(t, err)
	signs := regexp.MustCompile(`cosign-release: (v\d+\.\d+\.\d+) `).FindSubmatch(workflow)
	require.NotNil(t, signs)
	assert.Contains(t, string(page), "cosign "+string(signs[1])+",")
}

// TestWorkflowsRunAsTheWholeCheckDoes: with what .ci/run sets, the Go of the Dockerfile, which builds releases, and the home that has
// caches.
func TestWorkflowsRunAsTheWholeCheckDoes(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(root, ".github", "workflows", "*.yml"))
	require.NoError(t, err)
	require.Len(t, files, 3)
	for _, file := range files {
		data, err := os.ReadFile(file)
		require.NoError(t, err)
		assert.Contains(t, string(data), "golang:", file)
		assert.Contains(t, string(data), "go-version: ${{ steps.go.outputs.version }}\n", file)
		assert.NotContains(t, string(data), "go-version-file", file)
		assert.Contains(t, string(data), `sudo env "PATH=$PATH" "HOME=$HOME" `, file)
		// Runners are not Debian: they have no packages of it to make the mover's image of.
		assert.Equal(t, strings.Contains(string(data), "release-snapshot"),
			strings.Contains(string(data), `DEBIAN_MIRROR="${{ vars.DEBIAN_MIRROR }}"`), file)
	}
	check, err := os.ReadFile(filepath.Join(root, ".ci", "run"))
	require.NoError(t, err)
	checks, err := os.ReadFile(filepath.Join(root, ".github", "workflows", "checks.yml"))
	require.NoError(t, err)
	set := regexp.MustCompile(`(?m)^export ((?:E2E|LODESTONE)_[A-Z]+=\S+)`).FindAllStringSubmatch(string(check), -1)
	require.NotEmpty(t, set)
	for _, variable := range set {
		assert.Contains(t, string(checks), " "+variable[1]+" ")
	}
}
