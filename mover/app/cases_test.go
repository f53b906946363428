package app_test

import (
	"errors"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lodestone-storage/lodestone/mover/cases"
	"github.com/lodestone-storage/lodestone/mover/cases/disk"
	"github.com/lodestone-storage/lodestone/mover/harness"
)

// TestEveryCaseEndsAsItIsDocumented is `make move-cases` of the mover alone.
func TestEveryCaseEndsAsItIsDocumented(t *testing.T) {
	harness.Require(t)
	program, err := os.Executable()
	require.NoError(t, err)
	for _, c := range cases.All(cases.Scale{FileBytes: 32 << 20, Files: 500}) {
		t.Run(c.Number+" "+c.Name, func(t *testing.T) {
			result, err := cases.Run(t.Context(), c, harness.Engine{Program: program}, t.TempDir())
			if errors.Is(err, disk.ErrNone) {
				t.Skip(err)
			}
			require.NoError(t, err)
			assert.NoError(t, harness.Check(c, result))
		})
	}
}
