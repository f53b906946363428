package wire

import (
	"github.com/lodestone-storage/lodestone/mover/sandbox"
	"github.com/lodestone-storage/lodestone/mover/tree"
)

// The operations that a sender may request, with the types of request, progress and response.
// Rsync's operation is in package rsync.
const (
	// Hello asks who is there: HelloRequest, HelloResponse. It comes first.
	OpHello = "hello"
	// OpProbe tests what the target can store: ProbeResponse.
	OpProbe = "probe"
	// OpScan describes the target in a manifest: ScanRequest, tree.Progress, ScanResponse.
	OpScan = "scan"
	// OpFingerprint takes a fingerprint of the target: FingerprintResponse.
	OpFingerprint = "fingerprint"
	// OpManifest fetches the manifest of the last scan: data, ManifestResponse.
	OpManifest = "manifest"
	// OpBlocks sends large files: data, BlocksResponse.
	OpBlocks = "blocks"
	// OpCheckStore asks whether the receiver can use the move's repository:
	// CheckStoreRequest, CheckStoreResponse.
	OpCheckStore = "reach"
	// OpFetch makes the receiver fetch files from the repository: FetchRequest, FetchProgress,
	// FetchResponse.
	OpFetch = "fetch"
	// OpRelease makes the receiver refuse all that writes or reads the target from now on. It has no response.
	OpRelease = "release"
)

// HelloRequest describes the sender.
type HelloRequest struct {
	Version string `json:"version"`
	// Block says that its volume is a block device.
	Block bool `json:"block,omitempty"`
	// Snapshot says that its volume was made from a snapshot of the source; it must not be copied
	// any more once the source itself is.
	Snapshot bool `json:"snapshot,omitempty"`
}

// HelloResponse describes the receiver.
type HelloResponse struct {
	Version  string `json:"version"`
	Instance string `json:"instance"`
	// Confined says that the kernel confines the receiver's rsync to the volume.
	Confined bool `json:"confined"`
	// Writer is who the receiver is; nil: root.
	Writer *tree.Writer `json:"writer,omitempty"`
}

// ProbeResponse is what the target can store, and what is there. For a block volume it is the size,
// as Abilities.Bytes.
type ProbeResponse struct {
	Abilities tree.Abilities `json:"abilities"`
	There     tree.Summary   `json:"there"`
	// Scratch is how much the receiver can store in its scratch directory.
	Scratch sandbox.ScratchSpace `json:"scratch"`
}

// ScanRequest says how to scan.
type ScanRequest struct {
	// Full reads everything again, and from the disk, not only what has changed since the last
	// scan.
	Full bool `json:"full,omitempty"`
	// Length is how many bytes of a block volume are scanned.
	Length uint64 `json:"length,omitempty"`
}

// ScanResponse is the result of a scan.
type ScanResponse struct {
	tree.Summary
	// ManifestSize is how many bytes OpManifest sends.
	ManifestSize uint64 `json:"manifestSize"`
}

// FingerprintResponse is a fingerprint; zero: none can be relied on.
type FingerprintResponse struct {
	Fingerprint tree.Hash `json:"fingerprint"`
}

// ManifestResponse says what the manifest is.
type ManifestResponse struct {
	Size int64  `json:"size"`
	Hash []byte `json:"hash"`
}

// BlocksResponse says what was written of large files.
type BlocksResponse struct {
	Files int64 `json:"files"`
	Bytes int64 `json:"bytes"`
	// Full says that the target has no room left, with details in Error; what was not written must
	// be sent again.
	Full  bool   `json:"full,omitempty"`
	Error string `json:"error,omitempty"`
}

// CheckStoreRequest names what the sender has created in the repository.
type CheckStoreRequest struct {
	// Part is a part of a repository in a claim; empty in an object store.
	Part string `json:"part,omitempty"`
}

// CheckStoreResponse says why the receiver cannot use the repository; empty if it can.
type CheckStoreResponse struct {
	Unusable string `json:"unusable,omitempty"`
}

// FetchRequest names what the sender has saved in the repository.
type FetchRequest struct {
	Snapshot string `json:"snapshot"`
	// Part is the part of a repository in a claim that it is in; empty in an object store.
	Part string `json:"part,omitempty"`
	// BytesPerSecond limits what is transferred; 0: no limit.
	BytesPerSecond int64 `json:"bytesPerSecond,omitempty"`
}

// FetchProgress is how many bytes of files are written.
type FetchProgress struct {
	Bytes int64 `json:"bytes"`
	// Waits says why the store is being tried again.
	Waits string `json:"waits,omitempty"`
}

// FetchResponse says why not all was written; empty: all was.
type FetchResponse struct {
	// Unusable says why the store cannot be used.
	Unusable string `json:"unusable,omitempty"`
	// Full says that the target has no room left.
	Full string `json:"full,omitempty"`
	// Left says why some files were not written.
	Left string `json:"left,omitempty"`
}
