// Package peers runs other programs that copy trees, to compare with: plain rsync,
// and restic as backup and restore.
package peers

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/lodestone-storage/lodestone/e2e/mover/cases"
)

// Rsync copies with rsync from one directory into another, without any transport.
type Rsync struct {
	// Arguments are those before the two directories.
	Arguments []string
}

// Plain is rsync as most people call it; Exact are the arguments that keep most.
var (
	Plain = Rsync{Arguments: []string{"-aHAXS"}}
	Exact = Rsync{Arguments: []string{"-aHAXS", "--numeric-ids", "--delete", "--modify-window=-1"}}
)

// Name is the command.
func (r Rsync) Name() string { return "rsync " + strings.Join(r.Arguments, " ") }

// Version is the first line that rsync prints of itself.
func (r Rsync) Version(ctx context.Context) (string, error) {
	return version(ctx, "rsync", "--version")
}

// Start prepares nothing: rsync refuses nothing in advance.
func (r Rsync) Start(_ context.Context, setup cases.Setup) (cases.Move, error) {
	return &rsyncMove{arguments: r.Arguments, setup: setup}, nil
}

type rsyncMove struct {
	arguments []string
	setup     cases.Setup
}

// Pass runs rsync; each pass is the same to it.
func (m *rsyncMove) Pass(ctx context.Context, final bool) error {
	arguments := append([]string{"rsync"}, m.arguments...)
	arguments = append(arguments, m.setup.Source+"/", m.setup.Target+"/")
	err := runWithout(ctx, m.setup.Without, arguments...)
	var exit *exec.ExitError
	if !final && errors.As(err, &exit) && exit.ExitCode() == 24 {
		return nil // Files vanished: that is so while the application runs.
	}
	return err
}

// Verify does nothing: rsync has no such step.
func (m *rsyncMove) Verify(context.Context) error { return nil }

func (m *rsyncMove) Close() error { return nil }

var _ cases.Engine = Rsync{}

// Restic copies as a backup into a local repository and a restore from it, once,
// when the application has stopped.
type Restic struct{}

var _ cases.Engine = Restic{}

// Name is the two commands.
func (Restic) Name() string { return "restic backup, restore" }

// Version is what restic prints of itself.
func (Restic) Version(ctx context.Context) (string, error) { return version(ctx, "restic", "version") }

// Start makes the repository.
func (Restic) Start(ctx context.Context, setup cases.Setup) (cases.Move, error) {
	m := &resticMove{setup: setup}
	return m, m.run(ctx, nil, "init")
}

type resticMove struct{ setup cases.Setup }

// Pass does everything in the final pass.
func (m *resticMove) Pass(ctx context.Context, final bool) error {
	if !final {
		return nil
	}
	if err := m.run(ctx, nil, "backup", "--quiet", "."); err != nil {
		return err
	}
	return m.run(ctx, m.setup.Without, "restore", "latest", "--quiet", "--target", m.setup.Target)
}

func (m *resticMove) run(ctx context.Context, without []string, arguments ...string) error {
	script := `cd "$1" && shift && export RESTIC_PASSWORD=none RESTIC_REPOSITORY="$1" && shift && exec restic --no-cache "$@"`
	command := []string{"sh", "-c", script, "sh", m.setup.Source, filepath.Join(m.setup.Scratch, "repository")}
	return runWithout(ctx, without, append(command, arguments...)...)
}

// Verify does nothing: the repository's hashes say nothing of what was restored.
func (m *resticMove) Verify(context.Context) error { return nil }

func (m *resticMove) Close() error { return nil }

func runWithout(ctx context.Context, capabilities []string, command ...string) error {
	if len(capabilities) > 0 {
		var drop []string
		for _, c := range capabilities {
			drop = append(drop, "-"+strings.ToLower(strings.TrimPrefix(c, "CAP_")))
		}
		set := strings.Join(drop, ",")
		command = append([]string{"setpriv", "--bounding-set", set, "--inh-caps", set, "--"}, command...)
	}
	output, err := exec.CommandContext(ctx, command[0], command[1:]...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", command[0], err, firstLine(string(output)))
	}
	return nil
}

func version(ctx context.Context, command ...string) (string, error) {
	output, err := exec.CommandContext(ctx, command[0], command[1:]...).Output()
	if err != nil {
		return "", fmt.Errorf("ask %s for its version: %w", command[0], err)
	}
	return firstLine(string(output)), nil
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	return line
}
