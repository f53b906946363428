package cases

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lodestone-storage/lodestone/e2e/mover/cases/disk"
	"github.com/lodestone-storage/lodestone/mover/tree"
)

// ErrNotRoot says that a case cannot be tried without root.
var ErrNotRoot = errors.New("the cases need root: they make devices, owners and trusted attributes")

// Run takes one case through an engine, in a new directory below dir, which it
// removes again. The error tells that the case could not be tried (disk.ErrNone: for want
// of loop devices); whatever the engine does is in the result.
func Run(ctx context.Context, c Case, engine Engine, dir string) (result Result, err error) {
	if !isRoot() {
		return Result{}, ErrNotRoot
	}
	work, err := os.MkdirTemp(dir, "case-*")
	if err != nil {
		return Result{}, fmt.Errorf("make a directory for a case: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	r := &run{
		c: c, engine: engine, work: work,
		source: &Volume{Dir: filepath.Join(work, "source")}, target: &Volume{Dir: filepath.Join(work, "target")},
	}
	unmount, err := r.prepare(ctx)
	if err != nil {
		return Result{}, fmt.Errorf("prepare case %s: %w", c.Number, err)
	}
	defer func() { err = errors.Join(err, unmount()) }()
	moveErr := r.move(ctx)
	if err := errors.Join(r.source.Err, r.target.Err); err != nil {
		return Result{}, fmt.Errorf("build case %s: %w", c.Number, err)
	}
	if result, err = r.judge(ctx, moveErr); err != nil {
		return Result{}, fmt.Errorf("judge case %s: %w", c.Number, err)
	}
	result.Reason = strings.ReplaceAll(result.Reason, work+"/", "")
	return result, nil
}

// run is one case under way.
type run struct {
	c              Case
	engine         Engine
	work           string
	source, target *Volume
	disk           *disk.Disk
}

// prepare makes both volumes.
func (r *run) prepare(ctx context.Context) (unmount func() error, err error) {
	for _, dir := range []string{r.source.Dir, r.target.Dir, filepath.Join(r.work, "scratch")} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			return nil, err
		}
	}
	if unmount, err = r.mount(ctx); err != nil {
		return nil, err
	}
	for _, step := range []struct {
		fill   func(*Volume)
		volume *Volume
		age    time.Duration
	}{{r.c.Source, r.source, time.Hour}, {r.c.Target, r.target, 2 * time.Hour}} {
		if step.fill != nil {
			step.fill(step.volume)
		}
		step.volume.age(step.age)
		if step.volume.Err != nil {
			return nil, errors.Join(step.volume.Err, unmount())
		}
	}
	return unmount, nil
}

// diskBytes is the size of a target that is a disk of its own.
const diskBytes = 64 << 20

// mount gives the target a file system of its own, if the case asks for that.
func (r *run) mount(ctx context.Context) (unmount func() error, err error) {
	switch {
	case r.c.TargetBytes > 0:
		return mountSmall(r.target.Dir, r.c.TargetBytes)
	case r.c.Disk:
		if r.disk, err = disk.Mount(ctx, r.target.Dir, diskBytes); err != nil {
			return nil, err
		}
		return r.disk.Unmount, nil
	}
	return func() error { return nil }, nil
}

// mountSmall mounts a file system of so many bytes.
func mountSmall(dir string, bytes int64) (unmount func() error, err error) {
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size="+strconv.FormatInt(bytes, 10)); err != nil {
		return nil, fmt.Errorf("mount a small file system: %w", err)
	}
	return func() error {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			return fmt.Errorf("unmount a small file system: %w", err)
		}
		return nil
	}, nil
}

// move takes the volume through the engine: a pass beside the application, what
// changes before the second one, the final pass, Verify.
func (r *run) move(ctx context.Context) (err error) {
	move, err := r.engine.Start(ctx, Setup{
		Source: r.source.Dir, Target: r.target.Dir, Scratch: filepath.Join(r.work, "scratch"), Without: r.c.Without,
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, move.Close()) }()
	if err := r.spoilStream(move); err != nil {
		return err
	}
	defer r.streamSpoilt(move)
	if err := r.firstPass(ctx, move); err != nil {
		return err
	}
	for _, change := range []func(*Volume){r.c.Between, r.c.Replace} {
		if change != nil {
			change(r.source)
		}
	}
	if r.source.Err != nil {
		return nil
	}
	if err := move.Pass(ctx, true); err != nil {
		return fmt.Errorf("final pass: %w", err)
	}
	r.spoilTarget()
	if err := move.Verify(ctx); err != nil {
		return fmt.Errorf("verify: %w", err)
	}
	return nil
}

// firstPass copies while the application writes.
func (r *run) firstPass(ctx context.Context, move Move) error {
	stopped := make(chan struct{})
	application, stop := context.WithCancel(ctx)
	go func() {
		defer close(stopped)
		if r.c.During != nil {
			r.c.During(application, r.source)
		}
	}()
	err := move.Pass(ctx, false)
	stop()
	<-stopped
	if err != nil {
		return fmt.Errorf("first pass: %w", err)
	}
	return nil
}

// errNoStream says that an engine has no stream that could be spoilt.
var errNoStream = errors.New("it copies within one machine, through no connection")

// spoilStream has a bit turn on the way, if the case asks for that.
func (r *run) spoilStream(move Move) error {
	if r.c.SpoilStream == 0 {
		return nil
	}
	streamed, ok := move.(Streamed)
	if !ok {
		return errNoStream
	}
	streamed.SpoilStream(r.c.SpoilStream)
	return nil
}

// streamSpoilt fails the case unless the bit has turned.
func (r *run) streamSpoilt(move Move) {
	if streamed, ok := move.(Streamed); ok && r.c.SpoilStream > 0 && !streamed.StreamSpoilt() {
		r.source.do("turn a bit of the stream", func() error { return errors.New("so much was never sent") })
	}
}

func (r *run) spoilTarget() {
	if r.c.Spoil != nil {
		r.c.Spoil(r.target)
	}
	if r.c.SpoilDisk != nil {
		r.target.do("turn a bit of the disk", func() error { return r.c.SpoilDisk(r.disk) })
	}
}

// judge says what became of the case.
func (r *run) judge(ctx context.Context, moveErr error) (Result, error) {
	var refusal *Refusal
	if errors.As(moveErr, &refusal) {
		return Result{Outcome: OutcomeRefused, Reason: refusal.Reason, Meets: r.c.Must == KeptOrRefused}, nil
	}
	if errors.Is(moveErr, errNoStream) {
		return Result{Outcome: OutcomeNone, Reason: errNoStream.Error()}, nil
	}
	reason, err := r.lost(ctx)
	if err != nil {
		return Result{}, err
	}
	return r.outcome(moveErr, reason), nil
}

// outcome weighs the engine's error, if there is one, against what is lost.
func (r *run) outcome(moveErr error, reason string) Result {
	switch {
	case moveErr != nil && r.c.Must == Noticed && reason == "":
		return Result{Outcome: OutcomeFailed, Reason: moveErr.Error(), Meets: true}
	case moveErr != nil && r.c.Must == Noticed:
		return Result{Outcome: OutcomeLost, Reason: moveErr.Error() + "; but " + reason}
	case moveErr != nil:
		return Result{Outcome: OutcomeFailed, Reason: moveErr.Error()}
	case r.c.Must == Noticed && reason == "":
		reason = "it ended without an error"
	case reason == "":
		return Result{Outcome: OutcomeKept, Meets: true}
	}
	return Result{Outcome: OutcomeLost, Reason: reason}
}

// lost says what the target does not have as it should; empty if all is there.
func (r *run) lost(ctx context.Context) (string, error) {
	if r.c.Holds != nil {
		check := &Volume{Dir: r.target.Dir}
		if r.c.Holds(check); check.Err != nil {
			return check.Err.Error(), nil
		}
	}
	if r.c.Must == Noticed {
		return "", nil
	}
	source, err := r.describe(ctx, r.source.Dir)
	if err != nil {
		return "", err
	}
	defer source.Close()
	target, err := r.describe(ctx, r.target.Dir)
	if err != nil {
		return "", err
	}
	defer target.Close()
	return r.compare(source, target)
}

// compare says in words how the target differs.
func (r *run) compare(source, target *tree.Manifest) (reason string, err error) {
	var more int
	for change, err := range tree.Changes(source, target) {
		switch {
		case err != nil:
			return "", err
		case change.Path() == "" && !r.c.Root:
		case reason == "":
			reason = change.Difference().String()
		default:
			more++
		}
	}
	if more > 0 {
		reason += fmt.Sprintf(" (and %d more)", more)
	}
	return reason, nil
}

// describe scans a volume as a whole, reading from the disk.
func (r *run) describe(ctx context.Context, dir string) (*tree.Manifest, error) {
	path := filepath.Join(r.work, filepath.Base(dir)+".manifest")
	if _, err := tree.Scan(ctx, tree.Options{Root: dir, Manifest: path, Scratch: r.work, Cold: true}); err != nil {
		return nil, err
	}
	return tree.Open(path)
}
