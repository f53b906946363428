package send

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/lodestone-storage/lodestone/mover/exchange"
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
	if err := r.sender.remember(summary); err != nil {
		return nil, err
	}
	source, err := json.Marshal(summary.Expect())
	if err != nil {
		return nil, fmt.Errorf("encode what the source looks like: %w", err)
	}
	r.meter.begin("trying what the target can keep", 0, 0)
	var answer exchange.ProbeAnswer
	if err := conn.Do(stream.Call{Op: exchange.Probe, Result: &answer}); err != nil {
		return nil, err
	}
	prepared := &movecontrol.Prepared{
		Bytes: int64(summary.Allocated), Entries: int64(summary.Entries), Inodes: int64(summary.Inodes), Source: source,
	}
	for _, refusal := range tree.Refusals(summary, answer.Abilities, &answer.There) {
		prepared.Refusals = append(prepared.Refusals, movecontrol.Refusal{Path: refusal.Path, Reason: refusal.Reason})
	}
	return prepared, nil
}
