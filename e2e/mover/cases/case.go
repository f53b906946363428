// Package cases holds what a copy of a volume must survive: files of every kind,
// changes between and during passes, a wrong mount, a spoilt disk. Each case builds
// its volume in a directory and says what must hold afterwards; [Run] takes one
// through an [Engine] and judges the result.
//
// The cases need root for devices, owners and trusted attributes, and a file system
// that keeps them, such as ext4.
package cases

import (
	"context"

	"github.com/lodestone-storage/lodestone/e2e/mover/cases/disk"
)

// Case is one thing that a copy must survive. Functions that are nil do nothing.
type Case struct {
	// Number is that of the list in docs/move-cases.md.
	Number string
	Name   string
	// Source fills the volume before the first pass.
	Source func(v *Volume)
	// Target fills the target before the first pass: left-overs.
	Target func(v *Volume)
	// During is the application, which writes while the first pass runs; the context
	// ends when it is stopped.
	During func(ctx context.Context, v *Volume)
	// Between is what changes after the first pass, before the final one.
	Between func(v *Volume)
	// Replace makes the volume another one before the final pass: a wrong mount.
	Replace func(v *Volume)
	// Spoil damages the target after the final pass.
	Spoil func(v *Volume)
	// Disk has the target be a disk of its own, which SpoilDisk damages after the final
	// pass, below the file system.
	Disk      bool
	SpoilDisk func(d *disk.Disk) error
	// SpoilStream, if not 0, has one bit turn on the way to the target: after so many
	// bytes of the first pass.
	SpoilStream int64
	// Without are capabilities (as in CAP_MKNOD) that the mover at the target lacks.
	Without []string
	// TargetBytes is the size of the target's file system; 0 is plenty.
	TargetBytes int64
	// Must is what the case demands.
	Must Demand
	// Root says that the case is about the volume's root: only then what is kept about
	// the root's mode, owner, time and attributes counts.
	Root bool
	// Holds checks the target if the engine said that all went well, in addition to the
	// comparison with the source.
	Holds func(v *Volume)
}

// Demand is what a case demands of an engine.
type Demand string

const (
	// Kept demands a copy without a difference.
	Kept Demand = "kept"
	// KeptOrRefused also allows that the engine refuses before it stops anything.
	KeptOrRefused Demand = "kept or refused"
	// Noticed demands that the engine ends with an error, and that what the target
	// held after the first pass is still there.
	Noticed Demand = "noticed"
)

// Setup says between which directories an engine copies.
type Setup struct {
	Source, Target string
	// Scratch is an empty directory for the engine's own files.
	Scratch string
	// Without are capabilities that the mover at the target lacks.
	Without []string
}

// Engine copies volumes.
type Engine interface {
	// Name is a column's head.
	Name() string
	// Version is what the engine says of itself; an error means that it is not
	// installed.
	Version(ctx context.Context) (string, error)
	// Start prepares a move. It refuses with a *Refusal what it cannot keep.
	Start(ctx context.Context, setup Setup) (Move, error)
}

// Move is one move of a volume. Its methods are called one after another: passes,
// the last of them with final, then Verify.
type Move interface {
	// Pass brings the target nearer to the source; after the final one it should be
	// equal. The application runs during all passes but the final one.
	Pass(ctx context.Context, final bool) error
	// Verify fails if the target differs from the source. An engine without such a
	// step returns nil.
	Verify(ctx context.Context) error
	// Close ends the move.
	Close() error
}

// Streamed is a Move whose data goes through a connection.
type Streamed interface {
	Move
	// SpoilStream turns one bit after so many more bytes.
	SpoilStream(after int64)
	// StreamSpoilt says whether that has happened.
	StreamSpoilt() bool
}

// Refusal is an engine's refusal to begin, with the reason in words.
type Refusal struct{ Reason string }

func (r *Refusal) Error() string { return r.Reason }

// Outcome is what became of a case.
type Outcome string

// The outcomes. Only Lost is bad in every case: the engine said that all went well,
// and data is missing or other.
const (
	OutcomeKept    Outcome = "kept"
	OutcomeRefused Outcome = "refused"
	OutcomeFailed  Outcome = "failed"
	OutcomeLost    Outcome = "LOST"
	// OutcomeNone is that of a case that an engine has nothing to do with.
	OutcomeNone Outcome = "none"
)

// Result is an outcome with its reason: a refusal, an error, or what differs.
type Result struct {
	Outcome Outcome
	Reason  string
	// Meets says whether the case's demand is met.
	Meets bool
}
