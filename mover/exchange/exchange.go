// Package exchange names what the sender may ask the receiver, and the values that
// both give each other. Rsync's exchange is in package engine.
package exchange

import (
	"github.com/lodestone-storage/lodestone/mover/scratch"
	"github.com/lodestone-storage/lodestone/mover/tree"
)

// The exchanges.
const (
	// Hello asks who is there: HelloAsked, HelloAnswer. It comes first.
	Hello = "hello"
	// Probe tries what the target can keep: ProbeAnswer.
	Probe = "probe"
	// Scan describes the target in a manifest: ScanAsked, ScanProgress, ScanAnswer.
	Scan = "scan"
	// Manifest fetches the manifest of the last scan: data, ManifestAnswer.
	Manifest = "manifest"
	// Blocks carries large files: data, BlocksAnswer.
	Blocks = "blocks"
	// Reach asks whether the receiver can use the move's repository: ReachAsked, ReachAnswer.
	Reach = "reach"
	// Fetch has the receiver fetch files from the repository: FetchAsked, FetchProgress,
	// FetchAnswer.
	Fetch = "fetch"
)

// HelloAsked is what the sender says of itself.
type HelloAsked struct {
	Version string `json:"version"`
	// Block: its volume is a block device.
	Block bool `json:"block,omitempty"`
	// Snapshot: its volume was made of a snapshot of the source, and is no longer to be
	// copied once the source is.
	Snapshot bool `json:"snapshot,omitempty"`
}

// HelloAnswer is what the receiver says of itself.
type HelloAnswer struct {
	Version  string `json:"version"`
	Instance string `json:"instance"`
	// Confined says whether the kernel confines the receiver's rsync to the volume.
	Confined bool `json:"confined"`
}

// ProbeAnswer is what the target can keep, and what is there. Of a block volume it is
// the size, as Abilities.Bytes.
type ProbeAnswer struct {
	Abilities tree.Abilities `json:"abilities"`
	There     tree.Summary   `json:"there"`
	// Scratch is how much the receiver can keep of the files.
	Scratch scratch.Room `json:"scratch"`
}

// ScanAsked says how to scan.
type ScanAsked struct {
	// Full reads everything again, and not only what changed since the last scan. What
	// is read comes from the disk.
	Full bool `json:"full,omitempty"`
	// Length is how many bytes of a block volume are looked at.
	Length uint64 `json:"length,omitempty"`
}

// ScanAnswer is what a scan saw.
type ScanAnswer struct {
	tree.Summary
	// ManifestSize is how many bytes Manifest sends of it.
	ManifestSize uint64 `json:"manifestSize"`
}

// ScanProgress is how far a scan is.
type ScanProgress = tree.Progress

// ManifestAnswer says what the manifest is.
type ManifestAnswer struct {
	Size int64  `json:"size"`
	Hash []byte `json:"hash"`
}

// BlocksAnswer says what came of large files.
type BlocksAnswer struct {
	Files int64 `json:"files"`
	Bytes int64 `json:"bytes"`
	// Full: the target has no room left, as Error says; what was not written must be
	// sent again.
	Full  bool   `json:"full,omitempty"`
	Error string `json:"error,omitempty"`
}

// ReachAsked names what the sender has made there.
type ReachAsked struct {
	// Part is a part of a repository in a claim; empty in an object store.
	Part string `json:"part,omitempty"`
}

// ReachAnswer says why the receiver cannot use the repository; empty if it can.
type ReachAnswer struct {
	Unusable string `json:"unusable,omitempty"`
}

// FetchAsked names what the sender has saved in the repository.
type FetchAsked struct {
	Snapshot string `json:"snapshot"`
	// Part is the part of a repository in a claim that it is in; empty in an object store.
	Part string `json:"part,omitempty"`
	// BytesPerSecond bounds what travels; 0: no bound.
	BytesPerSecond int64 `json:"bytesPerSecond,omitempty"`
}

// FetchProgress is how many bytes of files are written.
type FetchProgress struct {
	Bytes int64 `json:"bytes"`
	// Waits is what keeps the store from going on.
	Waits string `json:"waits,omitempty"`
}

// FetchAnswer says what came of it. Without any of these all was written.
type FetchAnswer struct {
	// Unusable is why the store cannot be used.
	Unusable string `json:"unusable,omitempty"`
	// Full is said by a target that has no room left.
	Full string `json:"full,omitempty"`
	// Left is why some files were not written.
	Left string `json:"left,omitempty"`
}
