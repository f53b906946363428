package sandbox

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestWhatAProcessHasDoneIsReadAlsoIfItsNameIsOdd(t *testing.T) {
	const counts = "rchar: 100\nwchar: 20\nsyscr: 3\nsyscw: 4\nread_bytes: 5\nwrite_bytes: 6\ncancelled_write_bytes: 0\n"
	used, err := parseUsage([]byte(counts), []byte("7 (a) R 1) S 1 7 7 0 -1 4194304 90 0 0 0 150 50 9 9 20 0 1 0 55 1 2\n"))
	require.NoError(t, err)
	assert.Equal(t, Usage{Bytes: 120, CPU: 2 * time.Second}, used)
	for name, row := range map[string]struct{ counts, stat string }{
		"nothing":       {},
		"no counts":     {stat: "7 (a) S 1 7 7 0 -1 4194304 90 0 0 0 150 50 9"},
		"too few times": {counts: counts, stat: "7 (a) S 1 7 7 0 -1 4194304 90 0 0 0 150"},
		"no numbers":    {counts: "rchar: a\nwchar: 1\n", stat: "7 (a) S 1 7 7 0 -1 4194304 90 0 0 0 150 50 9"},
	} {
		_, err := parseUsage([]byte(row.counts), []byte(row.stat))
		assert.Error(t, err, name)
	}
}

func TestAProcessThatReadsHasMovedBytes(t *testing.T) {
	before, err := UsageOf(os.Getpid())
	require.NoError(t, err)
	from, err := os.Open("/dev/zero")
	require.NoError(t, err)
	defer from.Close()
	_, err = from.Read(make([]byte, 100_000))
	require.NoError(t, err)
	after, err := UsageOf(os.Getpid())
	require.NoError(t, err)
	assert.GreaterOrEqual(t, after.Bytes-before.Bytes, int64(100_000))
	assert.GreaterOrEqual(t, after.CPU, before.CPU)
}
