package cases

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
)

// fake is an engine made of functions; each may be nil.
type fake struct {
	setup  Setup
	start  func() error
	pass   func(s Setup, final bool) error
	verify func() error
}

func (f *fake) Name() string                            { return "fake" }
func (f *fake) Version(context.Context) (string, error) { return "1", nil }
func (f *fake) Close() error                            { return nil }

func (f *fake) Start(_ context.Context, setup Setup) (Move, error) {
	f.setup = setup
	if f.start != nil {
		return nil, f.start()
	}
	return f, nil
}

func (f *fake) Pass(_ context.Context, final bool) error {
	if f.pass != nil {
		return f.pass(f.setup, final)
	}
	return nil
}

func (f *fake) Verify(context.Context) error {
	if f.verify != nil {
		return f.verify()
	}
	return nil
}

// copyAll copies with cp, and removes what was there.
func copyAll(s Setup, _ bool) error {
	return exec.Command("sh", "-c", `rm -rf "$2"/* && cp -a "$1"/. "$2"/`, "sh", s.Source, s.Target).Run()
}

func TestRunJudgesWhatAnEngineDid(t *testing.T) {
	if !isRoot() {
		t.Skip("needs root: the cases make devices, owners and trusted attributes")
	}
	broken := errors.New("broken")
	fill := func(v *Volume) { v.text("file", "content") }
	for name, row := range map[string]struct {
		must    Demand
		engine  fake
		change  func(c *Case)
		outcome Outcome
		reason  string
		meets   bool
	}{
		"a good copy is kept": {must: Kept, engine: fake{pass: copyAll}, outcome: OutcomeKept, meets: true},
		"a missing file without an error is lost": {
			must: Kept, outcome: OutcomeLost, reason: "file: the file is missing in the copy",
		},
		"a change that the final pass does not see is lost": {
			must: Kept, engine: fake{pass: func(s Setup, final bool) error {
				if final {
					return nil
				}
				return copyAll(s, final)
			}},
			change:  func(c *Case) { c.Between = func(v *Volume) { v.rewrite("file", true) } },
			outcome: OutcomeLost, reason: "file: other content",
		},
		"a refusal meets a demand that allows it": {
			must: KeptOrRefused, engine: fake{start: func() error { return &Refusal{Reason: "no"} }},
			outcome: OutcomeRefused, reason: "no", meets: true,
		},
		"a refusal does not meet another demand": {
			must: Kept, engine: fake{start: func() error { return &Refusal{Reason: "no"} }},
			outcome: OutcomeRefused, reason: "no",
		},
		"an error is no refusal": {
			must: KeptOrRefused, engine: fake{start: func() error { return broken }},
			outcome: OutcomeFailed, reason: "broken",
		},
		"damage that nobody notices is lost": {
			must: Noticed, engine: fake{pass: copyAll},
			change:  func(c *Case) { c.Spoil = func(v *Volume) { v.rewrite("file", true) } },
			outcome: OutcomeLost, reason: "it ended without an error",
		},
		"damage that Verify notices meets the demand": {
			must: Noticed, engine: fake{pass: copyAll, verify: func() error { return broken }},
			outcome: OutcomeFailed, reason: "verify: broken", meets: true,
		},
		"an error after the target was wiped is lost": {
			must: Noticed, engine: fake{pass: copyAll, verify: func() error { return broken }},
			change: func(c *Case) {
				c.Replace = func(v *Volume) { v.swap(func(*Volume) {}) }
				c.Holds = func(v *Volume) { v.expect("file", "content") }
			},
			outcome: OutcomeLost,
			reason:  "verify: broken; but check file: open target/file: no such file or directory",
		},
		"the root counts where the case is about it": {
			must: Kept, engine: fake{pass: copyAll}, change: func(c *Case) {
				c.Root = true
				c.Spoil = func(v *Volume) { v.chmod("", 0o700) }
			},
			outcome: OutcomeLost, reason: "the root directory: mode 0755 became 0700",
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := Case{Number: "1", Name: name, Must: row.must, Source: fill}
			if row.change != nil {
				row.change(&c)
			}
			result, err := Run(t.Context(), c, &row.engine, t.TempDir())
			require.NoError(t, err)
			require.Equal(t, Result{Outcome: row.outcome, Reason: row.reason, Meets: row.meets}, result)
		})
	}
}

func TestEveryCaseCanBeBuilt(t *testing.T) {
	if !isRoot() {
		t.Skip("needs root: the cases make devices, owners and trusted attributes")
	}
	numbers := map[string]bool{}
	scale := Scale{FileBytes: 16 << 20, Files: 100}
	for _, c := range append(All(scale), Together(scale)) {
		t.Run(c.Number+" "+c.Name, func(t *testing.T) {
			require.False(t, numbers[c.Number], "its number is used twice")
			numbers[c.Number] = true
			engine := fake{start: func() error { return &Refusal{Reason: "only built"} }}
			result, err := Run(t.Context(), c, &engine, t.TempDir())
			require.NoError(t, err)
			require.Equal(t, OutcomeRefused, result.Outcome)
			_, err = os.Stat(engine.setup.Source)
			require.ErrorIs(t, err, os.ErrNotExist, "nothing is left behind")
		})
	}
	require.GreaterOrEqual(t, len(numbers), 32)
}
