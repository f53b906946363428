package restic

import (
	"errors"
	"fmt"
	"strings"
)

// Error says that the store cannot be used now: trying again later may help. Its sentence
// follows the name of the store.
type Error struct{ Sentence string }

func (e *Error) Error() string { return "the move's repository cannot be used: " + e.Sentence }

// Partial says that some files were not fetched, for a reason that is not the store's.
type Partial struct{ Complaints string }

func (e *Partial) Error() string { return "restic did not write all files: " + e.Complaints }

// ErrFull says that the target volume has no room left.
var ErrFull = errors.New("the target volume is full")

var (
	errNoRepository = &Error{Sentence: "this move's repository is not there; somebody has removed it"}
	errLocked       = errors.New("the repository is locked")
)

// Exit statuses of restic that the mover tells apart.
const (
	someNotRead   = 3
	noRepository  = 10
	isLocked      = 11
	wrongPassword = 12
)

// reasons are parts of what restic says, and what they mean.
var reasons = []struct {
	parts []string
	means string
}{
	{[]string{"(401)", "(403)", "Access Denied", "AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch", "access key ID you provided does not exist"},
		"it refuses the credentials: mend them in the Secret that RemoteCluster.spec.moveRepository names, and move again"},
	{[]string{"(507)", "(413)", "Insufficient Storage", "QuotaExceeded", "XMinioStorageFull"}, "it is full: make room in it"},
	{[]string{"x509:", "certificate signed by", "tls: failed"}, "its certificate is not to be trusted: put its authority into the key ca.crt of the Secret that RemoteCluster.spec.moveRepository names"},
	{[]string{"connection refused", "no such host", "i/o timeout", "connection reset", "no route to host", "network is unreachable", "context deadline exceeded", "unexpected EOF", "server misbehaving", "broken pipe"},
		"it cannot be reached now"},
	{[]string{"(500)", "(502)", "(503)", "(504)", "Internal Server Error", "SlowDown", "ServiceUnavailable"}, "it has a fault of its own"},
	{[]string{"(404)", "NoSuchBucket", "bucket does not exist"}, "there is nothing at its address: see the key url of the Secret that RemoteCluster.spec.moveRepository names"},
}

// judge makes an error of how restic ended, or none. done says that it came to its end
// all the same.
func judge(verb verb, code int, said string, done bool) error {
	switch {
	case code == 0 || verb == save && code == someNotRead && done:
		return nil
	case code == noRepository:
		return errNoRepository
	case code == isLocked:
		return errLocked
	case code == wrongPassword:
		return &Error{Sentence: "this move's repository has another password: somebody else has made it, so remove it there"}
	case verb == fetch && (strings.Contains(said, "no space left on device") || strings.Contains(said, "disk quota exceeded")):
		return fmt.Errorf("%w: %s", ErrFull, said)
	}
	for _, reason := range reasons {
		for _, part := range reason.parts {
			if strings.Contains(said, part) {
				return &Error{Sentence: fmt.Sprintf("%s (%s)", reason.means, said)}
			}
		}
	}
	if verb == fetch && done {
		return &Partial{Complaints: said}
	}
	switch {
	case said == "":
		said = "restic gave no reason"
	case code > 0:
		said = fmt.Sprintf("restic ended with status %d: %s", code, said)
	}
	return &Error{Sentence: said}
}
