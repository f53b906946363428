package harness

import (
	"context"
	"maps"
	"net"
	"os"
	"time"

	"github.com/lodestone-storage/lodestone/pkg/movekeys"
	"github.com/lodestone-storage/lodestone/pkg/moverepository"
)

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
	// Store, if not nil, is what contents are to travel through.
	Store *moverepository.Ticket
	// SourceClaim and TargetClaim are where the claim of Store is mounted, if it is one.
	SourceClaim, TargetClaim string
	// Watched has Do fail with ErrEnded when a mover ends, which nobody starts again.
	Watched bool
	// More are further flags of both movers.
	More []string
}

// writeKeys writes what the Secrets of both movers hold.
func (m *Move) writeKeys(store *moverepository.Ticket) (map[movekeys.Role]movekeys.Files, error) {
	keys, err := movekeys.Issue(UID, time.Now(), time.Hour)
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
		var config net.ListenConfig
		listener, err := config.Listen(ctx, "tcp", "127.0.0.1:0")
		if err != nil {
			release()
			return nil, nil, err
		}
		held, addresses = append(held, listener), append(addresses, listener.Addr().String())
	}
	return addresses, release, nil
}
