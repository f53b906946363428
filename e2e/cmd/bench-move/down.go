package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/lodestone-storage/lodestone/e2e/measure"
	"github.com/lodestone-storage/lodestone/pkg/movecontrol"
)

// down measures Final and Verify after a hundredth of one large file has changed, in a
// volume of that file, and in one of ten such, some times.
func (b *bench) down(ctx context.Context) ([]measure.Result, error) {
	one, restic, err := b.downIn(ctx, 1, true)
	if err != nil {
		return nil, err
	}
	ten, _, err := b.downIn(ctx, 10, false)
	if err != nil {
		return nil, err
	}
	return []measure.Result{
		measure.Figure("application down, one large file", measure.Median(one).Seconds(), "s"),
		measure.Figure("restic, one large file", measure.Median(restic).Seconds(), "s"),
		measure.AtMost("application down, to restic", measure.MedianRatio(one, restic), 0.3, "x"),
		measure.AtMost("application down in ten times the volume", measure.Median(ten).Seconds()/measure.Median(one).Seconds(), 1.2, "x"),
	}, nil
}

// downIn measures that in a volume of some large files, and if beside is true what restic
// takes for the same change.
func (b *bench) downIn(ctx context.Context, large int, beside bool) (took, restic []time.Duration, err error) {
	source, err := b.fresh("source")
	if err != nil {
		return nil, nil, err
	}
	for i := range large {
		if err := database(fmt.Sprintf("%s/%d", source, i), b.size, uint64(i)); err != nil {
			return nil, nil, err
		}
	}
	o, err := b.start(ctx, source, nil)
	if err != nil {
		return nil, nil, err
	}
	defer o.Stop()
	// What the file system has just been given must have settled by the last pass.
	if _, err := o.do(ctx, movecontrol.Prepare, movecontrol.Pass, movecontrol.Pass); err != nil {
		return nil, nil, err
	}
	if beside {
		if _, err := b.restored(ctx, true); err != nil {
			return nil, nil, err
		}
	}
	for round := range b.rounds {
		if err := dirty(source+"/0", b.size, uint64(round)); err != nil {
			return nil, nil, err
		}
		seconds, err := o.do(ctx, movecontrol.Final, movecontrol.Verify)
		if err != nil {
			return nil, nil, err
		}
		took = append(took, seconds)
		if !beside {
			continue
		}
		seconds, err = b.restored(ctx, false)
		if err != nil {
			return nil, nil, err
		}
		restic = append(restic, seconds)
	}
	return took, restic, nil
}

// restored has restic do a backup, the first or a later one, and restore it.
func (b *bench) restored(ctx context.Context, first bool) (time.Duration, error) {
	took, err := b.restic(ctx, b.path("restored"), first)
	if err != nil {
		return 0, err
	}
	return took, os.RemoveAll(b.path("restored"))
}
