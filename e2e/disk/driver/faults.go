package driver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// faults are failures that a test orders by files in a directory. A file's name is
// that of a CSI call, as CreateVolume: each such call fails so. With a suffix, as
// CreateVolume.1, it holds for one call, which removes it. Several of those are
// used up one by one, in the order of their names, before the lasting one.
//
// The file calls beside the directory has a line for each call that has ended: its
// name and the code of its answer.
type faults struct {
	directory string
}

// Fault is the content of such a file, as JSON.
type Fault struct {
	// Code is that of the answer, as RESOURCE_EXHAUSTED; empty: the call does not fail.
	Code string `json:"code,omitempty"`
	// Message goes with the code.
	Message string `json:"message,omitempty"`
	// Delay is how long the call takes before anything else, as 2s.
	Delay string `json:"delay,omitempty"`
	// Done has the call do its work before it fails, as when an answer is lost.
	Done bool `json:"done,omitempty"`
}

// intercept does what is ordered for a call, and notes its end.
func (f faults) intercept(ctx context.Context, request any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	method := path.Base(info.FullMethod)
	answer, err := f.call(ctx, request, method, handle)
	if noted := f.note(method, status.Code(err)); noted != nil {
		return nil, status.Errorf(codes.Internal, "note the end of a call: %v", noted)
	}
	return answer, err
}

// note appends a line to the file of calls, whole: others append to it, too.
func (f faults) note(method string, code codes.Code) (err error) {
	file, err := os.OpenFile(filepath.Join(filepath.Dir(f.directory), "calls"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	_, err = file.WriteString(method + " " + code.String() + "\n")
	return err
}

func (f faults) call(ctx context.Context, request any, method string, handle grpc.UnaryHandler) (any, error) {
	fault, err := f.take(method)
	if err != nil {
		return nil, status.Errorf(codes.Internal, "read the failures that are ordered: %v", err)
	}
	if fault == nil {
		return handle(ctx, request)
	}
	if fault.Delay != "" {
		delay, err := time.ParseDuration(fault.Delay)
		if err != nil {
			return nil, status.Errorf(codes.Internal, "the delay that is ordered: %v", err)
		}
		select {
		case <-time.After(delay):
		case <-ctx.Done():
			return nil, status.FromContextError(ctx.Err()).Err()
		}
	}
	if fault.Code == "" {
		return handle(ctx, request)
	}
	var code codes.Code
	if err := code.UnmarshalJSON([]byte(`"` + fault.Code + `"`)); err != nil {
		return nil, status.Errorf(codes.Internal, "the code that is ordered: %v", err)
	}
	if fault.Done {
		if _, err := handle(ctx, request); err != nil {
			return nil, err
		}
	}
	return nil, status.Error(code, fault.Message)
}

// take returns what is ordered for a call, nil if nothing is.
func (f faults) take(method string) (*Fault, error) {
	once, err := filepath.Glob(filepath.Join(f.directory, method+".*"))
	if err != nil {
		return nil, err
	}
	for _, file := range once {
		if strings.HasSuffix(file, newSuffix) {
			continue // still being written
		}
		content, err := os.ReadFile(file)
		if err == nil {
			err = os.Remove(file)
		}
		if errors.Is(err, os.ErrNotExist) {
			continue // another call has used it up
		}
		return parse(content, err)
	}
	content, err := os.ReadFile(filepath.Join(f.directory, method))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	return parse(content, err)
}

// newSuffix ends the names of files that are being written.
const newSuffix = ".new"

func parse(content []byte, err error) (*Fault, error) {
	if err != nil {
		return nil, err
	}
	fault := &Fault{}
	if err := json.Unmarshal(content, fault); err != nil {
		return nil, fmt.Errorf("decode: %w", err)
	}
	return fault, nil
}
