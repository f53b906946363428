package tenancy

import (
	"context"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/measure"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/bounded"
)

// TestAHostileClusterCannotHoldUpHome has a RemoteCluster lead to an API server
// that answers anything, and looks whether claims of home go on meanwhile, and that
// home holds and reads no more than it should and goes nowhere else.
func TestAHostileClusterCannotHoldUpHome(t *testing.T) {
	user := newTenant(t)
	var trapped atomic.Int64
	trap := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { trapped.Add(1) }))
	t.Cleanup(trap.Close)
	junk := strings.Repeat(`{"metadata":{"name":"x","uid":"x","annotations":{"x":"`+strings.Repeat("x", 1<<16)+`"}}},`, 16)
	nothing := strings.Repeat(`{},`, 1<<21)
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
		"lists of nothing": func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Query().Get("watch") != "" {
				w.WriteHeader(http.StatusNotFound)
				return
			}
			object(w, `{"kind":"`+kindOf(r)+`List","apiVersion":"`+groupOf(r)+`","metadata":{"resourceVersion":"1"},"items":[`+nothing+`{}]}`)
		},
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
			const underWay = 16 << 20 // when home has enough of an answer
			assert.Less(t, there.longest.Load(), int64(bounded.MaxAnswer+underWay))
			remains(t)
		})
	}
}

// TestAHostileClusterThatTellsWithoutEndIsNotListenedTo: its watches never cease to
// bring objects of which nothing but the names can be kept, and where home looks how
// it is, it fails.
func TestAHostileClusterThatTellsWithoutEndIsNotListenedTo(t *testing.T) {
	user := newTenant(t)
	there := newEvil(t, "evil-endless", follows(func(string) []string { return nil }, withoutEnd))
	register(t, there)
	require.NoError(t, bed.AwaitReady(t.Context(), there.id, metav1.ConditionTrue))
	there.sick.Store(true)
	user.claim("data", nil)
	user.pod(fabric.AtHome(fabric.NewPod(user.namespace, "data", "data")))
	user.bound("data")
	var ready *metav1.Condition
	await.Until(t, "home has enough", func() bool {
		remote, err := bed.Remotes.Get(t.Context(), there.id, metav1.GetOptions{})
		require.NoError(t, err)
		ready = meta.FindStatusCondition(remote.Status.Conditions, v1alpha1.Ready)
		return ready.Reason == "TooMuch"
	}, func() any { return ready })
	remains(t)
}

// remains says whether the provisioner would still run in a container with the limit
// that it has in deploy/base. It is the most memory that it ever had that counts: how
// long the attack took, and how often, does not. What is no more in use does not
// count either, for the garbage collector knows the limit.
func remains(t *testing.T) {
	t.Helper()
	require.True(t, provisioner.Running())
	if runtime.GOOS != "linux" {
		return // no other system tells
	}
	most, err := measure.MostResident(provisioner.Pid())
	require.NoError(t, err)
	t.Logf("the provisioner took %.0f MB at most", most)
	assert.Less(t, most, float64(memoryLimit)/1e6)
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
