package peers

import (
	"context"
	"path/filepath"

	"github.com/lodestone-storage/lodestone/mover/cases"
)

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
