// Package moverapi is the API between the controller of moves and the movers. The controller gives
// both movers keys (IssueKeys) and the repository that content may travel through (Repository), and
// sends a few requests over HTTPS to the sending one (Client); the keys of the move authenticate
// them. Read this file first: Task, Status, and the result of each kind of task.
//
// A move has an authority of its own, whose private key is dropped as soon as it has signed three
// leaves: one for the sender, one for the receiver, one for the controller. A leaf's name is bound
// to its role and to the move, so neither a certificate of another move nor that of another role of
// this one is accepted.
//
// The sender forwards to the receiver what to do over the data connection, so the controller talks
// to nobody else; it reaches the sender directly or through a port forward. It gives the sender the
// addresses of the receiver, or opens a connection to each mover and joins the two.
//
// A mover does one task at a time. A task has an ID that the controller chooses and records before
// it asks (say, "precopy-2"). Asking again with the same ID is safe at any time: it starts nothing
// that runs or is done, and answers with its state. A mover that died remembers no task: its status
// shows none, or another instance, and the controller asks for the task once more; every task may
// be done again from its beginning, and what the target has already is not sent twice.
//
// A task deals with cut connections itself: it connects again and goes on, and its state shows that
// meanwhile. It fails only for reasons that a retry does not fix, in one sentence for the user.
package moverapi

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"time"
)

// Kind is what a task does.
type Kind string

// The kinds of tasks.
const (
	// Fingerprint has both movers take a fingerprint of their volume, and changes nothing. Its result is Fingerprints.
	Fingerprint Kind = "fingerprint"
	// Prepare reads everything at the source but the contents of files, and has the receiver test,
	// in a directory that is removed again, which metadata the target can store and how much room
	// it has. Its result is Prepared.
	Prepare Kind = "prepare"
	// Pass brings the target to what the source holds, while the application may go on
	// writing: the first one copies all, a later one what has changed. Its result is
	// Passed; what changed while it ran is left to the next one.
	Pass Kind = "pass"
	// Final is a pass during which nobody else writes to the source: the caller guarantees that
	// until the move is over or given up. The source's file system is synced first; Verify syncs
	// the target's.
	Final Kind = "final"
	// Verify compares both ends and changes nothing. Its result is Verified; a
	// difference is no failure of the task, but Equal is false. Use it after Final only.
	Verify Kind = "verify"
	// Release makes the receiver write nothing more for as long as its pod exists, also after a restart: others may use the
	// target then, although the pod of the receiver has not ended yet. It has no result. Use it after Verify only.
	Release Kind = "release"
)

// Task is what the controller asks for.
type Task struct {
	// ID names the task in this move: 1 to 63 characters, chosen by the controller.
	ID   string `json:"id"`
	Kind Kind   `json:"kind"`
	// Full makes Verify read every byte at both ends again, past the page cache. Without it only
	// data at the target that was written since it was last read is read again; for the rest the
	// manifests are compared.
	Full bool `json:"full,omitempty"`
	// Settled has Verify also say what differs unseen: see Verified.Unseen. It is a time before which all that was written had reached
	// both disks. Such a task may come before Prepare, which changes the time of the target's root.
	Settled time.Time `json:"settled,omitzero"`
	// Fingerprints has Verify also take fingerprints, before it compares: see Verified.Fingerprints.
	Fingerprints bool `json:"fingerprints,omitempty"`
	// BytesPerSecond limits what is sent; 0: no limit.
	BytesPerSecond int64 `json:"bytesPerSecond,omitempty"`
	// Expect is Prepared.Source of the move's first Prepare: if the source is another directory by
	// now, or nearly everything in it is gone, the task fails and the target is left as it is.
	// Without it the sender compares with what it has seen itself, which a mover that lost its
	// scratch directory no longer knows.
	Expect json.RawMessage `json:"expect,omitempty"`
}

// State is how far a task is.
type State string

// The states of a task. Done, Failed and Cancelled are final.
const (
	Running   State = "running"
	Done      State = "done"
	Failed    State = "failed"
	Cancelled State = "cancelled"
)

// Status is the state of a mover.
type Status struct {
	// Instance is a random ID that changes whenever the mover starts.
	Instance string `json:"instance"`
	// Version is that of the mover's program.
	Version string `json:"version"`
	// Connected says whether the receiver is at the other end of the data connection.
	Connected bool `json:"connected"`
	// Confined says whether the kernel confines the receiver's rsync to its volume, on
	// top of its container; known once it was connected.
	Confined bool `json:"confined,omitempty"`
	// ConnectionError is why it is not connected, in one sentence, if something is known.
	ConnectionError string `json:"connectionError,omitempty"`
	// Direct says that the sender has dialled the receiver itself; otherwise the controller has
	// opened a connection to each mover and joined the two.
	Direct bool `json:"direct,omitempty"`
	// Seeks says that the sender dials the addresses of PUT PeersPath; older movers do not. Peers
	// are the addresses that it has, PeerError says why it did not reach the receiver there the
	// last time.
	Seeks     bool     `json:"seeks,omitempty"`
	Peers     []string `json:"peers,omitempty"`
	PeerError string   `json:"peerError,omitempty"`
	// Task is the last task that this instance was given; nil: none.
	Task *TaskStatus `json:"task,omitempty"`
}

// TaskStatus is the state of a task and, once it is done, its result.
type TaskStatus struct {
	Task
	State State `json:"state"`
	// Error says in one sentence why it failed and what to do.
	Error string `json:"error,omitempty"`
	// Progress is kept when the task ends.
	Progress Progress  `json:"progress"`
	Started  time.Time `json:"started"`
	// Ended is zero while it runs.
	Ended time.Time `json:"ended,omitzero"`
	// The result of each kind; Passed is that of Pass and Final.
	Fingerprints *Fingerprints `json:"fingerprints,omitempty"`
	Prepared     *Prepared     `json:"prepared,omitempty"`
	Passed       *Passed       `json:"passed,omitempty"`
	Verified     *Verified     `json:"verified,omitempty"`
}

// Fingerprints are hashes, in hex, over what the file systems of both volumes say of each entry, for which no content is read. A volume
// that has the fingerprint that it had has the content that it had, if all that was written before that had reached its disk. Both are
// empty if that cannot be relied on for one of the volumes, and for block volumes.
type Fingerprints struct {
	Source string `json:"source,omitempty"`
	Target string `json:"target,omitempty"`
}

// Progress is how far a running task is; the numbers are for people.
type Progress struct {
	// Step is what is being done, as words that follow "the mover is".
	Step string `json:"step,omitempty"`
	// BytesDone of BytesTotal bytes of files are dealt with, whether they had to be
	// sent or not. BytesTotal is 0 until it is known.
	BytesDone  int64 `json:"bytesDone"`
	BytesTotal int64 `json:"bytesTotal"`
	// FilesDone of FilesTotal files, directories and the like are dealt with.
	FilesDone  int64 `json:"filesDone"`
	FilesTotal int64 `json:"filesTotal"`
	// BytesSent went to the receiver over the network, encryption aside.
	BytesSent int64 `json:"bytesSent"`
	// BytesStored went through the object store or the claim, compressed.
	BytesStored int64 `json:"bytesStored,omitempty"`
	// BytesPerSecond is how fast BytesDone grows lately.
	BytesPerSecond int64 `json:"bytesPerSecond"`
	// SecondsLeft is an estimate; 0: none can be made.
	SecondsLeft int64 `json:"secondsLeft"`
	// Reconnects counts how often the connection was made again.
	Reconnects int64 `json:"reconnects"`
}

// Prepared is the result of Prepare.
type Prepared struct {
	// Bytes are what the source's files take, holes left out; Entries counts names of
	// files, directories and the like.
	Bytes   int64 `json:"bytes"`
	Entries int64 `json:"entries"`
	// Inodes is what the target needs: hard links count once.
	Inodes int64 `json:"inodes"`
	// Refusals are what the move could not keep or has no room for, one of each kind;
	// if there is one, the move must not go on.
	Refusals []Refusal `json:"refusals,omitempty"`
	// Source tells this source from every other, for Task.Expect; the caller keeps it.
	Source json.RawMessage `json:"source"`
}

// Refusal is something that a move could not keep.
type Refusal struct {
	// Path is the first that it is about, relative to the volume's root and quoted where
	// it is not plain text; empty if it is about the whole volume.
	Path string `json:"path,omitempty"`
	// Reason is one sentence.
	Reason string `json:"reason"`
}

// Passed is the result of Pass and Final.
type Passed struct {
	// Changed counts entries that were sent or deleted, ChangedBytes the size of the
	// files among them, BytesSent what went over the network.
	Changed      int64 `json:"changed"`
	ChangedBytes int64 `json:"changedBytes"`
	BytesSent    int64 `json:"bytesSent"`
	// Seconds is how long the pass took: a bound of what a Final right after it needs,
	// if the application goes on writing as it did.
	Seconds float64 `json:"seconds"`
}

// Verified is the result of Verify.
type Verified struct {
	Full bool `json:"full,omitempty"`
	// SourceRoot and TargetRoot are the roots of both trees, in hex.
	SourceRoot string `json:"sourceRoot"`
	TargetRoot string `json:"targetRoot"`
	// TargetBytes is how large the target is: all of its files, or the part of a block volume that was read. RootVersion is by which
	// definition the roots were made: those of two definitions say nothing of each other.
	TargetBytes int64 `json:"targetBytes,omitempty"`
	RootVersion int   `json:"rootVersion,omitempty"`
	// Equal is true only if the roots are the same and nothing differs.
	Equal bool `json:"equal"`
	// Differences are what differed in the end, at most 100; DifferencesLeftOff counts
	// the rest.
	Differences        []Difference `json:"differences,omitempty"`
	DifferencesLeftOff int64        `json:"differencesLeftOff,omitempty"`
	// Fingerprints and Unseen are there if the task asked for them. The former are of what was compared, if they are so again later.
	Fingerprints *Fingerprints `json:"fingerprints,omitempty"`
	Unseen       *Unseen       `json:"unseen,omitempty"`
}

// Unseen is what has another content at both ends though its size and its time of change, which is before Task.Settled, are the same.
type Unseen struct {
	// Files is how many files it is, each name of one, 0 of a block volume; First is the first of them, as in Difference.
	Files int64  `json:"files,omitempty"`
	First string `json:"first,omitempty"`
	// Bytes are the blocks that differ in them. Of a block volume, which has no times, those of all.
	Bytes int64 `json:"bytes,omitempty"`
}

// Difference is an entry that is not the same at both ends.
type Difference struct {
	// Path is relative to the volume's root, quoted where it is not plain text.
	Path string `json:"path"`
	// What differs, in words.
	What string `json:"what"`
}

// String is the refusal in words.
func (r Refusal) String() string {
	if r.Path == "" {
		return r.Reason
	}
	return r.Path + ": " + r.Reason
}

// Peers are the addresses at which the receiver may be. The sender uses a connection only if the
// server there proves with its certificate that it is the receiver of the move.
type Peers struct {
	// Addresses are IP addresses with a port, at most MaxPeers, the best one first; none:
	// the sender dials nobody.
	Addresses []string `json:"addresses"`
}

const (
	// MaxPeers is how many addresses a sender takes.
	MaxPeers = 4
	// PeerTimeout is how long a sender tries one of them.
	PeerTimeout = 3 * time.Second
)

// Check returns what is wrong with the addresses.
func (p Peers) Check() error {
	if len(p.Addresses) > MaxPeers {
		return fmt.Errorf("there are %d addresses of the receiver, and %d at most", len(p.Addresses), MaxPeers)
	}
	for _, address := range p.Addresses {
		parsed, err := netip.ParseAddrPort(address)
		if err != nil || parsed.Port() == 0 || parsed.Addr().Zone() != "" {
			return fmt.Errorf("%.100q is not an IP address with a port", address)
		}
	}
	return nil
}
