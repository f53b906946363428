package restic

import (
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/lodestone-storage/lodestone/mover/sandbox"
	"github.com/lodestone-storage/lodestone/pkg/moverapi"
)

// TestMain lets the test's program be the mover that confines restic, and restic itself,
// which does what PLAYS says.
func TestMain(m *testing.M) {
	switch {
	case len(os.Args) > 1 && os.Args[1] == sandbox.ConfineSubcommand:
		fmt.Fprintln(os.Stderr, sandbox.RunConfineSubcommand(os.Args[2:]))
		os.Exit(1)
	case os.Getenv("PLAYS") != "":
		play(os.Getenv("PLAYS"))
		return
	}
	os.Exit(m.Run())
}

const (
	patience = 2 * time.Second
	// played is the duration of runs that make progress: longer than restic may do nothing.
	played = 2 * patience
)

// play is restic that goes on in one way or another for a while, or hangs.
func play(part string) {
	began := time.Now()
	for step := 1; time.Since(began) < played || part == "hangs" || part == "repeats itself"; step++ {
		switch part {
		case "hangs":
			if step == 1 {
				fmt.Printf(`{"message_type":"status","bytes_done":%d}`+"\n", os.Getpid())
			}
		case "repeats itself":
			fmt.Printf(`{"message_type":"status","seconds_elapsed":%d,"bytes_done":%d}`+"\n", step, os.Getpid())
		case "says how far it is":
			fmt.Printf(`{"message_type":"status","bytes_done":%d}`+"\n", step)
		case "tries again":
			fmt.Fprintf(os.Stderr, "Save(<data/1>) returned error, retrying after %ds: connection refused\n", step)
		case "moves bytes":
			_ = os.WriteFile(os.DevNull, make([]byte, idleBytes/8), 0)
		}
		time.Sleep(patience / 40)
	}
}

func TestResticThatDoesNothingIsStoppedAndOneThatIsSlowIsNot(t *testing.T) {
	self, err := os.Executable()
	require.NoError(t, err)
	if _, err := sandbox.UsageOf(os.Getpid()); err != nil {
		t.Skip(err)
	}
	programs := t.TempDir()
	require.NoError(t, os.Symlink(self, filepath.Join(programs, "restic")))
	t.Setenv("PATH", programs)
	for part, hangs := range map[string]bool{
		"hangs": true, "repeats itself": true,
		"says how far it is": false, "tries again": false, "moves bytes": false,
	} {
		t.Run(part, func(t *testing.T) {
			t.Parallel()
			s := &Store{
				Ticket: moverapi.Ticket{Repository: moverapi.Repository{Credentials: map[string]string{"PLAYS": part}}},
				Self:   self, Temporary: t.TempDir(), maxIdle: patience,
			}
			var pid atomic.Int64
			began := time.Now()
			err := s.run(t.Context(), call{operation: prune, output: &Output{Progress: pid.Store}})
			if !hangs {
				require.NoError(t, err)
				assert.GreaterOrEqual(t, time.Since(began), played)
				return
			}
			var unusable *Error
			require.ErrorAs(t, err, &unusable, "the move goes on as after any failure of the repository")
			assert.Contains(t, unusable.Sentence, "restic did nothing for 2s and was stopped: ")
			require.NotZero(t, pid.Load())
			assert.ErrorIs(t, unix.Kill(int(pid.Load()), 0), unix.ESRCH, "it still runs")
		})
	}
}

func TestSilenceIsWhenNothingHappensThatIsMoreThanWaiting(t *testing.T) {
	busy := activity{sandbox.Usage{Bytes: 1 << 30, CPU: time.Minute}, 7}
	for name, row := range map[string]struct {
		now    activity
		passed time.Duration
		want   time.Duration
	}{
		"nothing": {busy, 5 * time.Second, 65 * time.Second},
		"timers of its runtime": {activity{sandbox.Usage{Bytes: busy.Bytes + idleBytes - 1, CPU: busy.CPU + idleCPU - 1}, 7},
			5 * time.Second, 65 * time.Second},
		"a pause of the node":           {busy, time.Hour, 70 * time.Second},
		"bytes moved":                   {activity{sandbox.Usage{Bytes: busy.Bytes + idleBytes, CPU: busy.CPU}, 7}, 5 * time.Second, 0},
		"it computes":                   {activity{sandbox.Usage{Bytes: busy.Bytes, CPU: busy.CPU + idleCPU}, 7}, 5 * time.Second, 0},
		"it says something new":         {activity{busy.Usage, 8}, 5 * time.Second, 0},
		"it says something new, paused": {activity{busy.Usage, 8}, time.Hour, 0},
	} {
		t.Run(name, func(t *testing.T) {
			still := idleTimer{last: busy, idle: time.Minute}
			assert.Equal(t, row.want, still.update(row.now, row.passed, 5*time.Second))
		})
	}
}

func TestALimitOfBandwidthIsNoSilence(t *testing.T) {
	const lowest = 1 << 10 // in bytes a second: see Store.arguments
	var still idleTimer
	for seconds := time.Duration(0); seconds < time.Hour; seconds += checkInterval {
		now := activity{Usage: sandbox.Usage{Bytes: int64(seconds/time.Second) * lowest}}
		require.Less(t, still.update(now, checkInterval, checkInterval), defaultMaxIdle)
	}
}

func TestRepeatedWordsAreNoNews(t *testing.T) {
	output := Output{}
	assert.True(t, output.stdoutLine([]byte(`{"message_type":"status","seconds_elapsed":1,"bytes_done":5}`)))
	assert.False(t, output.stdoutLine([]byte(`{"message_type":"status","seconds_elapsed":2,"bytes_done":5}`)))
	assert.True(t, output.stdoutLine([]byte(`{"message_type":"status","seconds_elapsed":3,"bytes_done":5,"files_done":1}`)))
	assert.True(t, output.stdoutLine([]byte(`{"message_type":"summary","snapshot_id":"abc"}`)))
	assert.False(t, output.stdoutLine([]byte("no JSON")))
	assert.True(t, output.stderrLine([]byte("retrying after 1s: no route to host")))
	assert.True(t, output.stderrLine([]byte("retrying after 1s: no route to host")), "each try is")
	assert.False(t, output.stderrLine(nil))
}
