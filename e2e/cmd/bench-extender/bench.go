package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/lodestone-storage/lodestone/e2e/largecluster"
)

// bench is what all measures share.
type bench struct {
	directory string
	extender  string
	client    *client
	plain     *yardstick

	many, few   *program
	kubeconfigs int
}

// newBench starts what all measures need. The extender is built unless its path is
// given.
func newBench(ctx context.Context, extender string) (*bench, error) {
	directory, err := os.MkdirTemp("", "bench-extender-")
	if err != nil {
		return nil, fmt.Errorf("make a directory: %w", err)
	}
	b := &bench{directory: directory, extender: extender}
	if extender == "" {
		b.extender = filepath.Join(directory, "lodestone-extender")
		if err = largecluster.BuildExtender(ctx, b.extender); err != nil {
			b.close()
			return nil, err
		}
	}
	if b.client, err = startClient(ctx); err != nil {
		b.close()
		return nil, err
	}
	if b.plain, err = startYardstick(ctx); err != nil {
		b.close()
		return nil, err
	}
	return b, nil
}

// withMany returns the program that knows many claims; it is started once.
func (b *bench) withMany(ctx context.Context) (_ *program, err error) {
	if b.many == nil {
		b.many, err = b.startProgram(ctx, manyClaims)
	}
	return b.many, err
}

// withFew is withMany for few claims.
func (b *bench) withFew(ctx context.Context) (_ *program, err error) {
	if b.few == nil {
		b.few, err = b.startProgram(ctx, fewClaims)
	}
	return b.few, err
}

func (b *bench) close() {
	for _, p := range []*program{b.many, b.few} {
		if p != nil {
			p.Stop()
		}
	}
	if b.client != nil {
		b.client.Stop()
	}
	if b.plain != nil {
		b.plain.Stop()
	}
	_ = os.RemoveAll(b.directory)
}
