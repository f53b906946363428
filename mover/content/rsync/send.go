package rsync

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/lodestone-storage/lodestone/mover/sandbox"
	"github.com/lodestone-storage/lodestone/mover/wire"
)

// Op is the name of the exchange in which rsync runs.
const Op = "rsync"

// Request is the body of that exchange's request.
type Request struct {
	Variant Variant `json:"variant"`
}

// ShellSubcommand is the first argument that makes the mover's program the remote shell of
// rsync: see Shell.
const ShellSubcommand = "shell"

// shellFD is the socket that the remote shell inherits.
const shellFD = 3

// Source is a volume to copy from.
type Source struct {
	// Self is the path of the mover's own program, Volume the directory to copy.
	Self, Volume string
	// Sent is called with how many bytes were sent to the receiver since the last call.
	Sent func(n int)
}

// Send runs rsync between the source and the receiver at the other end of conn. For Redo, list has
// the paths to copy, each terminated by NUL; else it is nil. After ErrNoSpace and other errors of
// rsync the connection can be used on; after wire.ErrLost it cannot.
func (s Source) Send(ctx context.Context, conn *wire.Conn, variant Variant, list io.Reader) error {
	sockets, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("make a socket for rsync's shell: %w", err)
	}
	ours, theirs := os.NewFile(uintptr(sockets[0]), "shell"), os.NewFile(uintptr(sockets[1]), "rsync")
	defer ours.Close()
	arguments := slices.Clone(senderArguments[variant])
	arguments = append(arguments, "-e", "'"+strings.ReplaceAll(s.Self, "'", "''")+"' "+ShellSubcommand)
	if variant == Redo {
		arguments = append(arguments, "--files-from=-")
	}
	arguments = append(arguments, "./", "receiver:.")
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	cmd := sandbox.Command(ctx, s.Self, []sandbox.Access{{Path: s.Volume}, {Path: s.Self, Execute: true}}, program(), arguments...)
	sandbox.SetProcessGroup(cmd)
	complaints := &sandbox.Stderr{}
	cmd.Dir, cmd.Stdin, cmd.Stderr, cmd.ExtraFiles = s.Volume, list, complaints, []*os.File{theirs}
	cmd.Env = environment()
	if err := cmd.Start(); err != nil {
		theirs.Close()
		return fmt.Errorf("start rsync: %w", err)
	}
	theirs.Close()
	// Whatever happens, no process of it is left.
	exited := make(chan int, 1)
	from, to, err := receivePipes(int(ours.Fd()))
	go func() { exited <- sandbox.WaitForGroup(cmd) }()
	if err != nil {
		stop()
		code := <-exited
		return fmt.Errorf("start rsync: %w, with status %d: %s", err, code, complaints.Line())
	}
	defer from.Close()
	defer to.Close()
	var there Outcome
	err = conn.Do(wire.Call{
		Op: Op, Body: Request{Variant: variant}, Result: &there,
		Send: func(send func([]byte) error) error { return s.pump(from, send) },
		Data: func(payload []byte) error {
			// If rsync has ended, its status says why.
			_, _ = to.Write(payload)
			return nil
		},
		End: func() {
			_ = to.Close()
			// Rsync waits for its shell before it ends.
			_ = ours.Close()
		},
	})
	if err != nil {
		stop()
		_ = ours.Close()
		<-exited
		return err
	}
	_ = to.Close()
	_ = ours.Close()
	return outcomeError(variant, Outcome{Code: <-exited, Complaints: complaints.Line()}, there)
}

// pump sends rsync's output.
func (s Source) pump(from *os.File, send func([]byte) error) error {
	buffer := make([]byte, 128<<10)
	for {
		// The end of the pipe is the end of rsync, whose status says the rest.
		n, _ := from.Read(buffer)
		if n <= 0 {
			return nil
		}
		s.Sent(n)
		if err := send(buffer[:n]); err != nil {
			return err
		}
	}
}

// receivePipes waits until rsync's remote shell has sent its pipes.
func receivePipes(socket int) (from, to *os.File, err error) {
	control := make([]byte, unix.CmsgSpace(2*4))
	var n, controlled int
	for {
		n, controlled, _, _, err = unix.Recvmsg(socket, make([]byte, 1), control, unix.MSG_CMSG_CLOEXEC)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err != nil || n == 0 {
		return nil, nil, errors.New("it ended before it began to copy")
	}
	messages, err := unix.ParseSocketControlMessage(control[:controlled])
	if err != nil || len(messages) != 1 {
		return nil, nil, errors.New("its shell gave no pipes")
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(fds) != 2 {
		return nil, nil, errors.New("its shell gave no pipes")
	}
	for _, fd := range fds {
		if err := unix.SetNonblock(fd, true); err != nil {
			return nil, nil, err
		}
	}
	return os.NewFile(uintptr(fds[0]), "from rsync"), os.NewFile(uintptr(fds[1]), "to rsync"), nil
}

// Shell is the program that rsync starts as its remote shell: it passes its pipes to the mover, and
// ends when the mover has ended the exchange.
func Shell() error {
	if err := unix.Sendmsg(shellFD, []byte{1}, unix.UnixRights(0, 1), nil, 0); err != nil {
		return fmt.Errorf("give rsync's pipes to the mover: %w", err)
	}
	_ = unix.Close(0)
	_ = unix.Close(1)
	for {
		n, err := unix.Read(shellFD, make([]byte, 1))
		if n == 0 && !errors.Is(err, unix.EINTR) {
			return nil
		}
	}
}
