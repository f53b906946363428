package pitfalls

import (
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	schedulerv1 "k8s.io/kube-scheduler/config/v1"
	"sigs.k8s.io/yaml"

	"github.com/lodestone-storage/lodestone/e2e/testbed"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

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
