package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"

	"github.com/lodestone-storage/lodestone/mover/confine"
	"github.com/lodestone-storage/lodestone/mover/process"
	"github.com/lodestone-storage/lodestone/mover/stream"
)

// program is where rsync is.
func program() string {
	if path, err := exec.LookPath("rsync"); err == nil {
		return path
	}
	return "/usr/bin/rsync"
}

// environment is rsync's: nothing of the mover's own.
func environment() []string {
	return []string{"PATH=/usr/bin:/bin", "LC_ALL=C.UTF-8", "GOMAXPROCS=1"}
}

// Installed returns an error unless there is an rsync.
func Installed() error {
	if _, err := os.Stat(program()); err != nil {
		return fmt.Errorf("rsync is not installed beside the mover: %w", err)
	}
	return nil
}

// Target is a volume to copy to.
type Target struct {
	// Self is the mover's own program, Volume the directory to copy to.
	Self, Volume string
}

// Receive runs the receiver's rsync for one exchange. The sender chooses a variant
// and nothing else. It returns when rsync and all its processes have ended.
func (t Target) Receive(ctx context.Context, in *stream.Incoming) (any, error) {
	var asked Asked
	if err := json.Unmarshal(in.Body, &asked); err != nil || asks[asked.Variant] == nil {
		return nil, fmt.Errorf("the sender asked for an unknown variant of rsync: %.100s", in.Body)
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	cmd := confine.Command(ctx, t.Self, []confine.Access{{Path: t.Volume, Write: true}}, program(), server(asked.Variant)...)
	process.OwnGroup(cmd)
	complaints := &process.Complaints{}
	cmd.Dir, cmd.Stderr, cmd.Env = t.Volume, complaints, environment()
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("start rsync: %w", err)
	}
	// Not StdoutPipe: Wait would close it under its reader.
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
	go func() { answered <- back(stdout, in) }()
	lost := forth(in, stdin)
	if lost != nil {
		stop()
	}
	_ = stdin.Close()
	outcome := Outcome{Code: process.Wait(cmd)}
	outcome.Complaints = complaints.Words()
	if err := <-answered; lost == nil {
		lost = err
	}
	return outcome, lost
}

// forth gives rsync what the sender sends, until the sender has no more.
func forth(in *stream.Incoming, to io.Writer) error {
	var broken bool
	for {
		payload, err := in.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		// An rsync that has ended says why in its status; the rest is thrown away.
		if !broken {
			_, err = to.Write(payload)
			broken = err != nil
		}
	}
}

// back sends the sender what rsync writes, and its end.
func back(from io.Reader, in *stream.Incoming) error {
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
