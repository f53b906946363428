package app_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lodestone-storage/lodestone/mover/harness"
	"github.com/lodestone-storage/lodestone/pkg/movecontrol"
)

// cutAfterEach has something done again and again, and the connection cut after the first
// message, the second and so on, until that is more than there are.
func cutAfterEach(t *testing.T, do func(n int) *harness.Wire) {
	t.Helper()
	n := 1
	for do(n).Cuts() > 0 {
		n++
	}
	t.Logf("%d messages", n-1)
	require.Greater(t, n, 8)
}

// Who waits for an answer that was lost must notice, whatever is going on: between most
// messages nothing is under way by which it would. The wire dials: a sender that dials pauses
// longer after each cut.
func TestAConnectionIsCutAfterEachMessageOfACopyAndTheMoveGoesOn(t *testing.T) {
	t.Parallel()
	for _, kinds := range [][]movecontrol.Kind{{movecontrol.Pass}, {movecontrol.Final, movecontrol.Verify}} {
		t.Run(string(kinds[0]), func(t *testing.T) {
			t.Parallel()
			m := begin(t, some(t), true)
			m.do(movecontrol.Task{Kind: movecontrol.Pass})
			large := filepath.Join(m.Source, "data", "large")
			cutAfterEach(t, func(n int) *harness.Wire {
				flip(t, large)
				write(t, m.Source, "small", random(t, 1000+n))
				write(t, m.Source, fmt.Sprintf("new/%d", n), random(t, 100))
				require.NoError(t, os.RemoveAll(filepath.Join(m.Source, fmt.Sprintf("new/%d", n-2))))
				m.Wire.CutAfterPieces(n)
				for _, kind := range kinds {
					m.do(movecontrol.Task{Kind: kind})
				}
				return m.Wire
			})
			m.do(movecontrol.Task{Kind: movecontrol.Final})
			m.verified(true)
		})
	}
}

func TestAConnectionIsCutAfterEachMessageOfAFirstCopyAndTheMoveGoesOn(t *testing.T) {
	t.Parallel()
	source := t.TempDir()
	write(t, source, "small", random(t, 3000))
	write(t, source, "a/b/deep", random(t, 70_000))
	write(t, source, "large", random(t, 5<<20))
	block := device(t, append(random(t, 1<<20), make([]byte, 1<<20)...))
	for name, start := range map[string]func(t *testing.T) *move{
		"files": func(t *testing.T) *move { return starts(t, source, true) },
		"block": func(t *testing.T) *move { return beginBlock(t, block, device(t, make([]byte, 2<<20))) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cutAfterEach(t, func(n int) *harness.Wire {
				m := start(t)
				m.Wire.CutAfterPieces(n)
				m.expect = m.do(movecontrol.Task{Kind: movecontrol.Prepare}).Prepared.Source
				m.do(movecontrol.Task{Kind: movecontrol.Final})
				m.verified(false)
				m.Stop()
				return m.Wire
			})
		})
	}
}
