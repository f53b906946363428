package pitfalls

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/util/cert"
	"sigs.k8s.io/yaml"

	"github.com/lodestone-storage/lodestone/e2e/testbed"
)

// withExtender is the configuration of a kube-scheduler that asks without TLS.
var withExtender = fromDeploy("examples", "kube-scheduler-configuration.yaml")

// denied is what a client logs that lacks a right.
var denied = regexp.MustCompile(`.*is forbidden: User.*`)

// settings change a configuration to what the test bed needs.
type settings struct {
	// extender is the address of the extender.
	extender string
	// secure leaves TLS as it is; otherwise there is none.
	secure bool
	// kubeconfig is what kube-scheduler reaches the cluster with; all rights by
	// default.
	kubeconfig string
	// elect leaves leader election as it is; otherwise there is none.
	elect bool
	// allNodes has kube-scheduler look at all nodes for each pod.
	allNodes bool
}

// configuration returns a KubeSchedulerConfiguration with these settings; an empty
// one is the stock configuration.
func configuration(t *testing.T, content []byte, s settings) string {
	t.Helper()
	fields := map[string]any{"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
	require.NoError(t, yaml.Unmarshal(content, &fields))
	fields["clientConnection"] = map[string]any{"kubeconfig": s.kubeconfig}
	if !s.elect {
		fields["leaderElection"] = map[string]any{"leaderElect": false}
	}
	if s.allNodes {
		fields["percentageOfNodesToScore"] = 100
	}
	if extenders, found := fields["extenders"].([]any); found {
		require.Len(t, extenders, 1)
		connect(t, extenders[0].(map[string]any), s.extender, s.secure)
	}
	changed, err := yaml.Marshal(fields)
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "scheduler.yaml")
	require.NoError(t, os.WriteFile(path, changed, 0o600))
	return path
}

// connect points what a configuration says of an extender at an address: with keys
// that exist, or without TLS.
func connect(t *testing.T, extender map[string]any, address string, secure bool) {
	t.Helper()
	keys, found := extender["tlsConfig"].(map[string]any)
	if !found || !secure {
		extender["urlPrefix"] = "http://" + address
		delete(extender, "tlsConfig")
		delete(extender, "enableHTTPS")
		return
	}
	extender["urlPrefix"] = "https://" + address
	certificate, key, err := cert.GenerateSelfSignedCertKey("127.0.0.1", nil, nil)
	require.NoError(t, err)
	for field, content := range map[string][]byte{"caFile": certificate, "certFile": certificate, "keyFile": key} {
		path := filepath.Join(t.TempDir(), field)
		require.NoError(t, os.WriteFile(path, content, 0o600))
		keys[field] = path
	}
}

// scheduler starts a kube-scheduler, waits until it is ready, and ends it after the
// test.
func scheduler(t *testing.T, content []byte, s settings) *testbed.Program {
	t.Helper()
	ctx := t.Context()
	if s.kubeconfig == "" {
		s.kubeconfig = bed.Kubeconfig()
	}
	binary, err := testbed.Binary(ctx, os.Stderr)
	require.NoError(t, err)
	address, err := bed.ReserveAddress()
	require.NoError(t, err)
	_, port, _ := strings.Cut(address, ":")
	program, err := bed.StartProgram("scheduler-"+rand.String(5), binary, "kube-scheduler",
		"--config="+configuration(t, content, s),
		"--authentication-kubeconfig="+s.kubeconfig, "--authorization-kubeconfig="+s.kubeconfig,
		"--bind-address=127.0.0.1", "--secure-port="+port, "--cert-dir="+t.TempDir(), "-v=2")
	require.NoError(t, err)
	t.Cleanup(func() {
		if program.Running() {
			program.Kill()
		}
		output, err := program.Output()
		require.NoError(t, err)
		assert.Empty(t, denied.FindString(output), "the scheduler lacks a right")
		if t.Failed() {
			t.Log(tail(output))
		}
	})
	require.NoError(t, program.AwaitHTTP(ctx, "https://"+address+"/readyz"))
	return program
}

// scheduleWith starts a kube-scheduler with a configuration of deploy/.
func scheduleWith(t *testing.T, file, extender string) *testbed.Program {
	t.Helper()
	content, err := os.ReadFile(file)
	require.NoError(t, err)
	return scheduler(t, content, settings{extender: extender})
}

func tail(output string) string {
	lines := strings.Split(output, "\n")
	return strings.Join(lines[max(0, len(lines)-40):], "\n")
}
