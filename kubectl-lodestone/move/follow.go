package move

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/term"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/access"
	"github.com/lodestone-storage/lodestone/kubectl-lodestone/outcome"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
)

const (
	// often is how often is looked: one user does not burden an API server.
	often = 300 * time.Millisecond
	// repeat is how often a line is written again where none can be overwritten.
	repeat = 10 * time.Second
)

// screen shows the state of moves: in one line that changes on a terminal, else in
// a line whenever the phase changes.
type screen struct {
	out      io.Writer
	terminal bool
	phase    string
	said     time.Time
}

func newScreen(out io.Writer) *screen {
	file, ok := out.(*os.File)
	return &screen{out: out, terminal: ok && term.IsTerminal(int(file.Fd()))}
}

func (s *screen) show(move *v1alpha1.VolumeMove) {
	if isThere(move) { // what that means is said at the end
		return
	}
	text := strings.Join(move.Spec.Claims, ", ") + ": " + line(move)
	switch {
	case s.terminal:
		fmt.Fprintf(s.out, "\r\033[K%s", text)
	case s.phase != string(move.Status.Phase) || time.Since(s.said) >= repeat:
		fmt.Fprintln(s.out, text)
		s.phase, s.said = string(move.Status.Phase), time.Now()
	}
}

// note says something that is no state.
func (s *screen) note(format string, args ...any) {
	s.done()
	fmt.Fprintf(s.out, format+"\n", args...)
}

// done ends the line that changes.
func (s *screen) done() {
	if s.terminal {
		fmt.Fprint(s.out, "\r\033[K")
	}
}

// follow shows a move until it is done, refused or failed; it returns the move as
// it was last seen.
func follow(ctx context.Context, home *access.Cluster, out io.Writer, move *v1alpha1.VolumeMove) (*v1alpha1.VolumeMove, error) {
	shown := newScreen(out)
	defer shown.done()
	for {
		shown.show(move)
		switch state, why := ended(move); state {
		case moved, checked:
			return move, nil
		case refused:
			return move, outcome.Refuse("%s is not moved: %s", strings.Join(move.Spec.Claims, ", "), why)
		case going:
		case failed:
			return move, fmt.Errorf("%s was not moved: %s", strings.Join(move.Spec.Claims, ", "), why)
		}
		select {
		case <-ctx.Done():
			if move.Spec.DryRun {
				return move, errors.New(goesOn(move))
			}
			return move, fmt.Errorf("%s, kubectl lodestone move abort %s -n %s ends it", goesOn(move), move.Name, move.Namespace)
		case <-time.After(often):
		}
		seen, err := look(ctx, shown, getter(home, move))
		switch {
		case err == nil:
			move = seen
		case ctx.Err() == nil:
			return move, unseen(home, move, err)
		}
	}
}
