package harness

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

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

// Ports of movers are below those from which kernels take the source ports of connections: one of these could be in use by the time that a
// mover listens there.
const firstPort, countPorts = 10000, 10000

// lastPort is counted up, so that no two movers of this process get the same port. Those of other processes begin elsewhere.
var lastPort = func() *atomic.Uint32 {
	var begin atomic.Uint32
	begin.Store(rand.Uint32N(countPorts))
	return &begin
}()

// freeAddress chooses an address that nobody listens at.
func freeAddress() (string, error) {
	var err error
	for range countPorts {
		port := firstPort + int(lastPort.Add(1)%countPorts)
		if err = tryPort(port); err == nil {
			return fmt.Sprintf("127.0.0.1:%d", port), nil
		}
	}
	return "", fmt.Errorf("find a free port from %d on: %w", firstPort, err)
}

// tryPort returns an error if somebody listens at a port of loopback. It does not listen there itself: a program that is being started
// just now has all sockets of this one for a moment, and a mover could not listen until they are closed there, too.
func tryPort(port int) error {
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open a socket: %w", err)
	}
	defer func() { _ = unix.Close(socket) }()
	return errors.Join(unix.SetsockoptInt(socket, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1),
		unix.Bind(socket, &unix.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}}))
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
