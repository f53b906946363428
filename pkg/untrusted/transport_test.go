package untrusted

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// most is the most that is read of an answer in these tests.
const most = 8 << 20

// client returns a client of a server that answers as handler does.
func client(t *testing.T, handler http.HandlerFunc) kubernetes.Interface {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	config := &rest.Config{Host: server.URL, BearerToken: "secret", QPS: -1}
	small := usual
	small.answer, small.list = most, most
	shared := newLedger(small)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return &transport{next: next, ledger: shared} })
	c, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	return c
}

func TestWrapBounds(t *testing.T) {
	config := &rest.Config{Host: "127.0.0.1:1"}
	Wrap(config)
	wrapped, ok := config.WrapTransport(http.DefaultTransport).(*transport)
	require.True(t, ok)
	assert.Equal(t, usual, wrapped.ledger.bounds)
	again, ok := config.WrapTransport(http.DefaultTransport).(*transport)
	require.True(t, ok)
	assert.Same(t, wrapped.ledger, again.ledger, "several clients have no more together")
	assert.Equal(t, "application/json", config.AcceptContentTypes, "clients would ask for protobuf")
}

func answer(w http.ResponseWriter, code int, text string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = io.WriteString(w, text)
}

func TestRedirectsAreNotFollowed(t *testing.T) {
	reached := 0
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached++ }))
	t.Cleanup(elsewhere.Close)
	for _, code := range []int{301, 302, 303, 307, 308} {
		c := client(t, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, elsewhere.URL+r.URL.Path, code) })
		_, err := c.CoreV1().PersistentVolumes().Get(t.Context(), "pv", metav1.GetOptions{})
		assert.ErrorContains(t, err, "redirects", "%d", code)
		err = c.CoreV1().PersistentVolumes().Delete(t.Context(), "pv", metav1.DeleteOptions{})
		assert.ErrorContains(t, err, "redirects", "%d", code)
		_, err = c.CoreV1().PersistentVolumes().Watch(t.Context(), metav1.ListOptions{})
		assert.ErrorContains(t, err, "redirects", "%d", code)
	}
	assert.Zero(t, reached)
}

func TestOnlyJSONIsRead(t *testing.T) {
	for _, contentType := range []string{"application/yaml", "application/vnd.kubernetes.protobuf", "application/cbor", "text/html",
		"nonsense;;"} {
		c := client(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", contentType)
			_, _ = io.WriteString(w, "kind: PersistentVolume\napiVersion: v1\n")
		})
		_, err := c.CoreV1().PersistentVolumes().Get(t.Context(), "pv", metav1.GetOptions{})
		assert.ErrorContains(t, err, "only JSON", contentType)
		_, err = c.CoreV1().PersistentVolumes().Watch(t.Context(), metav1.ListOptions{})
		assert.ErrorContains(t, err, "only JSON", contentType)
	}
	c := client(t, func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "the way is shut", http.StatusBadGateway) })
	_, err := c.CoreV1().PersistentVolumes().Get(t.Context(), "pv", metav1.GetOptions{})
	assert.ErrorContains(t, err, "the way is shut")
}

// endless writes until the client has enough, and returns how much that was.
func endless(w http.ResponseWriter, start, chunk string) int {
	w.Header().Set("Content-Type", "application/json")
	sum := 0
	for part := start; sum <= 16*most; part = chunk {
		n, err := io.WriteString(w, part)
		sum += n
		if err != nil {
			break
		}
	}
	return sum
}

func TestWhetherAnAPIServerIsReadyIsReadAsText(t *testing.T) {
	read := 0
	c := client(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = io.WriteString(w, "ok")
		for range read {
			_, _ = w.Write(make([]byte, 1<<10))
		}
	})
	ask := func(path string) error { return c.Discovery().RESTClient().Get().AbsPath(path).Do(t.Context()).Error() }
	for _, path := range []string{"/readyz", "/livez", "/healthz", "/below/readyz"} {
		assert.NoError(t, ask(path), path)
	}
	for _, path := range []string{"/version", "/api/v1/nodes/readyz", "/apis/storage.k8s.io/v1/storageclasses/healthz"} {
		assert.ErrorContains(t, ask(path), "only JSON", path)
	}
	read = 2 << 10
	assert.Error(t, ask("/readyz"), "text without end")
}

func TestEndlessAnswersEnd(t *testing.T) {
	const slack = 16 << 20 // what is under way when the client has enough
	chunk := strings.Repeat(" ", 1<<20)
	for name, test := range map[string]struct {
		code int
		most int
	}{
		"an object":             {code: http.StatusOK, most: most + slack},
		"a request that failed": {code: http.StatusInternalServerError, most: maxFailure + slack},
		"one that was refused":  {code: http.StatusForbidden, most: maxFailure + slack},
	} {
		t.Run(name, func(t *testing.T) {
			sent := make(chan int, 10)
			c := client(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(test.code)
				sent <- endless(w, `{"kind":"PersistentVolume"`, chunk)
			})
			_, err := c.CoreV1().PersistentVolumes().Get(t.Context(), "pv", metav1.GetOptions{})
			require.Error(t, err)
			assert.LessOrEqual(t, <-sent, test.most)
		})
	}
}

func TestPagesOfAListCountTogether(t *testing.T) {
	pages := 0
	page := fmt.Sprintf(`{"kind":"PersistentVolumeList","apiVersion":"v1","metadata":{"continue":"more"},"items":[{"metadata":{"name":"a","annotations":{"x":%q}}}]}`, strings.Repeat("x", most/8))
	c := client(t, func(w http.ResponseWriter, _ *http.Request) {
		pages++
		answer(w, http.StatusOK, page)
	})
	list := func(token string) error {
		_, err := c.CoreV1().PersistentVolumes().List(t.Context(), metav1.ListOptions{Limit: 500, Continue: token})
		return err
	}
	require.NoError(t, list(""))
	var err error
	for err == nil && pages < 50 {
		err = list("more")
	}
	require.ErrorIs(t, err, ErrTooLarge)
	assert.Equal(t, 8, pages, "the eighth is too much")
	require.NoError(t, list(""), "a list begins anew")
}

func TestAWatchThatBringsTooMuchIsReadSlowly(t *testing.T) {
	now, waited := time.Time{}, time.Duration(0)
	l := newLedger(usual)
	l.pace = newPace(1000, 100)
	l.pace.at, l.pace.now = now, func() time.Time { return now }
	l.pace.wait = func(_ context.Context, d time.Duration) error {
		waited += d
		now = now.Add(d)
		return nil
	}
	request := httptest.NewRequest(http.MethodGet, "/api/v1/nodes?watch=true", nil)
	w := l.watch(request, bytes.NewReader(make([]byte, 10_000)), io.NopCloser(nil), nil)
	n, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{w}, make([]byte, 100))
	require.NoError(t, err)
	assert.EqualValues(t, 10_000, n)
	assert.InDelta(t, 90, waited.Seconds(), 2, "a burst of 1000, then 100 a second")

	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("over"))
	assert.ErrorIs(t, wait(ctx, time.Hour), context.Canceled, "nobody waits for a watch that ended")
}

func TestWhatIsPassedOnIsNotBounded(t *testing.T) {
	for path, want := range map[string]bool{
		"/api/v1/namespaces/shop/pods/web/log":         true,
		"/api/v1/namespaces/shop/pods/web/exec":        true,
		"/api/v1/namespaces/shop/pods/web/portforward": true,
		"/api/v1/namespaces/shop/pods/log":             false,
		"/api/v1/namespaces/log/persistentvolumes":     false,
		"/api/v1/persistentvolumes":                    false,
	} {
		request := httptest.NewRequest(http.MethodGet, path, nil)
		assert.Equal(t, want, passedOn(request), path)
	}
}
