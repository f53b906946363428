package pitfalls

import (
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	schedulerv1 "k8s.io/kube-scheduler/config/v1"
	"sigs.k8s.io/yaml"

	"github.com/lodestone-storage/lodestone/e2e/testbed"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

const repository = "../../"

// The table in the docs names tests; none of them may be gone.
func TestTableOfPitfallsNamesTestsThatExist(t *testing.T) {
	content, err := os.ReadFile(repository + "docs/scheduling-contract.md")
	require.NoError(t, err)
	row := regexp.MustCompile(`(?m)^\| (\d+) \|.*$`)
	named := regexp.MustCompile("`(Test\\w+)` in `([\\w/-]+)`")

	rows := row.FindAllStringSubmatch(string(content), -1)
	assert.Len(t, rows, 17)
	for _, found := range rows {
		tests := named.FindAllStringSubmatch(found[0], -1)
		assert.NotEmpty(t, tests, "pitfall %s has no test", found[1])
		assert.Len(t, tests, strings.Count(found[0], "`Test"), "pitfall %s names a test without its folder", found[1])
		for _, test := range tests {
			assert.True(t, declared(t, repository+test[2], test[1]), "pitfall %s: there is no %s in %s", found[1], test[1], test[2])
		}
	}
}

func declared(t *testing.T, folder, name string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*_test.go"))
	require.NoError(t, err)
	for _, file := range files {
		content, err := os.ReadFile(file)
		require.NoError(t, err)
		if strings.Contains(string(content), "\nfunc "+name+"(t *testing.T)") {
			return true
		}
	}
	return false
}

// The table of what a claim may ask for names tests for both routes; none of them
// may be gone.
func TestTableOfClaimsNamesTestsThatExist(t *testing.T) {
	content, err := os.ReadFile(repository + "docs/classes.md")
	require.NoError(t, err)
	_, table, found := strings.Cut(string(content), "| a claim asks for |")
	require.True(t, found, "docs/classes.md has the table")
	named := regexp.MustCompile("`(Test\\w+)` in `([\\w/-]+)`")
	rows := 0
	for _, row := range strings.Split(table, "\n")[2:] {
		if !strings.HasPrefix(row, "|") {
			break
		}
		rows++
		cells := strings.Split(strings.Trim(row, "|"), "|")
		require.Len(t, cells, 3, row)
		for _, cell := range cells[1:] {
			tests := named.FindAllStringSubmatch(cell, -1)
			assert.NotEmpty(t, tests, "no test in %q", row)
			for _, test := range tests {
				assert.True(t, declared(t, repository+test[2], test[1]), "there is no %s in %s", test[1], test[2])
			}
		}
	}
	assert.Greater(t, rows, 15)
}

// configurations returns the scheduler configurations that users are given, by path.
func configurations(t *testing.T) map[string][]byte {
	t.Helper()
	paths, err := filepath.Glob(fromDeploy("examples", "kube-scheduler-configuration*.yaml"))
	require.NoError(t, err)
	require.Contains(t, paths, withMarker)
	found := map[string][]byte{}
	for _, path := range append(paths, fromDeploy("components", "second-scheduler", "scheduler-configuration.yaml")) {
		found[path], err = os.ReadFile(path)
		require.NoError(t, err)
	}
	return found
}

func TestConfigurationsHoldOffWhatTheyCan(t *testing.T) {
	weights := map[int64]bool{}
	for path, content := range configurations(t) {
		t.Run(filepath.Base(path), func(t *testing.T) {
			var configuration schedulerv1.KubeSchedulerConfiguration
			require.NoError(t, yaml.UnmarshalStrict(content, &configuration))
			require.Len(t, configuration.Extenders, 1)
			extender := configuration.Extenders[0]

			assert.True(t, extender.NodeCacheCapable, "whole nodes are sent otherwise")
			assert.True(t, extender.Ignorable, "pods wait for the extender otherwise")
			assert.Positive(t, extender.HTTPTimeout.Duration, "a hung extender holds up each pod for 5 s otherwise")
			assert.LessOrEqual(t, extender.HTTPTimeout.Seconds(), 2.0)
			weights[extender.Weight] = true
			for _, verb := range []string{extender.FilterVerb, extender.PrioritizeVerb, extender.PreemptVerb} {
				assert.NotEmpty(t, verb, "pods are evicted in vain without preempt")
			}
			assert.Empty(t, extender.BindVerb)

			at, err := url.Parse(extender.URLPrefix)
			require.NoError(t, err)
			assert.NotNil(t, net.ParseIP(at.Hostname()), "a static pod resolves no Service names: %s", extender.URLPrefix)
			assert.Equal(t, at.Scheme == "https", extender.EnableHTTPS)
			if extender.EnableHTTPS {
				require.NotNil(t, extender.TLSConfig)
				assert.NotEmpty(t, extender.TLSConfig.CAFile, "without it kube-scheduler trusts anybody")
				assert.False(t, extender.TLSConfig.Insecure)
				assert.NotEmpty(t, extender.TLSConfig.CertFile, "kube-scheduler sends no token: only a certificate says who it is")
				assert.NotEmpty(t, extender.TLSConfig.KeyFile)
			}
			if strings.HasPrefix(path, fromDeploy("examples")) {
				assert.NotEmpty(t, configuration.ClientConnection.Kubeconfig, "with --config the flag --kubeconfig is ignored")
			} else {
				require.NotNil(t, configuration.PercentageOfNodesToScore)
				assert.EqualValues(t, 100, *configuration.PercentageOfNodesToScore, "its pods are those that the extender has a say in")
			}
			for _, resource := range extender.ManagedResources {
				assert.Equal(t, keys.MarkerResource, resource.Name)
				assert.True(t, resource.IgnoredByScheduler, "no node has it")
			}
		})
	}
	assert.Len(t, weights, 1, "data draws pods as much whoever schedules them")
}

// kube-scheduler itself reads them, makes what they say and ends.
func TestKubeSchedulerTakesTheConfigurations(t *testing.T) {
	testbed.Require(t)
	binary, err := testbed.Binary(t.Context(), os.Stderr)
	require.NoError(t, err)
	for path, content := range configurations(t) {
		t.Run(filepath.Base(path), func(t *testing.T) {
			written := filepath.Join(t.TempDir(), "written.yaml")
			output, err := exec.CommandContext(t.Context(), binary, "kube-scheduler",
				"--config="+configuration(t, content, settings{extender: "127.0.0.1:1", secure: true, kubeconfig: bed.Kubeconfig(), elect: true}),
				"--authentication-kubeconfig="+bed.Kubeconfig(), "--authorization-kubeconfig="+bed.Kubeconfig(),
				"--cert-dir="+t.TempDir(), "--write-config-to="+written).CombinedOutput()
			require.NoError(t, err, "%s", output)
			assert.FileExists(t, written)
		})
	}
}
