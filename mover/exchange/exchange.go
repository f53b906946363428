// Package exchange names what the sender may ask the receiver, and the values that
// both give each other. Rsync's exchange is in package engine.
package exchange

import "github.com/lodestone-storage/lodestone/mover/tree"

// The exchanges.
const (
	// Hello asks who is there: HelloAsked, HelloAnswer. It comes first.
	Hello = "hello"
	// Room asks what room is left: RoomAnswer.
	Room = "room"
	// Scan describes the target in a manifest: ScanAsked, ScanProgress, tree.Summary.
	Scan = "scan"
	// Manifest fetches the manifest of the last scan: data, ManifestAnswer.
	Manifest = "manifest"
	// Blocks carries large files: data, BlocksAnswer.
	Blocks = "blocks"
)

// HelloAsked is what the sender says of itself.
type HelloAsked struct {
	Version string `json:"version"`
}

// HelloAnswer is what the receiver says of itself.
type HelloAnswer struct {
	Version  string `json:"version"`
	Instance string `json:"instance"`
	// Confined says whether the kernel confines the receiver's rsync to the volume.
	Confined bool `json:"confined"`
}

// RoomAnswer is the room at the target. Inodes is 0 where there is no bound.
type RoomAnswer struct {
	Bytes  int64 `json:"bytes"`
	Inodes int64 `json:"inodes"`
}

// ScanAsked says how to scan.
type ScanAsked struct {
	// Cold reads from the disk what must be read; Full reads everything.
	Cold bool `json:"cold,omitempty"`
	Full bool `json:"full,omitempty"`
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
