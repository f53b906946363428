package exchange

import (
	"context"
	"errors"
	"os"

	"github.com/lodestone-storage/lodestone/mover/tree"
)

// ScanVolume scans a volume into the manifest at options.Manifest, which is the
// earlier one too, unless full is set or it is that of another directory, or torn.
func ScanVolume(ctx context.Context, options tree.Options, full bool) (tree.Summary, error) {
	if previous, err := tree.Open(options.Manifest); err == nil {
		before := previous.Summary()
		_ = previous.Close()
		same := before.Expect()
		same.AllowFewer = true
		if !full {
			incremental := options
			incremental.Previous = options.Manifest
			if incremental.Expect == nil {
				incremental.Expect = same
			}
			summary, err := tree.Scan(ctx, incremental)
			var collapsed *tree.CollapseError
			if err == nil || ctx.Err() != nil || options.Expect != nil || !errors.As(err, &collapsed) {
				return summary, err
			}
		}
	} else if !errors.Is(err, os.ErrNotExist) {
		// It is made anew; a torn one is no reason to fail.
		if err := os.Remove(options.Manifest); err != nil {
			return tree.Summary{}, err
		}
	}
	options.Previous = ""
	return tree.Scan(ctx, options)
}
