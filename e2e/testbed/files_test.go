package testbed

import (
	"net"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

func TestSchedulerConfig(t *testing.T) {
	const template = `
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection: {leaderElect: true}
clientConnection: {kubeconfig: /elsewhere, qps: 200}
percentageOfNodesToScore: 100
extenders:
- urlPrefix: http://127.0.0.1:1
`
	tests := []struct {
		name          string
		template      string
		extenders     []string
		wantConfig    map[string]any
		wantExtenders []any
	}{
		{
			name: "without a template it is connected to the cluster and nothing else",
			wantConfig: map[string]any{
				"apiVersion":       "kubescheduler.config.k8s.io/v1",
				"kind":             "KubeSchedulerConfiguration",
				"clientConnection": map[string]any{"kubeconfig": "/here"},
				"leaderElection":   map[string]any{"leaderElect": false},
			},
		},
		{
			name:      "a template keeps what does not concern the cluster and gets the extenders added",
			template:  template,
			extenders: []string{"http://127.0.0.1:2"},
			wantConfig: map[string]any{
				"apiVersion":               "kubescheduler.config.k8s.io/v1",
				"kind":                     "KubeSchedulerConfiguration",
				"clientConnection":         map[string]any{"kubeconfig": "/here", "qps": 200.0},
				"leaderElection":           map[string]any{"leaderElect": false},
				"percentageOfNodesToScore": 100.0,
			},
			wantExtenders: []any{
				map[string]any{"urlPrefix": "http://127.0.0.1:1"},
				map[string]any{
					"urlPrefix": "http://127.0.0.1:2", "filterVerb": "filter", "prioritizeVerb": "prioritize", "preemptVerb": "preempt", "weight": 3.0,
					"nodeCacheCapable": true, "ignorable": true, "enableHTTPS": false, "httpTimeout": "5s",
				},
			},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			content, err := schedulerConfig([]byte(test.template), "/here", test.extenders)
			require.NoError(t, err)
			config := map[string]any{}
			require.NoError(t, yaml.Unmarshal(content, &config))
			if test.wantExtenders != nil {
				assert.Equal(t, test.wantExtenders, config["extenders"])
				delete(config, "extenders")
			}
			assert.Equal(t, test.wantConfig, config)
		})
	}
}

func TestSchedulerConfigThatIsNotYAMLIsRefused(t *testing.T) {
	_, err := schedulerConfig([]byte("\tx"), "/here", nil)
	require.ErrorContains(t, err, "read the scheduler configuration")
}

func TestConfigIsChecked(t *testing.T) {
	tests := []struct {
		name    string
		configs []Config
		wantErr string
	}{
		{name: "two clusters of different names are fine", configs: []Config{{Name: "home"}, {Name: "west"}}},
		{name: "no cluster is refused", wantErr: "at least one"},
		{name: "a cluster without a name is refused", configs: []Config{{}}, wantErr: "cluster name"},
		{name: "a name with a slash is refused", configs: []Config{{Name: "a/b"}}, wantErr: "a/b"},
		{name: "a name used twice is refused", configs: []Config{{Name: "home"}, {Name: "home"}}, wantErr: "two clusters"},
		{name: "a negative rate is refused", configs: []Config{{Name: "home", ControllerManagerQPS: -1}}, wantErr: "negative"},
		{name: "a negative grace period is refused", configs: []Config{{Name: "home", NodeGracePeriod: -1}}, wantErr: "negative"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			err := validateAll(test.configs)
			if test.wantErr == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, test.wantErr)
		})
	}
}

func TestReservedPortIsNotGivenAgain(t *testing.T) {
	ports, err := reservePorts(3)
	require.NoError(t, err)
	defer releasePorts(ports)
	_, again := reservePort(ports[0].number)
	assert.False(t, again, "the port is reserved")

	listener, err := net.Listen("tcp", ports[1].address())
	require.NoError(t, err, "whoever reserved a port can listen on it")
	ports[1].release()
	_, again = reservePort(ports[1].number)
	assert.False(t, again, "somebody listens on the port")
	require.NoError(t, listener.Close())
}

func TestOnlyDirectoriesOfDeadOwnersAreSwept(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	alive, err := newDirectory("alive")
	require.NoError(t, err)
	dead, err := newDirectory("dead")
	require.NoError(t, err)
	require.NoError(t, dead.lock.Close()) // as the kernel does when the owner dies
	kept, err := newDirectory("kept")
	require.NoError(t, err)
	logs := kept.removeAllButLogs()

	sweepDirectories()
	assert.DirExists(t, alive.path)
	assert.NoDirExists(t, dead.path)
	assert.DirExists(t, logs)

	alive.remove()
	assert.NoDirExists(t, alive.path)
}

func TestBinaryNamedByTheEnvironmentMustBeAProgram(t *testing.T) {
	t.Setenv("LODESTONE_CONTROLPLANE", os.Args[0])
	path, err := Binary(t.Context(), os.Stderr)
	require.NoError(t, err)
	assert.Equal(t, os.Args[0], path)

	t.Setenv("LODESTONE_CONTROLPLANE", t.TempDir())
	_, err = Binary(t.Context(), os.Stderr)
	require.ErrorContains(t, err, "unset it or correct it")
}
