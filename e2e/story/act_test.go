package story

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lodestone-storage/lodestone/e2e/fabric"
)

func newStory(terse bool) (*story, *bytes.Buffer) {
	out := &bytes.Buffer{}
	return &story{console: newConsole(out, terse), ledger: newLedger(), patience: 2 * time.Second, consistently: 120 * time.Millisecond}, out
}

func always(err error) probe { return func(context.Context) error { return err } }

// change returns a probe that gives one answer n times and then another.
func change(n int, before, after error) probe {
	calls := 0
	return func(context.Context) error {
		if calls++; calls <= n {
			return before
		}
		return after
	}
}

func TestChecksAreCountedAndSayWhatIsWrong(t *testing.T) {
	wrong := errors.New("it is blue")
	for name, row := range map[string]struct {
		check func(*story) act
		says  string
		fails bool
	}{
		"a wait for what is so already": {check: func(s *story) act { return s.until("red", always(nil)) }, says: "ok: red"},
		"a wait for what comes true": {check: func(s *story) act { return s.until("red", change(2, wrong, nil)) },
			says: "ok: red"},
		"a wait in vain": {check: func(s *story) act { return s.until("red", always(wrong)) }, says: "it is blue",
			fails: true},
		"a watch of what stays so": {check: func(s *story) act { return s.throughout("red", always(nil)) },
			says: "ok: red, watched for 120ms"},
		"a watch of what ends": {check: func(s *story) act { return s.throughout("red", change(1, nil, wrong)) },
			says: "it is blue", fails: true},
		"a look at what is so": {check: func(s *story) act { return s.now("red", always(nil)) }, says: "ok: red"},
		"a look at what is not so": {check: func(s *story) act { return s.now("red", always(wrong)) }, says: "it is blue",
			fails: true},
		"a wait that ends in the middle of a request": {check: func(s *story) act { return s.until("red", thenHang(wrong)) }, says: "it is blue",
			fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			s, out := newStory(true)
			err := row.check(s)(t.Context())
			assert.Contains(t, out.String(), row.says)
			if row.fails {
				require.ErrorIs(t, err, errCheck)
				assert.Equal(t, []int{0, 1}, []int{s.passes, s.failures})
				return
			}
			require.NoError(t, err)
			assert.Equal(t, []int{1, 0}, []int{s.passes, s.failures})
		})
	}
}

// thenHang returns a probe that gives an answer and then waits for the end.
func thenHang(answer error) probe {
	first := true
	return func(ctx context.Context) error {
		if first {
			first = false
			return answer
		}
		<-ctx.Done()
		return ctx.Err()
	}
}

func TestAnInterruptIsNoFailedCheck(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s, out := newStory(true)
	for _, check := range []act{s.until("red", always(errCheck)), s.throughout("red", always(errCheck)), s.now("red", always(errCheck))} {
		require.ErrorIs(t, check(ctx), context.Canceled)
	}
	assert.Equal(t, []int{0, 0}, []int{s.passes, s.failures})
	assert.Empty(t, out.String())
}

func TestTheFirstFailureEndsTheStory(t *testing.T) {
	s, out := newStory(true)
	steps := []step{
		{title: "First", acts: func() []act {
			return []act{s.now("red", always(nil)), s.now("green", always(errors.New("it is blue")))}
		}},
		{title: "Second", acts: func() []act { return []act{s.now("white", always(nil))} }},
	}
	err := s.play(t.Context(), steps)
	require.Error(t, err)
	s.sum(err, len(steps))
	assert.Contains(t, out.String(), "The story ended in step 1 of 2; what follows was not tried.")
	assert.Contains(t, out.String(), "1 passed, 1 failed\n")
	assert.NotContains(t, out.String(), "white")
}

func TestCommandsAreShownAsTheyAreTyped(t *testing.T) {
	s, out := newStory(false)
	s.console.command("home",
		s.typed([]string{"apply", "-f", fabric.Root() + "/deploy/x.yaml", "-o", `custom-columns=A:.a\.b`, "--replicas=0"}))
	assert.Equal(t, "\n    home$ kubectl apply -f deploy/x.yaml -o 'custom-columns=A:.a\\.b' --replicas=0\n", out.String())
	assert.NotContains(t, out.String(), "\x1b", "colours are for terminals")
}

func TestTextIsWrapped(t *testing.T) {
	assert.Equal(t, []string{"one two", "three", "unbreakable", "x"}, wrap("one two\n three unbreakable x", 8))
	assert.Empty(t, wrap("", 8))
}
