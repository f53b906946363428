package main

import (
	"context"
	"time"

	"github.com/lodestone-storage/lodestone/e2e/measure"
	"github.com/lodestone-storage/lodestone/e2e/store"
	"github.com/lodestone-storage/lodestone/pkg/movecontrol"
	"github.com/lodestone-storage/lodestone/pkg/moverepository"
)

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
	repository, err := moverepository.Parse(server.Secret())
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
	prepared, err := o.do(ctx, movecontrol.Prepare)
	var copied, verified time.Duration
	if err == nil {
		copied, err = o.do(ctx, movecontrol.Final)
	}
	if err == nil {
		verified, err = o.do(ctx, movecontrol.Verify)
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
