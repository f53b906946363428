package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/lodestone-storage/lodestone/e2e/measure"
	"github.com/lodestone-storage/lodestone/e2e/mover/harness"
	"github.com/lodestone-storage/lodestone/e2e/mover/samples"
	"github.com/lodestone-storage/lodestone/e2e/store"
	"github.com/lodestone-storage/lodestone/pkg/moverapi"
)

// ours is a move through the mover.
type ours struct {
	*harness.Move
	expect json.RawMessage
	tasks  int
	// sent is how many bytes the tasks have sent.
	sent int64
}

// start starts both movers between the source and an empty target; through an object
// store, unless that is nil.
func (b *bench) start(ctx context.Context, source string, through *moverapi.Ticket) (*ours, error) {
	target, err := b.fresh("target")
	if err != nil {
		return nil, err
	}
	return b.between(ctx, source, target, through)
}

// between is start for a target that may have something.
func (b *bench) between(ctx context.Context, source, target string, through *moverapi.Ticket) (*ours, error) {
	folder, err := b.fresh("movers")
	if err != nil {
		return nil, err
	}
	started, err := harness.Start(ctx, harness.Setup{Program: b.mover, Folder: folder, Source: source, Target: target, Store: through,
		Direct: through == nil})
	return &ours{Move: started}, err
}

// do does tasks one after another and returns how long they took together.
func (o *ours) do(ctx context.Context, kinds ...moverapi.Kind) (time.Duration, error) {
	began := time.Now()
	for _, kind := range kinds {
		o.tasks++
		status, err := o.Do(ctx, moverapi.Task{ID: fmt.Sprintf("%s-%d", kind, o.tasks), Kind: kind, Expect: o.expect})
		if err != nil {
			return 0, fmt.Errorf("%w\n%s", err, o.Log())
		}
		o.sent += status.Progress.BytesSent
		if status.Prepared != nil {
			o.expect = status.Prepared.Source
		}
		if status.Verified != nil && !status.Verified.Equal {
			return 0, errors.New("both ends differ after a move")
		}
	}
	return time.Since(began), nil
}

// round is what one measure of the whole move, and of its yardsticks, took.
type round struct {
	copied, all, rsync, restic time.Duration
	sender, receiver           int64
}

// whole measures the whole move of the volume some times.
func (b *bench) whole(ctx context.Context) ([]measure.Result, error) {
	if err := b.volume(ctx); err != nil {
		return nil, err
	}
	var copied, all, rsync, restic []time.Duration
	var sender, receiver int64
	for i := range b.rounds {
		r, err := b.once(ctx)
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(os.Stderr, "whole move, round %d of %d: %v, with Verify %v; rsync %v; restic %v\n", i+1, b.rounds,
			r.copied.Round(time.Millisecond), r.all.Round(time.Millisecond), r.rsync.Round(time.Millisecond), r.restic.Round(time.Millisecond))
		copied, all, rsync, restic = append(copied, r.copied), append(all, r.all), append(rsync, r.rsync), append(restic, r.restic)
		sender, receiver = max(sender, r.sender), max(receiver, r.receiver)
	}
	return []measure.Result{
		measure.Figure("whole move, with Verify", measure.Median(all).Seconds(), "s"),
		measure.Figure("rsync to a daemon without TLS", measure.Median(rsync).Seconds(), "s"),
		measure.Figure("restic backup and restore", measure.Median(restic).Seconds(), "s"),
		measure.AtMost("whole move without Verify, to rsync", measure.MedianRatio(copied, rsync), 1.25, "x"),
		measure.AtMost("whole move with Verify, to rsync", measure.MedianRatio(all, rsync), 1.6, "x"),
		measure.AtMost("whole move with Verify, to restic", measure.MedianRatio(all, restic), 0.5, "x"),
		measure.AtMost("peak memory of the sending end", float64(sender)/(1<<20), 64, "MiB"),
		measure.AtMost("peak memory of the receiving end", float64(receiver)/(1<<20), 64, "MiB"),
	}, nil
}

// once measures the whole move of the volume and its yardsticks once.
func (b *bench) once(ctx context.Context) (r round, err error) {
	target, err := b.fresh("target")
	if err != nil {
		return r, err
	}
	if r.rsync, err = b.daemon(ctx, target); err != nil {
		return r, err
	}
	o, err := b.start(ctx, b.path("source"), nil)
	if err != nil {
		return r, err
	}
	defer o.Stop()
	stop := b.watch(o)
	r.copied, err = o.do(ctx, moverapi.Prepare, moverapi.Final)
	var verified time.Duration
	if err == nil {
		verified, err = o.do(ctx, moverapi.Verify)
	}
	r.all = r.copied + verified
	r.sender, r.receiver = stop()
	if err != nil {
		return r, err
	}
	o.Stop()
	if target, err = b.fresh("target"); err != nil {
		return r, err
	}
	r.restic, err = b.restic(ctx, target, true)
	return r, err
}

// watch looks at the memory of both ends until it is stopped, and then tells the
// peak of each in bytes: shared pages count in part.
func (b *bench) watch(o *ours) (stop func() (sender, receiver int64)) {
	sender, receiver := o.Processes()
	var peaks [2]int64
	done := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() {
		for {
			for i, pid := range []int{sender, receiver} {
				peaks[i] = max(peaks[i], memory(pid))
			}
			select {
			case <-done:
				return
			case <-time.After(200 * time.Millisecond):
			}
		}
	})
	return func() (int64, int64) {
		close(done)
		watching.Wait()
		return peaks[0], peaks[1]
	}
}

// memory is the proportional set size of a process and all below it, in bytes.
func memory(pid int) (total int64) {
	rollup, _ := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	for line := range strings.Lines(string(rollup)) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] == "Pss:" {
			kilobytes, _ := strconv.ParseInt(fields[1], 10, 64)
			total += kilobytes << 10
		}
	}
	tasks, _ := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	for _, task := range tasks {
		children, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/children", pid, task.Name()))
		for _, child := range strings.Fields(string(children)) {
			if id, err := strconv.Atoi(child); err == nil {
				total += memory(id)
			}
		}
	}
	return total
}

// through measures the whole move of the volume through an object store on this machine.
func (b *bench) through(ctx context.Context) ([]measure.Result, error) {
	if err := b.volume(ctx); err != nil {
		return nil, err
	}
	if err := b.programs.First(); err != nil {
		return nil, err
	}
	folder, err := b.fresh("store")
	if err != nil {
		return nil, err
	}
	server, err := store.Start(ctx, b.programs.Server, folder)
	if err != nil {
		return nil, err
	}
	defer server.Stop()
	repository, err := moverapi.ParseRepository(server.Secret())
	if err != nil {
		return nil, err
	}
	ticket := repository.For("move", "word")
	o, err := b.start(ctx, b.path("source"), &ticket)
	if err != nil {
		return nil, err
	}
	defer o.Stop()
	stop := b.watch(o)
	prepared, err := o.do(ctx, moverapi.Prepare)
	var copied, verified time.Duration
	if err == nil {
		copied, err = o.do(ctx, moverapi.Final)
	}
	if err == nil {
		verified, err = o.do(ctx, moverapi.Verify)
	}
	sender, receiver := stop()
	if err != nil {
		return nil, err
	}
	return []measure.Result{
		measure.Figure("whole move through an object store, with Verify", (prepared + copied + verified).Seconds(), "s"),
		measure.Figure("Prepare of that", prepared.Seconds(), "s"),
		measure.Figure("what of that went from mover to mover", float64(o.Wire.Bytes())/(1<<20), "MiB"),
		measure.AtMost("peak memory of the sending end with an object store", float64(sender)/(1<<20), 512, "MiB"),
		measure.AtMost("peak memory of the receiving end with an object store", float64(receiver)/(1<<20), 512, "MiB"),
	}, nil
}

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
		if err := samples.Large(fmt.Sprintf("%s/%d", source, i), b.size, uint64(i)); err != nil {
			return nil, nil, err
		}
	}
	o, err := b.start(ctx, source, nil)
	if err != nil {
		return nil, nil, err
	}
	defer o.Stop()
	// What the file system has just been given must have settled by the last pass.
	if _, err := o.do(ctx, moverapi.Prepare, moverapi.Pass, moverapi.Pass); err != nil {
		return nil, nil, err
	}
	if beside {
		if _, err := b.restored(ctx, true); err != nil {
			return nil, nil, err
		}
	}
	for round := range b.rounds {
		if _, err := samples.ChangeLarge(source+"/0", b.size, uint64(round)); err != nil {
			return nil, nil, err
		}
		seconds, err := o.do(ctx, moverapi.Final, moverapi.Verify)
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

// backFiles is how many small files there are at most beside the large one in a volume that goes back.
const backFiles = 10_000

// back measures what a move back sends into the copy that the move there has kept, to what the move there has sent, after a
// hundredth of the pages of a large file has changed, and a hundredth of the small files beside it.
func (b *bench) back(ctx context.Context) ([]measure.Result, error) {
	kept, err := b.fresh("source")
	if err != nil {
		return nil, err
	}
	files := min(b.files, backFiles)
	if err := samples.Small(ctx, b.path("source"), files); err != nil {
		return nil, err
	}
	if err := samples.Large(b.path("source", "large"), b.size, 1); err != nil {
		return nil, err
	}
	there, err := b.start(ctx, kept, nil)
	if err != nil {
		return nil, err
	}
	defer there.Stop()
	whole, err := there.do(ctx, moverapi.Prepare, moverapi.Final, moverapi.Verify)
	if err != nil {
		return nil, err
	}
	there.Stop()
	if _, err := samples.ChangeLarge(b.path("target", "large"), b.size, 1); err != nil {
		return nil, err
	}
	if err := samples.ChangeSmall(b.path("target"), files, 0); err != nil {
		return nil, err
	}
	again, err := b.between(ctx, b.path("target"), kept, nil)
	if err != nil {
		return nil, err
	}
	defer again.Stop()
	took, err := again.do(ctx, moverapi.Prepare, moverapi.Final, moverapi.Verify)
	if err != nil {
		return nil, err
	}
	return []measure.Result{
		measure.Figure("whole move, sent", float64(there.sent)/(1<<20), "MiB"),
		measure.Figure("move back into the kept copy, sent", float64(again.sent)/(1<<20), "MiB"),
		measure.AtMost("bytes of a move back into the kept copy, to the whole move", float64(again.sent)/float64(there.sent), 0.1, "x"),
		measure.Figure("move back into the kept copy, to the whole move", took.Seconds()/whole.Seconds(), "x"),
	}, nil
}

// restored has restic do a backup, the first or a later one, and restore it.
func (b *bench) restored(ctx context.Context, first bool) (time.Duration, error) {
	took, err := b.restic(ctx, b.path("restored"), first)
	if err != nil {
		return 0, err
	}
	return took, os.RemoveAll(b.path("restored"))
}
