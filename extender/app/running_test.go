package app_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"

	"github.com/lodestone-storage/lodestone/extender/app"
)

// soon bounds waits that end in milliseconds unless something is broken.
const soon = 30 * time.Second

// running is the program, started in this process.
type running struct {
	t             *testing.T
	verbs, status string
	stop          context.CancelFunc
	done          chan error
}

func start(t *testing.T, api *apiServer, grace time.Duration) *running {
	t.Helper()
	return startWith(t, api, func(config *app.Config) { config.ShutdownGrace = grace })
}

func startWith(t *testing.T, api *apiServer, change func(*app.Config)) *running {
	t.Helper()
	config := &app.Config{Home: api.config(), Verbs: listen(t), Status: listen(t), MaxStaleness: app.NewOptions().MaxStaleness}
	change(config)
	scheme := "http"
	if config.TLS != nil {
		scheme = "https"
	}
	ctx, stop := context.WithCancel(t.Context())
	r := &running{
		t: t, stop: stop, done: make(chan error, 1),
		verbs: scheme + "://" + config.Verbs.Addr().String(), status: "http://" + config.Status.Addr().String(),
	}
	go func() { r.done <- app.Run(ctx, config) }()
	t.Cleanup(stop)
	return r
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	return listener
}

// get returns the answer of the status address; empty when nothing answers.
func (r *running) get(path string) (int, string) {
	request, err := http.NewRequestWithContext(r.t.Context(), http.MethodGet, r.status+path, nil)
	if err != nil {
		return 0, err.Error()
	}
	return read(http.DefaultClient.Do(request))
}

func read(response *http.Response, err error) (int, string) {
	if err != nil {
		return 0, err.Error()
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, err.Error()
	}
	return response.StatusCode, string(body)
}

func (r *running) waitUntilReady() {
	r.t.Helper()
	require.Eventually(r.t, func() bool {
		code, _ := r.get("/readyz")
		return code == http.StatusOK
	}, soon, 10*time.Millisecond)
}

// filter returns the names that are kept for a pod that mounts app/data.
func (r *running) filter(names ...string) []string {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "app", Name: "web"}}
	pod.Spec.Volumes = []corev1.Volume{{VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}}
	body, err := json.Marshal(extenderv1.ExtenderArgs{Pod: pod, NodeNames: &names})
	require.NoError(r.t, err)
	request, err := http.NewRequestWithContext(r.t.Context(), http.MethodPost, r.verbs+"/filter", bytes.NewReader(body))
	require.NoError(r.t, err)
	code, answer := read(http.DefaultClient.Do(request))
	require.Equal(r.t, http.StatusOK, code, answer)
	var result extenderv1.ExtenderFilterResult
	require.NoError(r.t, json.Unmarshal([]byte(answer), &result))
	require.NotNil(r.t, result.NodeNames)
	return *result.NodeNames
}
