package mtls_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/must"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	"github.com/lodestone-storage/lodestone/extender/app"
	"github.com/lodestone-storage/lodestone/extender/filter"
	"github.com/lodestone-storage/lodestone/extender/mtls"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// An authority lives six hours: with the allowance for clocks, the next one is made
// after three, signs after four, and this one expires after five.
const (
	authorityLife = 5 * time.Hour
	leafLife      = 24 * time.Hour
)

// makeCertificates runs the program's work with its rights, at another time.
func (w *world) makeCertificates(at time.Time) {
	w.t.Helper()
	options := app.NewCertificatesOptions()
	options.AuthorityLife, options.ServerLife = authorityLife, leafLife
	options.Kubeconfig = w.kubeconfigOfTheJob()
	config, err := options.Config()
	require.NoError(w.t, err)
	config.Now = func() time.Time { return at }
	require.NoError(w.t, mtls.RunCertificateJob(w.t.Context(), config))
}

func (w *world) kubeconfigOfTheJob() string {
	w.t.Helper()
	content, err := w.ServiceAccountKubeconfig(w.t.Context(), certificated, certificated)
	require.NoError(w.t, err)
	path, err := w.WriteFile("certificates.kubeconfig", content)
	require.NoError(w.t, err)
	return path
}

func TestCertificatesChangeWhilePodsAreScheduled(t *testing.T) {
	w := newWorld(t)
	start := time.Now()
	requireCopied := w.startCopying()

	// The authority is old already; the command makes the next one.
	w.makeCertificates(start.Add(-3*time.Hour - 50*time.Minute))
	command := app.NewCommand()
	command.SetArgs([]string{"certificates", "--kubeconfig=" + w.kubeconfigOfTheJob(), "--authority-duration=5h", "--server-duration=24h"})
	require.NoError(t, command.ExecuteContext(t.Context()))
	w.mount(app.ServerSecret, &w.server)
	w.requireFewRights()
	w.requireAdmitted()
	first := w.mount(app.ClientSecret, &w.client)
	require.Equal(t, 2, strings.Count(string(first["ca.crt"]), "BEGIN CERTIFICATE"))
	requireCopied()
	w.runExtender()
	// kube-scheduler reads the authorities when it starts, and only then.
	require.NoError(t, w.StopScheduler(t.Context()))
	require.NoError(t, w.StartScheduler(t.Context()))

	w.requireRefusal()
	namespace := testbed.Namespace(t, w.Cluster)
	stop := w.keepScheduling(namespace)

	// The next authority takes over: both certificates are its own.
	w.makeCertificates(start.Add(11 * time.Minute))
	server, client := w.mount(app.ServerSecret, &w.server), w.mount(app.ClientSecret, &w.client)
	assert.NotEqual(t, first["tls.crt"], client["tls.crt"])
	await.Until(t, "both certificates are in use", func() bool {
		return w.expiry(mtls.ServerCertificate) == notAfter(t, server) && w.expiry(mtls.ClientCertificate) == notAfter(t, client)
	}, func() any { return w.get("/metrics") })

	// The first authority expires, and nobody trusts it any more.
	w.makeCertificates(start.Add(71 * time.Minute))
	server = w.mount(app.ServerSecret, &w.server)
	require.Equal(t, 1, bytes.Count(server["ca.crt"], []byte("BEGIN CERTIFICATE")))
	require.True(t, w.accepts(client, server["ca.crt"]))
	await.Until(t, "the first client certificate is refused", func() bool { return !w.accepts(first, server["ca.crt"]) })

	names := stop()
	t.Logf("%d pods were scheduled meanwhile", len(names))
	w.requireAllScheduledAtOnce(namespace, names)
	assert.Contains(t, w.get("/metrics"), "lodestone_extender_certificate_reload_errors_total 0")
}

// requireRefusal shows that kube-scheduler hears what the extender answers.
func (w *world) requireRefusal() {
	w.t.Helper()
	namespace := testbed.Namespace(w.t, w.Cluster)
	pod := pod("remote")
	pod.Spec.NodeSelector = map[string]string{keys.Cluster: "west"}
	must.Create(w.t, w.Client().CoreV1().Pods(namespace), pod)
	message := await.Event(w.t, w.Client(), namespace, "remote", "FailedScheduling")
	assert.Contains(w.t, message, filter.NotOffloaded.Sentence())
}

func pod(name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "none"}}},
	}
}

// keepScheduling makes pods, one after another, until the function that it returns
// is called, which returns their names.
func (w *world) keepScheduling(namespace string) func() []string {
	ctx, cancel := context.WithCancel(w.t.Context())
	var names []string
	var making sync.WaitGroup
	making.Go(func() {
		for ctx.Err() == nil {
			made, err := w.Client().CoreV1().Pods(namespace).Create(w.t.Context(), withName(), metav1.CreateOptions{})
			if assert.NoError(w.t, err) {
				names = append(names, made.Name)
			}
			time.Sleep(await.Often)
		}
	})
	return func() []string {
		cancel()
		making.Wait()
		return names
	}
}

func withName() *corev1.Pod {
	pod := pod("")
	pod.GenerateName = "pod-"
	return pod
}

// requireAllScheduledAtOnce checks that no pod had to be tried twice.
func (w *world) requireAllScheduledAtOnce(namespace string, names []string) {
	w.t.Helper()
	require.NotEmpty(w.t, names)
	await.Until(w.t, "all pods have a node", func() bool {
		pods := must.List(w.t, w.Client().CoreV1().Pods(namespace))
		require.Len(w.t, pods.Items, len(names))
		for _, pod := range pods.Items {
			if pod.Spec.NodeName == "" {
				return false
			}
		}
		return true
	})
	for _, event := range await.Events(w.t, w.Client(), namespace) {
		assert.NotContains(w.t, event, "FailedScheduling")
	}
}

func notAfter(t *testing.T, data map[string][]byte) int64 {
	t.Helper()
	pair, err := mtls.ParsePair(data["tls.crt"], data["tls.key"])
	require.NoError(t, err)
	return pair.Certificate.NotAfter.Unix()
}

// accepts reports whether the extender answers who shows a certificate.
func (w *world) accepts(shown map[string][]byte, authorities []byte) bool {
	w.t.Helper()
	pair, err := tls.X509KeyPair(shown["tls.crt"], shown["tls.key"])
	require.NoError(w.t, err)
	trusted := x509.NewCertPool()
	require.True(w.t, trusted.AppendCertsFromPEM(authorities))
	transport := &http.Transport{TLSClientConfig: &tls.Config{
		RootCAs: trusted, ServerName: "lodestone-extender.lodestone-system.svc", MinVersion: tls.VersionTLS13,
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil },
	}}
	defer transport.CloseIdleConnections()
	request, err := http.NewRequestWithContext(w.t.Context(), http.MethodPost, "https://"+w.verbs.Addr().String()+"/filter",
		strings.NewReader(`{"Pod":{},"NodeNames":[]}`))
	require.NoError(w.t, err)
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		return false
	}
	defer response.Body.Close()
	return response.StatusCode == http.StatusOK
}

var shellBlock = regexp.MustCompile("(?s)\n   ```sh\n(.*?)\n   ```\n")

// copying returns the command of the documentation that stores kube-scheduler's
// certificate, for a directory of this test.
func (w *world) copying(directory string, more ...string) *exec.Cmd {
	w.t.Helper()
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "scheduling.md"))
	require.NoError(w.t, err)
	var script string
	for _, block := range shellBlock.FindAllStringSubmatch(string(page), -1) {
		if strings.Contains(block[1], app.ClientSecret) {
			script = block[1]
		}
	}
	require.Contains(w.t, script, "/etc/kubernetes/lodestone")
	script = strings.ReplaceAll(script, "/etc/kubernetes/lodestone", directory)
	command := exec.CommandContext(w.t.Context(), "sh", "-c", strings.NewReplacer(more...).Replace(script))
	command.Env = append(os.Environ(), "KUBECONFIG="+w.Kubeconfig(), "PATH="+filepath.Dir(w.KubectlPath())+":"+os.Getenv("PATH"))
	return command
}

// startCopying runs the command before there is a certificate. The function that it
// returns checks what came of it.
func (w *world) startCopying() (requireCopied func()) {
	w.t.Helper()
	directory := filepath.Join(w.t.TempDir(), "lodestone")
	first := w.copying(directory)
	require.NoError(w.t, first.Start())
	return func() {
		w.t.Helper()
		require.NoError(w.t, first.Wait())
		// The Secret may have changed since.
		output, err := w.copying(directory).CombinedOutput()
		require.NoError(w.t, err, string(output))
		w.requireFiles(directory)

		output, err = w.copying(directory, "secret lodestone-extender-client", "secret lodestone-missing").CombinedOutput()
		require.Error(w.t, err, string(output))
		w.requireFiles(directory)
	}
}

// requireFiles checks that a directory has what the Secret holds, for its owner only.
func (w *world) requireFiles(directory string) {
	w.t.Helper()
	secret := must.Get(w.t, w.Client().CoreV1().Secrets(system), app.ClientSecret)
	found, err := os.ReadDir(directory)
	require.NoError(w.t, err)
	require.Len(w.t, found, len(secret.Data))
	for name, want := range secret.Data {
		content, err := os.ReadFile(filepath.Join(directory, name))
		require.NoError(w.t, err)
		assert.Equal(w.t, string(want), string(content), name)
		about, err := os.Stat(filepath.Join(directory, name))
		require.NoError(w.t, err)
		assert.Equal(w.t, os.FileMode(0o600), about.Mode().Perm(), name)
	}
}
