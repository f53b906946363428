package tenancy

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/pkg/bounded"
)

// TestAHostileClusterCannotHoldUpHome has a RemoteCluster lead to an API server
// that answers anything, and looks whether claims of home go on meanwhile, and that
// home reads no more than it should and goes nowhere else.
func TestAHostileClusterCannotHoldUpHome(t *testing.T) {
	user := newTenant(t)
	var trapped atomic.Int64
	trap := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { trapped.Add(1) }))
	t.Cleanup(trap.Close)
	junk := strings.Repeat(`{"metadata":{"name":"x","uid":"x","annotations":{"x":"`+strings.Repeat("x", 1<<16)+`"}}},`, 16)
	for name, answer := range map[string]http.HandlerFunc{
		"redirects": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, trap.URL+r.URL.Path, http.StatusTemporaryRedirect)
		},
		"garbage": func(w http.ResponseWriter, _ *http.Request) {
			object(w, "\x00\xff}{<html>"+strings.Repeat("[", 100_000))
		},
		"yaml": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/yaml")
			_, _ = w.Write([]byte("a: &a [x, x]\nb: &b [*a, *a]\n"))
		},
		"other kinds": func(w http.ResponseWriter, _ *http.Request) {
			object(w, `{"kind":"SecretList","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[{"metadata":{"name":"x"}}]}`)
		},
		"endless answers": func(w http.ResponseWriter, r *http.Request) {
			object(w, `{"kind":"List","items":[`)
			for r.Context().Err() == nil {
				if _, err := w.Write([]byte(junk)); err != nil {
					return
				}
			}
		},
		"endless failures": func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusInternalServerError)
			for r.Context().Err() == nil {
				if _, err := w.Write([]byte(junk)); err != nil {
					return
				}
			}
		},
		"endless pages": func(w http.ResponseWriter, _ *http.Request) {
			object(w, `{"kind":"PersistentVolumeList","apiVersion":"v1","metadata":{"continue":"more","resourceVersion":"1"},"items":[`+strings.TrimSuffix(junk, ",")+`]}`)
		},
		"sizes that take for ever": lists(func(string) []string {
			return []string{`{"metadata":{"name":"x","uid":"x"},"spec":{"capacity":{"storage":"1e1000000000"}},"capacity":"1234567890123456789012e1000000000","provisioner":"x"}`}
		}),
		"one byte at a time": func(w http.ResponseWriter, r *http.Request) {
			for r.Context().Err() == nil {
				object(w, " ")
				time.Sleep(100 * time.Millisecond)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			claim := "evil-" + strings.ReplaceAll(name, " ", "-")
			there := newEvil(t, claim, answer)
			register(t, there)
			await.Until(t, "home asks", func() bool { return there.asked.Load() > 2 })
			user.claim(claim, nil)
			user.pod(fabric.AtHome(fabric.NewPod(user.namespace, claim, claim)))
			user.bound(claim)
			await.Never(t, "home must not follow", func() bool { return trapped.Load() > 0 })
			// Of each of its four kinds home reads one answer, and none faster than it should.
			assert.Less(t, there.sent.Load(), int64(32*bounded.MaxAnswer))
		})
	}
}

// register makes a RemoteCluster that leads to a hostile API server.
func register(t *testing.T, there *evil) {
	t.Helper()
	require.NoError(t, bed.Register(t.Context(), there.id, there.kubeconfig(t)))
	t.Cleanup(func() {
		there.says(lists(func(string) []string { return nil }))
		there.CloseClientConnections()
		ctx := context.WithoutCancel(t.Context())
		_, err := bed.Home.Kubectl(ctx, "", "delete", "remotecluster", there.id, "--wait=false")
		require.NoError(t, err)
	})
}
