package harness

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/lodestone-storage/lodestone/mover/content/rsync"
	"github.com/lodestone-storage/lodestone/pkg/moverapi"
)

// User is somebody other than root, with at least one group.
type User struct {
	ID     int
	Groups []int
}

// Setup is what a Move is between.
type Setup struct {
	// Program is the mover's program; everything movers need is kept in Folder.
	Program, Folder, Source, Target string
	// Spliced has both wait, and the wire join them.
	Spliced bool
	// Direct has the sender dial the receiver itself, past the wire.
	Direct bool
	// Without are capabilities, as in CAP_MKNOD, that the receiver lacks.
	Without []string
	// As says who the mover of a verb, send or receive, is: a user and its groups, the first of which is that of its process. It
	// is root unless that is said here.
	As map[string]User
	// Store, if not nil, is what contents are to travel through.
	Store *moverapi.Ticket
	// SourceClaim and TargetClaim are where the claim of Store is mounted, if it is one.
	SourceClaim, TargetClaim string
	// Watched has Do fail with ErrEnded when a mover ends, which nobody starts again.
	Watched bool
	// More are further flags of both movers.
	More []string
}

// writeKeys writes what the Secrets of both movers hold.
func (m *Move) writeKeys(store *moverapi.Ticket) (map[moverapi.Role]moverapi.Files, error) {
	keys, err := moverapi.IssueKeys(UID, time.Now(), time.Hour)
	if err != nil {
		return nil, err
	}
	var more map[string][]byte
	if store != nil {
		if more, err = store.Files(); err != nil {
			return nil, err
		}
	}
	for role, files := range keys {
		maps.Copy(files, more)
		if err := os.MkdirAll(m.path("keys", string(role)), 0o700); err != nil {
			return nil, err
		}
		for name, content := range files {
			if err := os.WriteFile(m.path("keys", string(role), name), content, 0o600); err != nil {
				return nil, err
			}
		}
	}
	return keys, nil
}

// freeAddresses chooses addresses that nobody listens at. They are held until release is
// called, so that nothing else of the move gets one of them.
func freeAddresses(ctx context.Context, n int) (addresses []string, release func(), err error) {
	var held []net.Listener
	release = func() {
		for _, listener := range held {
			_ = listener.Close()
		}
	}
	for range n {
		listener, err := listenSomewhere(ctx)
		if err != nil {
			release()
			return nil, nil, err
		}
		held, addresses = append(held, listener), append(addresses, listener.Addr().String())
	}
	return addresses, release, nil
}

// listenSomewhere listens at a port below those from which kernels take the source ports of connections: one of these could be in use by
// the time that a mover listens there.
func listenSomewhere(ctx context.Context) (listener net.Listener, err error) {
	const first, ports, tries = 10000, 10000, 100
	for range tries {
		var config net.ListenConfig
		listener, err = config.Listen(ctx, "tcp", fmt.Sprintf("127.0.0.1:%d", first+rand.IntN(ports)))
		if err == nil {
			break
		}
	}
	return listener, err
}

// CompleteVariable is the environment variable that forbids to skip tests of movers, if
// it is 1.
const CompleteVariable = "LODESTONE_COMPLETE"

// Require skips a test that runs movers where none can run, and says what is missing.
// Where all tests must run the test fails instead.
func Require(t testing.TB) {
	t.Helper()
	err := missing(os.Geteuid())
	switch {
	case err == nil:
	case os.Getenv(CompleteVariable) == "1":
		t.Fatalf("%v (%s=1 lets no test be skipped)", err, CompleteVariable)
	default:
		t.Skip(err)
	}
}

// missing says all that movers lack here to run for a user.
func missing(user int) (err error) {
	if user != 0 {
		err = fmt.Errorf("needs root: movers keep owners, modes and devices, and this is user %d", user)
	}
	if lacking := rsync.Installed(); lacking != nil {
		err = errors.Join(err, fmt.Errorf("needs rsync: %w", lacking))
	}
	if _, lacking := exec.LookPath("setpriv"); lacking != nil {
		err = errors.Join(err, fmt.Errorf("needs setpriv, to run movers with the capabilities of their containers: %w", lacking))
	}
	return err
}
