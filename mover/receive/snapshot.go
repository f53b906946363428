package receive

import (
	"errors"
	"fmt"
	"os"

	"github.com/lodestone-storage/lodestone/mover/exchange"
)

// outdated refuses a sender that reads a snapshot of the source once one has come that
// reads the source itself: what such a snapshot holds is old by then. One may still run
// whose pod was deleted by force. The scratch remembers that over a restart.
func (r *Receiver) outdated(asked exchange.HelloAsked) error {
	path := r.Scratch.File("source.seen")
	if !asked.Snapshot {
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			return fmt.Errorf("remember that the source itself is read: %w", err)
		}
		return nil
	}
	_, err := os.Stat(path)
	switch {
	case err == nil || r.NoSnapshot:
		return errors.New("the sender reads a snapshot, and the source itself is read by now; remove the mover at the snapshot")
	case !errors.Is(err, os.ErrNotExist):
		return fmt.Errorf("find out whether the source itself is read: %w", err)
	}
	return nil
}
