package send

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/lodestone-storage/lodestone/mover/exchange"
	"github.com/lodestone-storage/lodestone/mover/scratch"
	"github.com/lodestone-storage/lodestone/mover/stream"
	"github.com/lodestone-storage/lodestone/mover/tree"
	"github.com/lodestone-storage/lodestone/pkg/movecontrol"
)

// prepare looks at the source, has the receiver try what the target can keep, and says
// what forbids the move.
func (r *run) prepare(ctx context.Context, conn *stream.Conn) (*movecontrol.Prepared, error) {
	r.meter.begin("looking at the source", 0, 0)
	summary, err := r.scanNames(ctx)
	if err != nil {
		return nil, err
	}
	names, err := r.forgetNames()
	if err != nil {
		return nil, err
	}
	if err := r.sender.remember(summary); err != nil {
		return nil, err
	}
	expect := summary.Expect()
	expect.Copied = r.sender.Snapshot
	source, err := json.Marshal(expect)
	if err != nil {
		return nil, fmt.Errorf("encode what the source looks like: %w", err)
	}
	r.meter.begin("trying what the target can keep", 0, 0)
	var answer exchange.ProbeAnswer
	if err := conn.Do(stream.Call{Op: exchange.Probe, Result: &answer}); err != nil {
		return nil, err
	}
	room, err := r.sender.Scratch.Room()
	if err != nil {
		return nil, err
	}
	prepared := &movecontrol.Prepared{
		Bytes: int64(summary.Allocated), Entries: int64(summary.Entries), Inodes: int64(summary.Inodes), Source: source,
	}
	for _, refusal := range tree.Refusals(summary, answer.Abilities, &answer.There) {
		prepared.Refusals = append(prepared.Refusals, movecontrol.Refusal{Path: refusal.Path, Reason: refusal.Reason})
	}
	here, there := scratch.Needed(names, summary.Hashes)
	for _, why := range []string{
		scratch.Refusal("the mover at the source", here, room), scratch.Refusal("the mover at the target", there, answer.Scratch),
	} {
		if why != "" {
			prepared.Refusals = append(prepared.Refusals, movecontrol.Refusal{Reason: why})
		}
	}
	unusable, err := r.storeRefusals(ctx, conn)
	prepared.Refusals = append(prepared.Refusals, unusable...)
	return prepared, err
}

// forgetNames removes what scanNames wrote, and says how much room it took.
func (r *run) forgetNames() (size uint64, err error) {
	info, err := os.Stat(r.sender.namesManifest())
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	if err == nil {
		size, err = uint64(info.Size()), os.Remove(r.sender.namesManifest())
	}
	if err != nil {
		return 0, fmt.Errorf("forget the names of the source: %w", err)
	}
	return size, nil
}
