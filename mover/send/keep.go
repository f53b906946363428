package send

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"k8s.io/klog/v2"

	"github.com/lodestone-storage/lodestone/mover/exchange"
	"github.com/lodestone-storage/lodestone/mover/restic"
	"github.com/lodestone-storage/lodestone/mover/stream"
	"github.com/lodestone-storage/lodestone/pkg/movecontrol"
)

// clearTimeout is how long the removal of what was saved may take.
const clearTimeout = 5 * time.Minute

// clear removes what was saved in the store, while others go on and after the task.
func (s *Sender) clear(ctx context.Context) {
	logger := klog.FromContext(ctx)
	s.clearing.Go(func() {
		ctx, stop := context.WithTimeout(s.left, clearTimeout)
		defer stop()
		if err := s.Store.Clear(ctx); err != nil && s.left.Err() == nil {
			logger.Info("What was saved in the repository is removed later", "reason", err.Error())
		}
	})
}

// waits says what keeps the store from going on.
func (r *run) waits(why string) { r.meter.step("waiting for " + r.sender.Store.Noun() + ": " + why) }

// outlast waits, after a failure of the store, until that can be used again. It is not
// for the movers to give up: the controller knows whether pods wait.
func (r *run) outlast(ctx context.Context, err error) error {
	pause := time.Second
	for {
		var unusable *restic.Error
		if !errors.As(err, &unusable) || ctx.Err() != nil {
			return err
		}
		klog.FromContext(ctx).Info("The repository cannot be used, and is tried again", "reason", unusable.Sentence)
		r.waits(unusable.Sentence)
		if r.failures++; r.failures > 1 {
			pause = min(pause*2, longestPause)
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return ctx.Err()
		}
		if err = r.sender.Store.Reopen(ctx, r.failures > 1); err == nil {
			return errLookAgain
		}
	}
}

// storeRefusals says why the store cannot be used at the ends.
func (r *run) storeRefusals(ctx context.Context, conn *stream.Conn) (refusals []movecontrol.Refusal, err error) {
	if r.sender.Store == nil || r.sender.Block {
		return nil, nil
	}
	store := r.sender.Store
	r.meter.begin("trying "+store.Noun(), 0, 0)
	refuse := func(end, why string) []movecontrol.Refusal {
		return []movecontrol.Refusal{{Reason: fmt.Sprintf("the mover at the %s cannot use %s: %s", end, strings.TrimSpace(store.Noun()+" "+store.Host()), why)}}
	}
	var unusable *restic.Error
	if err := store.Open(ctx, true); errors.As(err, &unusable) {
		return refuse("source", unusable.Sentence), nil
	} else if err != nil {
		return nil, err
	}
	var answer exchange.ReachAnswer
	if err := conn.Do(stream.Call{Op: exchange.Reach, Body: exchange.ReachAsked{Part: store.Part()}, Result: &answer}); err != nil {
		return nil, err
	}
	if answer.Unusable != "" {
		return refuse("target", answer.Unusable), nil
	}
	return nil, nil
}

// Leave removes what the move has in the store, at the end of this mover, and when no task
// runs any more; after an error something may be left there.
func (s *Sender) Leave(ctx context.Context) error {
	if s.Store == nil {
		return nil
	}
	s.leave()
	s.clearing.Wait()
	return s.Store.Remove(ctx)
}
