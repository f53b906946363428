package send

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/zeebo/blake3"
	"golang.org/x/sys/unix"

	"github.com/lodestone-storage/lodestone/mover/content/blocks"
	"github.com/lodestone-storage/lodestone/mover/content/rsync"
	"github.com/lodestone-storage/lodestone/mover/sandbox"
	"github.com/lodestone-storage/lodestone/mover/tree"
	"github.com/lodestone-storage/lodestone/mover/wire"
	"github.com/lodestone-storage/lodestone/pkg/moverapi"
)

// pass makes the target equal to the source. final says that nobody writes to the source.
func (r *run) pass(ctx context.Context, conn *wire.Conn, final bool) (*moverapi.Passed, error) {
	variant := rsync.Live
	if final {
		variant = rsync.All
	}
	passed, err := r.copy(ctx, conn, variant)
	if err != nil || final {
		// Verify reads what was written here, and pods wait: nothing is read twice.
		return passed, err
	}
	// What was written is read from the disk now, while no pods wait for it.
	r.meter.start("reading what was written", 0, 0)
	_, err = r.scanTarget(conn, false)
	return passed, err
}

// copy scans both ends and sends the differences.
func (r *run) copy(ctx context.Context, conn *wire.Conn, variant rsync.Variant) (*moverapi.Passed, error) {
	if first, there, err := r.targetIsEmpty(conn); err != nil {
		return nil, err
	} else if first {
		return r.copyAll(ctx, conn, variant, there)
	}
	source, there, err := r.scanBoth(ctx, conn, false)
	if err != nil {
		return nil, err
	}
	defer source.Close()
	if source.Summary().Root == there.Root {
		return &moverapi.Passed{}, nil
	}
	target, err := r.fetch(conn, there)
	if err != nil {
		return nil, err
	}
	defer target.Close()
	return r.transfer(ctx, conn, source, target, variant)
}

// targetIsEmpty reports whether all of the source is to be sent, so that it need not be read to
// find the differences: the target is empty, and the source was not read yet.
func (r *run) targetIsEmpty(conn *wire.Conn) (first bool, there wire.ScanResponse, err error) {
	if r.sender.Block {
		return false, there, nil
	}
	if _, err := os.Stat(r.sender.sourceManifest()); !errors.Is(err, os.ErrNotExist) {
		return false, there, err
	}
	r.meter.start("looking at the target", 0, 0)
	there, err = r.scanTarget(conn, false)
	return there.Entries <= 1, there, err
}

// copyAll sends everything, and reads the source for its manifest at the same time: what one of the
// two has read, the other finds in the page cache. A change between both reads is found by the next
// scan, since its change time is later than the manifest.
func (r *run) copyAll(ctx context.Context, conn *wire.Conn, variant rsync.Variant, there wire.ScanResponse) (*moverapi.Passed, error) {
	r.meter.start("looking at the source", 0, 0)
	if _, err := r.scanNames(ctx); err != nil {
		return nil, err
	}
	names, err := tree.Open(r.sender.namesManifest())
	if err != nil {
		return nil, err
	}
	// It is not needed again, and takes room.
	defer os.Remove(r.sender.namesManifest())
	defer names.Close()
	target, err := r.fetch(conn, there)
	if err != nil {
		return nil, err
	}
	defer target.Close()
	scanning, stop := context.WithCancel(ctx)
	defer stop()
	var summary tree.Summary
	scanned := make(chan error, 1)
	go func() {
		var err error
		if summary, err = r.scanSource(scanning, false, true); err != nil && scanning.Err() == nil {
			// The result of the transfer is useless then.
			conn.Close()
		}
		scanned <- err
	}()
	passed, err := r.transfer(ctx, conn, names, target, variant)
	if err != nil && !errors.Is(err, errScanAgain) {
		stop()
	}
	if scanErr := <-scanned; scanErr != nil && (err == nil || !errors.Is(scanErr, context.Canceled)) {
		return nil, scanErr
	}
	if err != nil && !errors.Is(err, errScanAgain) {
		return nil, err
	}
	// What was read here need not be read again by the next scan.
	return passed, errors.Join(err, r.sender.saveExpectation(summary))
}

// verify compares both ends. It repairs nothing: an unexplained difference means that something is
// wrong, and the source is intact.
func (r *run) verify(ctx context.Context, conn *wire.Conn, task moverapi.Task) (verified *moverapi.Verified, err error) {
	var fingerprints *moverapi.Fingerprints
	if task.Fingerprints {
		// What changes from here on shows in the next ones.
		if fingerprints, err = r.fingerprints(ctx, conn); err != nil {
			return nil, err
		}
	}
	source, to, err := r.scanBoth(ctx, conn, task.Full)
	if err != nil {
		return nil, err
	}
	defer source.Close()
	from := source.Summary()
	verified = &moverapi.Verified{
		Full: task.Full, SourceRoot: from.Root.String(), TargetRoot: to.Root.String(), Equal: from.Root == to.Root,
		TargetBytes: int64(to.Bytes), RootVersion: to.Version, Fingerprints: fingerprints,
	}
	if !task.Settled.IsZero() {
		verified.Unseen = &moverapi.Unseen{}
	}
	if verified.Equal {
		return verified, nil
	}
	target, err := r.fetch(conn, to)
	if err != nil {
		return nil, err
	}
	defer target.Close()
	differences, err := tree.Compare(source, target, examples)
	if err != nil {
		return nil, err
	}
	verified.DifferencesLeftOff = int64(differences.Count) - int64(len(differences.First))
	for _, d := range differences.First {
		verified.Differences = append(verified.Differences, moverapi.Difference{Path: d.Path, What: d.What})
	}
	if verified.Unseen != nil {
		verified.Unseen, err = r.unseen(source, target, task.Settled)
	}
	return verified, err
}

// unseen is what differs though nothing but its content shows it.
func (r *run) unseen(source, target *tree.Manifest, settled time.Time) (*moverapi.Unseen, error) {
	found, before := &moverapi.Unseen{}, tree.Time{Sec: settled.Unix(), Nsec: uint32(settled.Nanosecond())}
	for c, err := range tree.Changes(target, source) {
		if err != nil {
			return nil, err
		}
		if !r.sender.Block {
			if !c.IsUnseen() || !c.New.Mtime.Before(before) {
				continue
			}
			if found.Files++; found.First == "" {
				found.First = c.Difference().Path
			}
		}
		for part, err := range c.Ranges() {
			if err != nil {
				return nil, err
			}
			found.Bytes += int64(part.Length)
		}
	}
	return found, nil
}

// examples is the most differences that are listed.
const examples = 100

// transfer sends the differences between two manifests. If the target is full it first deletes
// there what is not at the source, and tries once more.
func (r *run) transfer(ctx context.Context, conn *wire.Conn, source, target *tree.Manifest, variant rsync.Variant) (*moverapi.Passed,
	error) {
	passed, err := r.transferOnce(ctx, conn, source, target, variant)
	if err == nil || !errors.Is(err, rsync.ErrNoSpace) || r.pruned {
		return passed, err
	}
	r.pruned = true
	if err := r.rsync(ctx, conn, rsync.Prune, nil); err != nil {
		return nil, err
	}
	return nil, errScanAgain
}

// plan is the work of a transfer, with its inputs.
type plan struct {
	passed moverapi.Passed
	// total is the size of all files that must be processed, large the size of those that package
	// blocks copies, redo of those in the list for rsync's Redo.
	total, large, redo int64
	list               string
}

func (r *run) transferOnce(ctx context.Context, conn *wire.Conn, source, target *tree.Manifest, variant rsync.Variant) (*moverapi.Passed,
	error) {
	if source.Summary().Root == target.Summary().Root {
		return &moverapi.Passed{}, nil
	}
	if err := r.sender.writer.Load().Refuse(source.Summary()); err != nil {
		return nil, err
	}
	if carried, err := r.sendThroughStore(ctx, conn, source, target); err != nil {
		return nil, err
	} else if carried {
		return nil, errScanAgain
	}
	p, err := r.plan(source, target)
	if err != nil {
		return nil, err
	}
	r.meter.start("sending", p.total, p.passed.Changed)
	if p.large > 0 {
		if err := r.blocks(conn, source, target); err != nil {
			return nil, err
		}
	}
	if r.sender.Block {
		return &p.passed, nil
	}
	if p.redo > 0 {
		list, err := os.Open(p.list)
		if err != nil {
			return nil, fmt.Errorf("open the list of files to send again: %w", err)
		}
		err = r.rsync(ctx, conn, rsync.Redo, list)
		list.Close()
		if err != nil {
			return nil, err
		}
	}
	return &p.passed, r.rsync(ctx, conn, variant, nil)
}

// plan counts the changes, and lists the files that rsync would consider equal.
func (r *run) plan(source, target *tree.Manifest) (*plan, error) {
	p := &plan{list: r.sender.Scratch.File("redo.list")}
	list, err := os.Create(p.list)
	if err != nil {
		return nil, fmt.Errorf("list what to send: %w", err)
	}
	defer list.Close()
	budget, err := r.sender.Scratch.Budget()
	if err != nil {
		return nil, err
	}
	for c, err := range tree.Changes(target, source) {
		if err != nil {
			return nil, err
		}
		p.passed.Changed++
		if c.New == nil || c.New.Type != tree.File {
			continue
		}
		content := c.Old == nil || c.Differs&(tree.AspectType|tree.AspectContent|tree.AspectSize) != 0
		if content {
			p.passed.ChangedBytes += int64(c.New.Size)
		}
		switch {
		case blocks.Carries(c):
			p.large++
			p.total += int64(c.New.Size)
		case content:
			p.total += int64(c.New.Size)
		}
		if c.Old != nil && c.New.Size < blocks.LargeFrom && c.Differs&(tree.AspectContent|tree.AspectLink) != 0 &&
			c.Differs&(tree.AspectType|tree.AspectSize|tree.AspectMtime) == 0 {
			p.redo++
			if err := budget.Reserve(uint64(len(c.New.Path) + 1)); err != nil {
				return nil, err
			}
			if _, err := list.WriteString(c.New.Path + "\x00"); err != nil {
				return nil, fmt.Errorf("list what to send: %w", err)
			}
		}
	}
	return p, nil
}

func (r *run) rsync(ctx context.Context, conn *wire.Conn, variant rsync.Variant, list *os.File) error {
	source := rsync.Source{Self: r.sender.Self, Volume: r.sender.Volume, Rootless: r.sender.writer.Load() != nil, Sent: func(n int) {
		r.meter.sent.Add(int64(n))
		if variant != rsync.Prune {
			r.meter.bytes.Add(int64(n))
		}
	}}
	if list == nil {
		return source.Send(ctx, conn, variant, nil)
	}
	return source.Send(ctx, conn, variant, list)
}

// prepare scans the source without its contents, has the receiver test what the target can store,
// and returns what forbids the move.
func (r *run) prepare(ctx context.Context, conn *wire.Conn) (*moverapi.Prepared, error) {
	r.meter.start("looking at the source", 0, 0)
	summary, err := r.scanNames(ctx)
	if errors.Is(err, unix.EACCES) && os.Geteuid() != 0 {
		return &moverapi.Prepared{Refusals: []moverapi.Refusal{{Reason: fmt.Sprintf("the mover at the source runs as user %d and not as root, "+
			"and may not read all of the volume (%v): let that user read it", os.Geteuid(), err)}}}, nil
	}
	if err != nil {
		return nil, err
	}
	names, err := r.removeNamesManifest()
	if err != nil {
		return nil, err
	}
	if err := r.sender.saveExpectation(summary); err != nil {
		return nil, err
	}
	expect := summary.Expect()
	expect.Copied = r.sender.Snapshot
	source, err := json.Marshal(expect)
	if err != nil {
		return nil, fmt.Errorf("encode what the source looks like: %w", err)
	}
	r.meter.start("trying what the target can keep", 0, 0)
	var answer wire.ProbeResponse
	if err := conn.Do(wire.Call{Op: wire.OpProbe, Result: &answer, Progress: r.meter.there}); err != nil {
		return nil, err
	}
	room, err := r.sender.Scratch.Space()
	if err != nil {
		return nil, err
	}
	prepared := &moverapi.Prepared{
		Bytes: int64(summary.Allocated), Entries: int64(summary.Entries), Inodes: int64(summary.Inodes), Source: source,
	}
	for _, refusal := range tree.Refusals(summary, answer.Abilities, &answer.There) {
		prepared.Refusals = append(prepared.Refusals, moverapi.Refusal{Path: refusal.Path, Reason: refusal.Reason})
	}
	if !r.sender.Block {
		root, err := tree.OwnershipOf(r.sender.Volume)
		if err != nil {
			return nil, err
		}
		for _, refusal := range tree.RootRefusals(root, answer.Abilities) {
			prepared.Refusals = append(prepared.Refusals, moverapi.Refusal{Reason: refusal.Reason})
		}
	}
	here, there := sandbox.ScratchNeeded(names, summary.Hashes)
	for _, why := range []string{
		sandbox.ScratchRefusal("the mover at the source", here, room), sandbox.ScratchRefusal("the mover at the target", there, answer.Scratch),
	} {
		if why != "" {
			prepared.Refusals = append(prepared.Refusals, moverapi.Refusal{Reason: why})
		}
	}
	unusable, err := r.storeRefusals(ctx, conn)
	prepared.Refusals = append(prepared.Refusals, unusable...)
	return prepared, err
}

// removeNamesManifest removes the file that scanNames wrote, and returns its size.
func (r *run) removeNamesManifest() (size uint64, err error) {
	info, err := os.Stat(r.sender.namesManifest())
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	if err == nil {
		size, err = uint64(info.Size()), os.Remove(r.sender.namesManifest())
	}
	if err != nil {
		return 0, fmt.Errorf("forget the names of the source: %w", err)
	}
	return size, nil
}

func (s *Sender) sourceManifest() string { return s.Scratch.File("source.manifest") }

func (s *Sender) targetManifest() string { return s.Scratch.File("target.manifest") }

// namesManifest returns the path of the manifest of a scan that reads no contents.
func (s *Sender) namesManifest() string { return s.Scratch.File("names.manifest") }

// scanBoth scans both volumes at the same time, and returns the manifest of the source and what there is to say of that of the target:
// see fetch. With full all of both is read again from their disks; else only what has changed since the last scan, at the target from
// its disk.
func (r *run) scanBoth(ctx context.Context, conn *wire.Conn, full bool) (source *tree.Manifest, there wire.ScanResponse, err error) {
	r.meter.start("reading what has changed at both ends", 0, 0)
	scanned := make(chan error, 1)
	go func() {
		var err error
		there, err = r.scanTarget(conn, full)
		scanned <- err
	}()
	_, sourceErr := r.scanSource(ctx, full, false)
	if sourceErr != nil {
		// The result of the receiver's scan, which may take long, is useless then.
		conn.Close()
	}
	targetErr := <-scanned
	if err := cmp.Or(sourceErr, targetErr); err != nil {
		return nil, there, err
	}
	if source, err = tree.Open(r.sender.sourceManifest()); err != nil || r.looks {
		return source, there, err
	}
	if err = r.refuseEmptySource(source.Summary().Entries, there.Entries); err == nil {
		err = r.sender.saveExpectation(source.Summary())
	}
	if err != nil {
		_ = source.Close()
		return nil, there, err
	}
	return source, there, nil
}

// refuseEmptySource refuses an empty source if the target is not empty and this mover has not seen
// the source before: it may be the wrong mount.
func (r *run) refuseEmptySource(source, target uint64) error {
	if r.expect != nil || source > 1 || target <= 1 {
		return nil
	}
	return fmt.Errorf("the source volume is empty, the target holds %d entries, and this mover has not seen the source before: "+
		"nothing is deleted at the target; prepare the move again", target-1)
}

// scanSource describes the source; quiet leaves the meter unchanged.
func (r *run) scanSource(ctx context.Context, full, quiet bool) (tree.Summary, error) {
	budget, err := r.sender.Scratch.Budget()
	if err != nil {
		return tree.Summary{}, err
	}
	options := tree.Options{
		Root: r.sender.Volume, Manifest: r.sender.sourceManifest(), Scratch: r.sender.Scratch.Path, Budget: budget, Expect: r.expect,
		Writer: r.sender.writer.Load(),
		// Other machines may have written to a device, so this machine's cache of it does not
		// count.
		Cold: full || r.sender.Block,
	}
	if !quiet {
		options.Progress = r.meter.here
	}
	if r.sender.Block {
		return tree.ScanDevice(ctx, options)
	}
	return tree.Rescan(ctx, options, full)
}

// scanNames describes the source without contents.
func (r *run) scanNames(ctx context.Context) (tree.Summary, error) {
	if r.sender.Block {
		size, err := tree.DeviceSize(r.sender.Volume)
		return tree.Summary{Device: true, Entries: 1, Inodes: 1, Bytes: size, Allocated: size, Hashes: tree.DeviceHashes(size)}, err
	}
	budget, err := r.sender.Scratch.Budget()
	if err != nil {
		return tree.Summary{}, err
	}
	return tree.Scan(ctx, tree.Options{
		Root: r.sender.Volume, Manifest: r.sender.namesManifest(), Scratch: r.sender.Scratch.Path, Budget: budget, Shallow: true,
		Expect: r.expect, Writer: r.sender.writer.Load(), Progress: r.meter.here,
	})
}

func (r *run) scanTarget(conn *wire.Conn, full bool) (seen wire.ScanResponse, err error) {
	request := wire.ScanRequest{Full: full}
	if r.sender.Block {
		if request.Length, err = tree.DeviceSize(r.sender.Volume); err != nil {
			return seen, err
		}
	}
	err = conn.Do(wire.Call{Op: wire.OpScan, Body: request, Result: &seen, Progress: r.meter.there})
	return seen, err
}

// fetch gets the manifest of the target's last scan, unless it is here already. It accepts no more
// bytes than the receiver announced, and only if there is room for them.
func (r *run) fetch(conn *wire.Conn, there wire.ScanResponse) (*tree.Manifest, error) {
	path := r.sender.targetManifest()
	if here, err := tree.Open(path); err == nil {
		if here.Summary().Root == there.Root {
			return here, nil
		}
		_ = here.Close()
	}
	// The old manifest is useless now, and takes room.
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("forget the target's manifest: %w", err)
	}
	budget, err := r.sender.Scratch.Budget()
	if err != nil {
		return nil, err
	}
	if err := budget.Reserve(there.ManifestSize); err != nil {
		return nil, err
	}
	partial := path + ".partial"
	file, err := os.OpenFile(partial, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("keep the target's manifest: %w", err)
	}
	defer file.Close()
	hash := blake3.New()
	var size uint64
	var answer wire.ManifestResponse
	err = conn.Do(wire.Call{Op: wire.OpManifest, Result: &answer, Data: func(payload []byte) error {
		_, _ = hash.Write(payload)
		if size += uint64(len(payload)); size > there.ManifestSize {
			return errors.New("the receiver sends a larger manifest than it said; start the move again")
		}
		if _, err := file.Write(payload); err != nil {
			return fmt.Errorf("keep the target's manifest: %w", err)
		}
		return nil
	}})
	if err != nil {
		return nil, err
	}
	if size != uint64(answer.Size) || !bytes.Equal(hash.Sum(nil), answer.Hash) {
		conn.Close()
		return nil, fmt.Errorf("%w: the target's manifest is not what the receiver sent", wire.ErrLost)
	}
	if err := os.Rename(partial, path); err != nil {
		return nil, fmt.Errorf("keep the target's manifest: %w", err)
	}
	manifest, err := tree.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read the target's manifest: %w", err)
	}
	if manifest.Summary().Root != there.Root {
		_ = manifest.Close()
		return nil, errors.New("the receiver's manifest is not that of its scan; start the move again")
	}
	return manifest, nil
}

// expectation returns what the source must look like: what the controller has recorded, else what
// this sender saw in the first task that its scratch directory has a record of.
func (s *Sender) expectation(task moverapi.Task) (*tree.Expectation, error) {
	kept := task.Expect
	if len(kept) == 0 {
		content, err := os.ReadFile(s.expectPath())
		if errors.Is(err, os.ErrNotExist) {
			return nil, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read what the source must look like: %w", err)
		}
		kept = content
	}
	expect := &tree.Expectation{}
	if err := json.Unmarshal(kept, expect); err != nil {
		return nil, fmt.Errorf("decode what the source must look like: %w", err)
	}
	return expect, nil
}

func (s *Sender) expectPath() string { return s.Scratch.File("expect.json") }

// saveExpectation records what the source looks like, if nothing is recorded yet.
func (s *Sender) saveExpectation(summary tree.Summary) error {
	if _, err := os.Stat(s.expectPath()); err == nil {
		return nil
	}
	content, err := json.Marshal(summary.Expect())
	if err != nil {
		return fmt.Errorf("encode what the source looks like: %w", err)
	}
	if err := os.WriteFile(s.expectPath()+".partial", content, 0o600); err != nil {
		return fmt.Errorf("keep what the source looks like: %w", err)
	}
	return os.Rename(s.expectPath()+".partial", s.expectPath())
}
