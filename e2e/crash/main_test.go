package crash

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/lodestone-storage/lodestone/e2e/testbed"
)

// world is nil without control planes, so that tests get as far as to skip.
var world *World

func TestMain(m *testing.M) {
	testbed.Main(m, func(ctx context.Context) (err error) {
		world, err = NewWorld(ctx, func(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) })
		return err
	})
}
