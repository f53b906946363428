package namespaces

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"

	"github.com/lodestone-storage/lodestone/e2e/await"
	provisioner "github.com/lodestone-storage/lodestone/provisioner/app"
)

// The tests of this file do not run in parallel: they silence what others use.

func TestAClaimWaitsForTheAgentAndIsWokenByItsAnswer(t *testing.T) {
	patient, moved := space(t, "shop-", false), space(t, "shop-", false)
	speak := owner.silence(t)
	for _, namespace := range []string{patient, moved} {
		kubectl(t, "label", "namespace", namespace, "lodestone.dev/offload=enabled")
	}
	use(t, patient, inWest(patient))
	use(t, moved, preferWest(moved))
	await.Event(t, bed.Home.Client(), patient, "data", "WaitingForNamespace")
	assert.False(t, hasShadow(t, patient))
	runsOn(t, moved, false)
	assert.Contains(t, await.Event(t, bed.Home.Client(), moved, "data", "NamespaceNotMade"), "remote agent")
	speak()
	runsOn(t, patient, true)
}

// killer ends a program at its n-th write.
type killer struct {
	left atomic.Int64
	kill func()
}

var errKilled = errors.New("killed")

func (k *killer) wrap(config *rest.Config) {
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(request *http.Request) (*http.Response, error) {
			if request.Method == http.MethodGet || strings.Contains(request.URL.Path, "leases") || strings.Contains(request.URL.Path, "selfsubject") {
				return next.RoundTrip(request)
			}
			if k.left.Add(-1) < 0 {
				k.kill()
				return nil, errKilled
			}
			return next.RoundTrip(request)
		})
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }

func TestAKillAtAnyWriteIsResumed(t *testing.T) {
	for writes := range int64(5) {
		namespace := space(t, "shop-", false)
		require.NoError(t, running.Stop())
		ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
		k := &killer{kill: cancel}
		k.left.Store(writes)
		program, err := bed.StartProvisioner(ctx, func(c *provisioner.Config) {
			c.LeaderElect = false
			k.wrap(c.Home)
		})
		require.NoError(t, err)
		kubectl(t, "label", "namespace", namespace, "lodestone.dev/offload=enabled")
		use(t, namespace, inWest(namespace))
		_ = program.Wait() // killed at a write to home, however it took that
		cancel()
		running, err = startProvisioner(context.WithoutCancel(t.Context()))
		require.NoError(t, err)
		runsOn(t, namespace, true)
		drop(t, namespace)
		await.Until(t, "the data is deleted", func() bool { return !hasShadow(t, namespace) }, func() any { return await.Events(t, bed.Home.Client(), namespace) })
	}
	require.NoError(t, bed.AwaitReady(t.Context(), "west", "True"))
}
