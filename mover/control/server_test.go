package control_test

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lodestone-storage/lodestone/mover/control"
	"github.com/lodestone-storage/lodestone/mover/send"
	"github.com/lodestone-storage/lodestone/mover/wire"
	"github.com/lodestone-storage/lodestone/pkg/moverapi"
)

const move = "m1"

// serve serves with the keys of a sender, and returns the controller's client.
func serve(t *testing.T, handler http.Handler) *moverapi.Client {
	t.Helper()
	keys, err := moverapi.IssueKeys(move, time.Now(), time.Hour)
	require.NoError(t, err)
	server := httptest.NewUnstartedServer(handler)
	server.TLS, err = keys[moverapi.Sender].Server(move, moverapi.Controller)
	require.NoError(t, err)
	server.StartTLS()
	t.Cleanup(server.Close)
	client, err := moverapi.NewClient(keys[moverapi.Controller], move, func(ctx context.Context) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", server.Listener.Addr().String())
	})
	require.NoError(t, err)
	t.Cleanup(client.Close)
	return client
}

func TestASenderIsToldWhereItsReceiverMayBe(t *testing.T) {
	server := &control.Server{Runner: &control.Runner{}, Sender: send.New(send.Config{}),
		Connector: wire.NewConnector(nil, wire.DefaultTiming, nil)}
	client := serve(t, server.Handler())
	status, err := client.Status(t.Context())
	require.NoError(t, err)
	assert.True(t, status.Seeks)
	assert.Empty(t, status.Peers)
	good := []string{"10.1.2.3:8440", "[fd00::7]:8440"}
	require.NoError(t, client.Tell(t.Context(), moverapi.Peers{Addresses: good}))
	for name, bad := range map[string][]string{
		"a name":             {"db.shop:8440"},
		"no port":            {"10.1.2.3"},
		"port 0":             {"10.1.2.3:0"},
		"a zone":             {"[fe80::1%eth0]:8440"},
		"nothing":            {""},
		"one that is no end": {strings.Repeat("1", 1000)},
		"too many":           {good[0], good[0], good[0], good[0], good[0]},
	} {
		t.Run(name, func(t *testing.T) {
			require.ErrorIs(t, client.Tell(t.Context(), moverapi.Peers{Addresses: bad}), moverapi.ErrRefused)
			status, err := client.Status(t.Context())
			require.NoError(t, err)
			assert.Equal(t, good, status.Peers, "what was said before holds")
		})
	}
	require.NoError(t, client.Tell(t.Context(), moverapi.Peers{}))
	status, err = client.Status(t.Context())
	require.NoError(t, err)
	assert.Empty(t, status.Peers)
}

func TestAnOlderSenderRefusesToBeTold(t *testing.T) {
	older := http.NewServeMux()
	older.HandleFunc("PUT "+moverapi.TaskPath, func(http.ResponseWriter, *http.Request) {})
	client := serve(t, older)
	require.ErrorIs(t, client.Tell(t.Context(), moverapi.Peers{}), moverapi.ErrRefused)
}

func TestWhoStartsATaskMayWaitForItsEnd(t *testing.T) {
	end := make(chan struct{})
	run := func(ctx context.Context, _ moverapi.Task, _ *send.Meter) (moverapi.TaskStatus, error) {
		select {
		case <-end:
		case <-ctx.Done():
		}
		return moverapi.TaskStatus{}, ctx.Err()
	}
	server := &control.Server{Runner: &control.Runner{Run: run, Context: t.Context()}, Sender: send.New(send.Config{}),
		Connector: wire.NewConnector(nil, wire.DefaultTiming, nil)}
	client := serve(t, server.Handler())
	task := moverapi.Task{ID: "final-0", Kind: moverapi.Final}
	for _, wait := range []time.Duration{0, time.Millisecond} {
		status, err := client.Start(t.Context(), task, wait)
		require.NoError(t, err)
		assert.Equal(t, moverapi.Running, status.State, "it has not ended after %s", wait)
	}
	go func() { end <- struct{}{} }()
	status, err := client.Start(t.Context(), task, time.Minute)
	require.NoError(t, err)
	assert.Equal(t, moverapi.Done, status.State, "the longest wait is over, or its end is not seen")
}
