package moverapi_test

import (
	"crypto/tls"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lodestone-storage/lodestone/pkg/moverapi"
)

const move = "5f3c0a52-6c0e-4f63-8a2e-0d7d2f1c9b11"

func issue(t *testing.T, uid string, now time.Time) map[moverapi.Role]moverapi.Files {
	t.Helper()
	files, err := moverapi.IssueKeys(uid, now, time.Hour)
	require.NoError(t, err)
	return files
}

// shake lets a client and a server shake hands and exchange a byte, so that the
// server's opinion of the client is known to it.
func shake(t *testing.T, client, server *tls.Config) (clientErr, serverErr error) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	done := make(chan error, 1)
	go func() {
		raw, err := listener.Accept()
		if err != nil {
			done <- err
			return
		}
		defer raw.Close()
		_, err = tls.Server(raw, server).Read(make([]byte, 1))
		done <- err
	}()
	raw, err := net.Dial("tcp", listener.Addr().String())
	require.NoError(t, err)
	defer raw.Close()
	_, clientErr = tls.Client(raw, client).Write([]byte{1})
	return clientErr, <-done
}

func TestOnlyTheRolesOfOneMoveTalk(t *testing.T) {
	now := time.Now()
	ours, again := issue(t, move, now), issue(t, move, now)
	old := issue(t, move, now.Add(-3*time.Hour))
	for name, row := range map[string]struct {
		client   moverapi.Files
		server   moverapi.Files
		expects  moverapi.Role
		accepts  moverapi.Role
		succeeds bool
	}{
		"the sender talks to the receiver": {ours[moverapi.Sender], ours[moverapi.Receiver], moverapi.Receiver, moverapi.Sender, true},
		"the controller talks to the sender": {ours[moverapi.Controller], ours[moverapi.Sender], moverapi.Sender, moverapi.Controller,
			true},
		"the controller is no sender": {ours[moverapi.Controller], ours[moverapi.Receiver], moverapi.Receiver, moverapi.Sender,
			false},
		"the receiver is no client": {ours[moverapi.Receiver], ours[moverapi.Sender], moverapi.Sender, moverapi.Receiver,
			false},
		"the sender is no controller": {ours[moverapi.Sender], ours[moverapi.Sender], moverapi.Sender, moverapi.Controller,
			false},
		"the sender is no receiver": {ours[moverapi.Sender], ours[moverapi.Sender], moverapi.Receiver, moverapi.Sender, false},
		"the controller is no receiver": {ours[moverapi.Sender], ours[moverapi.Controller], moverapi.Receiver, moverapi.Sender,
			false},
		"keys of two issues do not fit": {ours[moverapi.Sender], again[moverapi.Receiver], moverapi.Receiver, moverapi.Sender,
			false},
		"keys whose time is over are refused by both": {old[moverapi.Sender], old[moverapi.Receiver], moverapi.Receiver, moverapi.Sender, false},
	} {
		t.Run(name, func(t *testing.T) {
			client, err := row.client.Client(move, row.expects)
			require.NoError(t, err)
			server, err := row.server.Server(move, row.accepts)
			require.NoError(t, err)
			clientErr, serverErr := shake(t, client, server)
			if row.succeeds {
				assert.NoError(t, clientErr)
				assert.NoError(t, serverErr)
			} else {
				assert.Error(t, serverErr)
			}
		})
	}
}

func TestAnotherMovesNameIsRefusedEvenByItsOwnAuthority(t *testing.T) {
	ours := issue(t, move, time.Now())
	client, err := ours[moverapi.Sender].Client("another-move", moverapi.Receiver)
	require.NoError(t, err)
	server, err := ours[moverapi.Receiver].Server(move, moverapi.Sender)
	require.NoError(t, err)
	clientErr, _ := shake(t, client, server)
	assert.ErrorContains(t, clientErr, "another-move")
}

func TestOlderTLSIsRefused(t *testing.T) {
	ours := issue(t, move, time.Now())
	client, err := ours[moverapi.Sender].Client(move, moverapi.Receiver)
	require.NoError(t, err)
	server, err := ours[moverapi.Receiver].Server(move, moverapi.Sender)
	require.NoError(t, err)
	client.MinVersion, client.MaxVersion = tls.VersionTLS12, tls.VersionTLS12
	_, serverErr := shake(t, client, server)
	assert.ErrorContains(t, serverErr, "version")
}

func TestAUIDThatIsNoNameIsRefused(t *testing.T) {
	for _, uid := range []string{"", "a.b", "UPPER", "-a", "a*"} {
		_, err := moverapi.IssueKeys(uid, time.Now(), time.Hour)
		assert.Error(t, err, "%q", uid)
	}
}

func TestFilesOfAnotherRoleAreNotMixed(t *testing.T) {
	ours := issue(t, move, time.Now())
	mixed := moverapi.Files{
		moverapi.AuthorityFile:   ours[moverapi.Sender][moverapi.AuthorityFile],
		moverapi.CertificateFile: ours[moverapi.Sender][moverapi.CertificateFile],
		moverapi.PrivateKeyFile:  ours[moverapi.Receiver][moverapi.PrivateKeyFile],
	}
	_, err := mixed.Client(move, moverapi.Receiver)
	assert.ErrorContains(t, err, "read the move's keys")
}
