// Package agent tests the remote agent on a real control plane: what home
// clusters get, what becomes of their pods, and what they may not do.
package agent

import (
	"context"
	"testing"

	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
)

// bed is shared by the tests of this package; each uses home clusters of its own.
// Without control planes it is empty, so that tests get as far as to skip.
var (
	bed     = &fabric.Fabric{}
	program *fabric.Program
)

func TestMain(m *testing.M) {
	testbed.Main(m, func(ctx context.Context) (err error) {
		if bed, err = fabric.Start(ctx, fabric.Options{ControllerManagerQPS: 500, Agent: true}); err != nil {
			return err
		}
		program, err = bed.StartAgent(ctx, quick)
		return err
	})
}
