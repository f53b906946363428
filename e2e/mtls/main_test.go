// Package mtls_test has a real kube-scheduler ask the extender over TLS, with the
// certificates that the program makes in Secrets, and changes all of them while
// pods are scheduled.
package mtls_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/fakekubelet"
	"github.com/lodestone-storage/lodestone/e2e/must"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	"github.com/lodestone-storage/lodestone/extender/app"
	"github.com/lodestone-storage/lodestone/extender/mtls"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

func TestMain(m *testing.M) {
	// The only test with a cluster starts it itself: it needs a directory before.
	testbed.Main(m, func(context.Context) error { return nil })
}

// deploy returns the path of something in deploy/.
func deploy(path ...string) string {
	return filepath.Join(append([]string{"..", "..", "deploy"}, path...)...)
}

// mounted is a directory that is like the volume of a Secret: all files change at
// once, by a link that is replaced.
type mounted struct {
	path  string
	count int
}

func (m *mounted) put(files map[string][]byte) error {
	m.count++
	target := fmt.Sprintf("..%d", m.count)
	if err := os.MkdirAll(filepath.Join(m.path, target), 0o700); err != nil {
		return fmt.Errorf("make a directory of files: %w", err)
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(m.path, target, name), content, 0o600); err != nil {
			return fmt.Errorf("write a file: %w", err)
		}
		if err := os.Symlink(filepath.Join("..data", name), filepath.Join(m.path, name)); err != nil && !os.IsExist(err) {
			return fmt.Errorf("link a file: %w", err)
		}
	}
	temporary := filepath.Join(m.path, "..next")
	if err := os.Symlink(target, temporary); err != nil {
		return fmt.Errorf("link the files: %w", err)
	}
	return os.Rename(temporary, filepath.Join(m.path, "..data"))
}

func (m *mounted) file(name string) string {
	return filepath.Join(m.path, name)
}

const (
	system       = "lodestone-system"
	certificated = "lodestone-certificates"
)

// world is a cluster whose kube-scheduler asks the extender over TLS, and cannot
// do without.
type world struct {
	*testbed.Cluster
	t *testing.T
	// server is mounted by the extender; client is on kube-scheduler's machine.
	server, client mounted
	verbs          net.Listener
	status         string
}

func newWorld(t *testing.T) *world {
	t.Helper()
	testbed.Require(t)
	w := &world{t: t, server: mounted{path: t.TempDir()}, client: mounted{path: t.TempDir()}}
	var err error
	w.verbs, err = (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	// kube-scheduler does not start without the files. Until there are real ones,
	// nobody has a certificate of this authority.
	provisional, err := mtls.NewAuthority(time.Now(), time.Hour)
	require.NoError(t, err)
	require.NoError(t, w.client.put(map[string][]byte{"ca.crt": provisional.CertificatePEM(), "tls.crt": nil, "tls.key": nil}))
	// It outlives the test, which cleans up in it.
	clusters, err := testbed.Start(context.WithoutCancel(t.Context()),
		testbed.Config{Name: "tls", SchedulerConfig: w.schedulerConfiguration()})
	require.NoError(t, err)
	w.Cluster = clusters[0]
	w.apply()
	must.Kubectl(t, w, "", "wait", "--for=condition=Established", "crd/remoteclusters.lodestone.dev", "--timeout=60s")
	// While no remote cluster is known, the extender refuses nothing.
	must.Kubectl(t, w, "", "apply", "-f", deploy("examples", "remote-cluster.yaml"))
	_, err = fakekubelet.Start(t.Context(), fakekubelet.Options{Config: w.AdminConfig(), Nodes: []fakekubelet.Node{
		{Name: "home-1"}, {Name: "home-2"}, {Name: "west", Labels: map[string]string{keys.Cluster: "west"}}}})
	require.NoError(t, err)
	return w
}

// apply applies the manifests that use TLS.
func (w *world) apply() {
	w.t.Helper()
	folder, err := w.Kustomization(filepath.Join("overlays", "release"))
	require.NoError(w.t, err)
	must.Kubectl(w.t, w, "", "apply", "-k", folder)
}

// schedulerConfiguration writes the example, with the addresses of this test.
func (w *world) schedulerConfiguration() string {
	w.t.Helper()
	example, err := os.ReadFile(deploy("examples", "kube-scheduler-configuration-mtls.yaml"))
	require.NoError(w.t, err)
	var configuration map[string]any
	require.NoError(w.t, yaml.Unmarshal(example, &configuration))
	extender := configuration["extenders"].([]any)[0].(map[string]any)
	extender["urlPrefix"] = "https://" + w.verbs.Addr().String()
	extender["ignorable"] = false
	files := extender["tlsConfig"].(map[string]any)
	for _, field := range []string{"caFile", "certFile", "keyFile"} {
		files[field] = w.client.file(filepath.Base(files[field].(string)))
	}
	content, err := yaml.Marshal(configuration)
	require.NoError(w.t, err)
	path := filepath.Join(w.t.TempDir(), "scheduler.yaml")
	require.NoError(w.t, os.WriteFile(path, content, 0o600))
	return path
}

func (w *world) account(namespace, name string) *rest.Config {
	w.t.Helper()
	config, err := w.ServiceAccountConfig(w.t.Context(), namespace, name)
	require.NoError(w.t, err)
	return config
}

// mount brings what a Secret holds to those who use it.
func (w *world) mount(secret string, into *mounted) map[string][]byte {
	w.t.Helper()
	found := must.Get(w.t, w.Client().CoreV1().Secrets(system), secret)
	require.Len(w.t, found.Data, 3)
	require.NoError(w.t, into.put(found.Data))
	return found.Data
}

// runExtender starts the extender with the rights of its ServiceAccount.
func (w *world) runExtender() {
	w.t.Helper()
	status, err := (&net.ListenConfig{}).Listen(w.t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(w.t, err)
	w.status = "http://" + status.Addr().String()
	config := &app.Config{
		Home: w.account(system, "lodestone-extender"), Verbs: w.verbs, Status: status,
		TLS: &mtls.Settings{
			Files: mtls.Files{Certificate: w.server.file("tls.crt"), Key: w.server.file("tls.key"), ClientCA: w.server.file("ca.crt")},
			Names: []string{"kube-scheduler"},
		},
	}
	ctx, stop := context.WithCancel(w.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- app.Run(ctx, config) }()
	w.t.Cleanup(func() {
		stop()
		assert.NoError(w.t, <-ended)
	})
	await.Until(w.t, "the extender is ready", func() bool { return w.get("/readyz") == "ok\n" }, func() any { return w.get("/readyz") })
}

func (w *world) get(path string) string {
	request, err := http.NewRequestWithContext(w.t.Context(), http.MethodGet, w.status+path, nil)
	if err != nil {
		return err.Error()
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err.Error()
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return err.Error()
	}
	return string(body)
}

// expiry returns when the extender says that a kind of certificate expires.
func (w *world) expiry(kind string) int64 {
	w.t.Helper()
	prefix := fmt.Sprintf("lodestone_extender_certificate_expiry_timestamp_seconds{certificate=%q} ", kind)
	for line := range strings.Lines(w.get("/metrics")) {
		if value, found := strings.CutPrefix(strings.TrimSpace(line), prefix); found {
			var seconds float64
			_, err := fmt.Sscan(value, &seconds)
			require.NoError(w.t, err)
			return int64(seconds)
		}
	}
	return 0
}
