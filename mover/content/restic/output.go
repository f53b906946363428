package restic

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/lodestone-storage/lodestone/pkg/sentence"
)

// Output reads restic's messages while it runs.
type Output struct {
	// Progress is called with how many bytes of files are done so far, Retrying with the reason why
	// restic repeats something; both may be nil.
	Progress func(bytes int64)
	Retrying func(why string)

	summary summary
	// latest is its latest message.
	latest message
	// ended says that restic has written its last message, after success or failure.
	ended bool
	// first are its first complaints, last is the last complaint after them.
	first []string
	last  string
}

// summary is restic's last message.
type summary struct {
	Snapshot string
	Packed   int64
}

// message is a line of restic's output.
type message struct {
	Type     string `json:"message_type"`
	Done     int64  `json:"bytes_done"`
	Restored int64  `json:"bytes_restored"`
	Files    int64  `json:"files_done"`
	Written  int64  `json:"files_restored"`
	Snapshot string `json:"snapshot_id"`
	Packed   int64  `json:"data_added_packed"`
}

// stdoutLine processes a line of restic's output, and reports whether it is news: restic also
// writes progress messages when there is no progress.
func (o *Output) stdoutLine(line []byte) (news bool) {
	var m message
	if json.Unmarshal(line, &m) != nil {
		return false
	}
	news, o.latest = m != o.latest, m
	switch m.Type {
	case "status":
		if o.Progress != nil {
			o.Progress(max(m.Done, m.Restored))
		}
	case "summary":
		o.ended, o.summary = true, summary{Snapshot: m.Snapshot, Packed: m.Packed}
	}
	return news
}

// complaint is a line of restic's standard error, if that is JSON.
type complaint struct {
	Message string `json:"message"`
	Item    string `json:"item"`
	Error   struct {
		Message string `json:"message"`
	} `json:"error"`
}

var retrying = regexp.MustCompile(`retrying after [0-9.a-zµ]+: (.*)`)

// maxComplaints is how many complaints are kept, besides the last one.
const maxComplaints = 3

// stderrLine processes a line of restic's standard error. It is news unless it is empty: a restic
// that tries again is not idle.
func (o *Output) stderrLine(line []byte) (news bool) {
	text := string(line)
	var c complaint
	if json.Unmarshal(line, &c) == nil {
		if text = c.Message + c.Error.Message; c.Item != "" {
			text = c.Item + ": " + text
		}
	}
	if text = firstLine(text); text == "" {
		return false
	}
	if found := retrying.FindStringSubmatch(text); found != nil && o.Retrying != nil {
		o.Retrying(found[1])
	}
	if len(o.first) < maxComplaints {
		o.first = append(o.first, text)
	} else {
		o.last = text
	}
	return true
}

// complaints returns restic's complaints in one line.
func (o *Output) complaints() string {
	all := o.first
	if o.last != "" {
		all = append(slices.Clone(all), o.last)
	}
	return strings.Join(all, "; ")
}

// firstLine returns the first line of a message, shortened for people.
func firstLine(message string) string {
	message, _, _ = strings.Cut(strings.TrimSpace(message), "\n")
	if len(message) > 300 {
		message = sentence.Cut(message, 300) + "…"
	}
	return message
}

// lineWriter calls line, which reports whether it is news, for each line that is written to it; the
// rest of lines that are too long is dropped.
type lineWriter struct {
	line   func([]byte) bool
	counts *outputCounts
	buffer []byte
}

const maxLine = 64 << 10

// Write implements io.Writer.
func (w *lineWriter) Write(p []byte) (int, error) {
	w.counts.bytes.Add(int64(len(p)))
	for rest := p; len(rest) > 0; {
		head, tail, ended := bytes.Cut(rest, []byte("\n"))
		if len(w.buffer)+len(head) <= maxLine {
			w.buffer = append(w.buffer, head...)
		}
		if ended {
			if w.line(w.buffer) {
				w.counts.news.Add(1)
			}
			w.buffer = w.buffer[:0]
		}
		rest = tail
	}
	return len(p), nil
}

// Error means that the store cannot be used now: a later attempt may succeed. The name of the store
// precedes its sentence.
type Error struct{ Sentence string }

func (e *Error) Error() string { return "the move's repository cannot be used: " + e.Sentence }

// Partial means that some files were not fetched, for a reason that is not the store's.
type Partial struct{ Complaints string }

func (e *Partial) Error() string { return "restic did not write all files: " + e.Complaints }

// ErrFull means that the target volume has no room left.
var ErrFull = errors.New("the target volume is full")

var (
	errNoRepository = &Error{Sentence: "this move's repository is not there; somebody has removed it"}
	errLocked       = errors.New("the repository is locked")
)

// Exit statuses of restic that the mover handles differently.
const (
	someNotRead   = 3
	noRepository  = 10
	isLocked      = 11
	wrongPassword = 12
)

// storeErrors maps parts of restic's messages to their meaning.
var storeErrors = []struct {
	parts []string
	means string
}{
	{[]string{"(401)", "(403)", "Access Denied", "AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch",
		"access key ID you provided does not exist"},
		"it refuses the credentials: mend them in the Secret that RemoteCluster.spec.moveRepository names, and move again"},
	{[]string{"(507)", "(413)", "Insufficient Storage", "QuotaExceeded", "XMinioStorageFull"}, "it is full: make room in it"},
	{[]string{"x509:", "certificate signed by", "tls: failed"}, "its certificate is not to be trusted: put its authority into the key " +
		"ca.crt of the Secret that RemoteCluster.spec.moveRepository names"},
	{[]string{"connection refused", "no such host", "i/o timeout", "connection reset", "no route to host", "network is unreachable",
		"context deadline exceeded", "unexpected EOF", "server misbehaving", "broken pipe"},
		"it cannot be reached now"},
	{[]string{"(500)", "(502)", "(503)", "(504)", "Internal Server Error", "SlowDown", "ServiceUnavailable"}, "it has a fault of its own"},
	{[]string{"(404)", "NoSuchBucket", "bucket does not exist"},
		"there is nothing at its address: see the key url of the Secret that RemoteCluster.spec.moveRepository names"},
}

// outcomeError makes an error of restic's exit, or none. done says that it has completed its work
// nevertheless.
func outcomeError(op operation, code int, message string, done bool) error {
	switch {
	case code == 0 || op == backup && code == someNotRead && done:
		return nil
	case code == noRepository:
		return errNoRepository
	case code == isLocked:
		return errLocked
	case code == wrongPassword:
		return &Error{Sentence: "this move's repository has another password: somebody else has made it, so remove it there"}
	case op == restore && (strings.Contains(message, "no space left on device") || strings.Contains(message, "disk quota exceeded")):
		return fmt.Errorf("%w: %s", ErrFull, message)
	}
	for _, reason := range storeErrors {
		for _, part := range reason.parts {
			if strings.Contains(message, part) {
				return &Error{Sentence: fmt.Sprintf("%s (%s)", reason.means, message)}
			}
		}
	}
	if op == restore && done {
		return &Partial{Complaints: message}
	}
	switch {
	case message == "":
		message = "restic gave no reason"
	case code > 0:
		message = fmt.Sprintf("restic ended with status %d: %s", code, message)
	}
	return &Error{Sentence: message}
}

// claimErrors maps parts of file system errors to their meaning.
var claimErrors = []struct{ part, means string }{
	{unix.ENOSPC.Error(), "it is full: make room in it"},
	{unix.EDQUOT.Error(), "it is full: make room in it"},
	{unix.EROFS.Error(), "its storage lets nobody write: let the nodes of both clusters do so"},
	{unix.EACCES.Error(), "its storage does not let root in: let root of the nodes of both clusters read and write there"},
	{unix.EPERM.Error(), "its storage does not let root in: let root of the nodes of both clusters read and write there"},
}

// explainClaimError returns a sentence for an error of a file system, or of restic about one.
func explainClaimError(message string) string {
	message = strings.ReplaceAll(message, partDescriptor, "the repository")
	for _, m := range claimErrors {
		if strings.Contains(message, m.part) {
			return fmt.Sprintf("%s (%s)", m.means, message)
		}
	}
	return message
}

// claimError makes an error of restic's exit with a repository in a claim, if the file system was
// the reason; nil otherwise.
func claimError(code int, message string) error {
	if code == 0 || code == noRepository || code == isLocked || code == wrongPassword || !strings.Contains(message, partDescriptor) {
		return nil
	}
	return &Error{Sentence: explainClaimError(message)}
}
