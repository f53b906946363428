package rsync

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/lodestone-storage/lodestone/mover/sandbox"
	"github.com/lodestone-storage/lodestone/mover/wire"
)

// Target is a volume to copy to.
type Target struct {
	// Self is the path of the mover's own program, Volume the directory to copy to.
	Self, Volume string
}

// Receive runs the receiver's rsync for one exchange. The sender chooses only the variant. It
// returns when rsync and all its processes have ended.
func (t Target) Receive(ctx context.Context, in *wire.Incoming) (any, error) {
	var request Request
	if err := json.Unmarshal(in.Body, &request); err != nil || serverArguments[request.Variant] == nil {
		return nil, fmt.Errorf("the sender asked for an unknown variant of rsync: %.100s", in.Body)
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	cmd := sandbox.Command(ctx, t.Self, []sandbox.Access{{Path: t.Volume, Write: true}}, program(), receiverArguments(request.Variant)...)
	sandbox.SetProcessGroup(cmd)
	complaints := &sandbox.Stderr{}
	cmd.Dir, cmd.Stderr, cmd.Env = t.Volume, complaints, environment()
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("start rsync: %w", err)
	}
	// StdoutPipe is not used: Wait would close it while it is being read.
	stdout, write, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("start rsync: %w", err)
	}
	defer stdout.Close()
	cmd.Stdout = write
	err = cmd.Start()
	write.Close()
	if err != nil {
		return nil, fmt.Errorf("start rsync: %w", err)
	}
	answered := make(chan error, 1)
	go func() { answered <- fromRsync(stdout, in) }()
	lost := toRsync(in, stdin)
	if lost != nil {
		stop()
	}
	_ = stdin.Close()
	outcome := Outcome{Code: sandbox.WaitForGroup(cmd)}
	outcome.Complaints = complaints.Line()
	if err := <-answered; lost == nil {
		lost = err
	}
	return outcome, lost
}

// toRsync writes the sender's data to rsync, until the sender has no more.
func toRsync(in *wire.Incoming, to io.Writer) error {
	var broken bool
	for {
		payload, err := in.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		// If rsync has ended, its status says why; the remaining data is dropped.
		if !broken {
			_, err = to.Write(payload)
			broken = err != nil
		}
	}
}

// fromRsync sends rsync's output to the sender, and then its end.
func fromRsync(from io.Reader, in *wire.Incoming) error {
	buffer := make([]byte, 128<<10)
	for {
		n, err := from.Read(buffer)
		if n > 0 {
			if err := in.Send(buffer[:n]); err != nil {
				return err
			}
		}
		if err != nil {
			return in.SendEnd()
		}
	}
}
