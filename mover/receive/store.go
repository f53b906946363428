package receive

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/lodestone-storage/lodestone/mover/exchange"
	"github.com/lodestone-storage/lodestone/mover/restic"
	"github.com/lodestone-storage/lodestone/mover/stream"
)

var errNoStore = errors.New("the sender asked for a repository, and this receiver was told of none; start the move again")

// reach asks whether the repository can be used here.
func (r *Receiver) reach(ctx context.Context, in *stream.Incoming) (any, error) {
	var asked exchange.ReachAsked
	if err := json.Unmarshal(in.Body, &asked); err != nil {
		return nil, fmt.Errorf("decode what to reach: %w", err)
	}
	if r.Store == nil {
		return nil, errNoStore
	}
	var unusable *restic.Error
	err := r.Store.Reach(ctx, asked.Part)
	if errors.As(err, &unusable) {
		return exchange.ReachAnswer{Unusable: unusable.Sentence}, nil
	}
	return exchange.ReachAnswer{}, err
}

// fetch writes what the sender has saved in the repository.
func (r *Receiver) fetch(ctx context.Context, in *stream.Incoming) (any, error) {
	var asked exchange.FetchAsked
	if err := json.Unmarshal(in.Body, &asked); err != nil {
		return nil, fmt.Errorf("decode what to fetch: %w", err)
	}
	if r.Store == nil || r.Block {
		return nil, errNoStore
	}
	progress := &fetching{in: in, every: time.Second}
	working, stop := context.WithCancel(ctx)
	var telling sync.WaitGroup
	telling.Go(func() { progress.tell(working) })
	saved := restic.Saved{Snapshot: asked.Snapshot, Part: asked.Part}
	err := r.Store.Fetch(ctx, r.Volume, saved, asked.BytesPerSecond, restic.Told{Done: progress.done, Waits: progress.waits})
	stop()
	telling.Wait()
	var unusable *restic.Error
	var partial *restic.Partial
	switch {
	case errors.As(err, &unusable):
		return exchange.FetchAnswer{Unusable: unusable.Sentence}, nil
	case errors.As(err, &partial):
		return exchange.FetchAnswer{Left: partial.Complaints}, nil
	case errors.Is(err, restic.ErrFull):
		return exchange.FetchAnswer{Full: err.Error()}, nil
	case err != nil:
		return nil, err
	}
	return exchange.FetchAnswer{}, nil
}

// fetching tells the sender how far a fetch is, also when nothing happens: a connection
// that is lost is noticed by that.
type fetching struct {
	in    *stream.Incoming
	every time.Duration
	mutex sync.Mutex
	now   exchange.FetchProgress
}

func (f *fetching) done(bytes int64) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	if bytes > f.now.Bytes {
		f.now = exchange.FetchProgress{Bytes: bytes}
	}
}

func (f *fetching) waits(why string) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	f.now.Waits = why
}

func (f *fetching) tell(ctx context.Context) {
	ticker := time.NewTicker(f.every)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		f.mutex.Lock()
		now := f.now
		f.mutex.Unlock()
		// A lost connection ends the fetch's context.
		_ = f.in.Progress(now)
	}
}
