package harness

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lodestone-storage/lodestone/e2e/mover/cases"
	"github.com/lodestone-storage/lodestone/pkg/moverapi"
)

// Engine is the mover as package cases tries it: both ends as processes with exactly
// the capabilities of a mover's container, told what to do as a controller does.
type Engine struct {
	// Program is the mover's program.
	Program string
	// Store, if not nil, is what contents travel through; More are further flags.
	Store *moverapi.Ticket
	More  []string
}

// Name implements cases.Engine.
func (Engine) Name() string { return "Lodestone" }

// Version implements cases.Engine.
func (Engine) Version(context.Context) (string, error) { return "this tree", nil }

// Start implements cases.Engine: what Prepare refuses is a refusal, and so is a mover
// that does not start.
func (e Engine) Start(ctx context.Context, setup cases.Setup) (move cases.Move, err error) {
	for range 5 {
		// Another program may take an address that was free when it was chosen.
		if move, err = e.start(ctx, setup); err == nil || !strings.Contains(err.Error(), unix.EADDRINUSE.Error()) {
			return move, err
		}
	}
	return nil, err
}

func (e Engine) start(ctx context.Context, setup cases.Setup) (cases.Move, error) {
	started, err := Start(ctx, Setup{Program: e.Program, Folder: setup.Scratch, Source: setup.Source, Target: setup.Target,
		Without: setup.Without, Store: e.Store, Watched: true, More: e.More})
	if err != nil {
		return nil, err
	}
	m := &engineMove{Move: started}
	status, err := m.task(ctx, moverapi.Task{Kind: moverapi.Prepare})
	if errors.Is(err, ErrEnded) {
		err = &cases.Refusal{Reason: err.Error()}
	}
	if err == nil && len(status.Prepared.Refusals) > 0 {
		first := status.Prepared.Refusals[0]
		err = &cases.Refusal{Reason: first.String()}
	}
	if err != nil {
		m.Stop()
		return nil, err
	}
	m.expect = status.Prepared.Source
	return m, nil
}

// engineMove is one move through the mover.
type engineMove struct {
	*Move
	expect json.RawMessage
	tasks  int
}

func (m *engineMove) task(ctx context.Context, task moverapi.Task) (*moverapi.TaskStatus, error) {
	ctx, stop := context.WithTimeout(ctx, 10*time.Minute)
	defer stop()
	m.tasks++
	task.ID, task.Expect = fmt.Sprintf("%s-%d", task.Kind, m.tasks), m.expect
	return m.Do(ctx, task)
}

// Pass implements cases.Move.
func (m *engineMove) Pass(ctx context.Context, final bool) error {
	kind := moverapi.Pass
	if final {
		kind = moverapi.Final
	}
	_, err := m.task(ctx, moverapi.Task{Kind: kind})
	return err
}

// Verify implements cases.Move: it reads everything at both ends.
func (m *engineMove) Verify(ctx context.Context) error {
	status, err := m.task(ctx, moverapi.Task{Kind: moverapi.Verify, Full: true})
	if err != nil {
		return err
	}
	if v := status.Verified; !v.Equal {
		if len(v.Differences) == 0 {
			return errors.New("both ends differ")
		}
		return fmt.Errorf("%s: %s", v.Differences[0].Path, v.Differences[0].What)
	}
	return nil
}

// SpoilStream implements cases.Streamed.
func (m *engineMove) SpoilStream(after int64) { m.Wire.FlipAfter(after) }

// StreamSpoilt implements cases.Streamed.
func (m *engineMove) StreamSpoilt() bool { return m.Wire.Flipped() }

// Close implements cases.Move.
func (m *engineMove) Close() error {
	m.Stop()
	return nil
}

// refused are the cases that the mover refuses in Prepare, by their numbers. Of all
// others it keeps everything, or notices what is wrong, except for the gaps.
var refused = map[string]bool{
	"16b": true,                           // no program can name such a path
	"29":  true,                           // the target is too small
	"35a": true, "35b": true, "35c": true, // the mover lacks a capability
}

// gaps are the cases in which the mover loses something and nothing tells, by their
// numbers: what is lost, as a comparison says it. Users are told so in docs/moves.md,
// "Known gaps".
var gaps = map[string]string{
	// The one more is the symbolic link.
	"4a":  "file: extended attributes differ: trusted.note is missing (and 1 more)",
	"35d": "file: extended attributes differ: trusted.note is missing",
}

// Expected is what is documented to become of a case.
func Expected(c cases.Case) cases.Outcome {
	switch {
	case gaps[c.Number] != "":
		return cases.OutcomeLost
	case refused[c.Number]:
		return cases.OutcomeRefused
	case c.Must == cases.Noticed:
		return cases.OutcomeFailed
	}
	return cases.OutcomeKept
}

// Check fails if something else became of a case than is documented.
func Check(c cases.Case, result cases.Result) error {
	expected := Expected(c)
	gap := gaps[c.Number]
	switch {
	case result.Outcome != expected, result.Meets != (gap == ""), gap != "" && result.Reason != gap:
		return fmt.Errorf("case %s, %s: %s, but %s is documented: %s", c.Number, c.Name, result.Outcome, expected, result.Reason)
	}
	return nil
}
